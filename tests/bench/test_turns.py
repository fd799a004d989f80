"""Turns: everybody runs in every round until its share of the time is used."""

import time

from regard.bench.turns import LEAST, MOST, in_turns


def test_contenders_take_turns() -> None:
    order: list[str] = []
    slow = 0.06  # longer than a call that is warmed up and repeated

    def work(name: str) -> None:
        order.append(name)
        time.sleep(slow)

    best = in_turns({"a": lambda: work("a"), "b": lambda: work("b")}, 0, rounds=3)
    assert order == ["a", "b"] * 3
    assert best["a"].samples == best["b"].samples == 3
    assert best["a"].seconds >= slow


def test_who_has_used_its_time_sits_out() -> None:
    rounds = 0

    def count() -> None:
        nonlocal rounds
        rounds += 1

    best = in_turns({"quick": lambda: None, "slow": lambda: time.sleep(0.06)}, 0.3, between=count)
    assert best["slow"].samples == LEAST
    assert LEAST < best["quick"].samples <= MOST
    assert rounds >= best["quick"].samples


def test_short_calls_are_repeated() -> None:
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1

    assert in_turns({"a": work}, 0, rounds=2)["a"].seconds < 1e-3
    assert calls > 100
