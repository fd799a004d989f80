"""Turns: everybody runs in every round until its share of the time is used."""

import pytest

from regard.bench import measure
from regard.bench.measure import LEAST, MOST, in_turns


class Clock:
    """A clock that only work moves."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(measure, "time", clock)
    return clock


def test_contenders_take_turns(clock: Clock) -> None:
    order: list[str] = []
    slow = 0.06  # longer than a call that is warmed up and repeated

    def work(name: str) -> None:
        order.append(name)
        clock.sleep(slow)

    best = in_turns({"a": lambda: work("a"), "b": lambda: work("b")}, 0, rounds=3)
    assert order == ["a", "b"] * 3
    assert best["a"].samples == best["b"].samples == 3
    assert best["a"].seconds == pytest.approx(slow)


def test_who_has_used_its_time_sits_out(clock: Clock) -> None:
    rounds = 0

    def count() -> None:
        nonlocal rounds
        rounds += 1

    best = in_turns({"quick": lambda: clock.sleep(1e-4), "slow": lambda: clock.sleep(0.06)}, 0.3, between=count)
    assert best["slow"].samples == LEAST
    assert LEAST < best["quick"].samples <= MOST
    assert rounds >= best["quick"].samples


def test_short_calls_are_repeated(clock: Clock) -> None:
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        clock.sleep(1e-5)

    assert in_turns({"a": work}, 0, rounds=2)["a"].seconds == pytest.approx(1e-5)
    assert calls > 100
