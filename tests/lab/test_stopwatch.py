"""The stopwatch: calls take turns, the best turn counts if another confirms it, and a busy machine draws nothing."""

from collections.abc import Callable, Iterator
from itertools import chain, repeat

import pytest
import torch

from regard.inspection.records import Lines
from regard.lab.stopwatch import PATIENCE, STEADY, UNSTEADY, Times, Turns, timed


class Clock:
    """A clock that calls move forward, and the order of the calls."""

    def __init__(self) -> None:
        self.now = 0.0
        self.order: list[str] = []

    def call(self, name: str, seconds: Iterator[float]) -> Callable[[], None]:
        def run() -> None:
            self.order.append(name)
            self.now += next(seconds)

        return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr("time.process_time", lambda: fake.now)
    return fake


def test_all_calls_of_all_sizes_take_turns(clock: Clock) -> None:
    calls = {size: {name: clock.call(f"{name}{size}", repeat(size * 0.01)) for name in ("a", "b")} for size in (1, 2)}
    times = timed(calls, 3)
    turn = ["a1", "b1", "a2", "b2"]
    assert clock.order[-12:] == 3 * turn
    for turns in times.by_size[2].values():
        assert list(turns.seconds) == [pytest.approx(0.02)] * 3
    assert times.ratio(2, "a", "b") == pytest.approx(1)
    (drawn,) = times.pictures("n", "title")
    assert isinstance(drawn, Lines)
    assert [list(line.y) for line in drawn.lines] == [[pytest.approx(10), pytest.approx(20)]] * 2
    assert "Not drawn" not in times.how()


def test_the_best_turn_counts_and_the_spread_is_told(clock: Clock) -> None:
    warm_up, turns = [1.0, 1.0], [0.3, 0.1, 0.1 * STEADY]
    times = timed({8: {"a": clock.call("a", chain(warm_up, turns))}}, 3)
    table = times.table("n", "title")
    assert table.columns == ("n", "a", "spread")
    assert table.rows == [(8, pytest.approx(100), pytest.approx(STEADY))]


def test_more_turns_are_taken_until_the_best_is_confirmed(clock: Clock) -> None:
    times = timed({8: {"a": clock.call("a", chain([1.0, 1.0], [0.1, 0.2, 0.2, 0.2, 0.11]))}}, 3)
    assert len(times.by_size[8]["a"].seconds) == 5
    assert not times.unsteady


def test_a_busy_machine_is_told_and_nothing_is_drawn(clock: Clock) -> None:
    slower = (0.1 * 2**turn for turn in range(100))
    times = timed({8: {"calm": clock.call("calm", repeat(0.02)), "busy": clock.call("busy", slower)}}, 3)
    assert len(times.by_size[8]["busy"].seconds) == PATIENCE * 3
    assert len(times.by_size[8]["calm"].seconds) == 3
    assert times.pictures("n", "title") == ()
    assert times.ratio(8, "calm", "busy") is None
    table = times.table("n", "title", ("calm", "busy"))
    assert table.rows[0][1:4] == (pytest.approx(20), UNSTEADY, UNSTEADY)
    assert "Not drawn, the machine was too busy: 1 of 2 times are unsteady; the second best turn of busy at 8" in (
        table.title
    )


def test_short_calls_are_repeated_within_a_turn(clock: Clock) -> None:
    timed({8: {"a": clock.call("a", repeat(0.001))}}, 2)
    assert clock.order.count("a") == 11 + 2 * 2  # a first call, 10 of 1 ms fill the warm-up; then 2 turns of 2 ms


def test_a_real_call_on_one_thread_without_gradients() -> None:
    seen = set()

    def call() -> None:
        seen.add((torch.get_num_threads(), torch.is_grad_enabled()))

    threads = torch.get_num_threads()
    times = timed({1: {"call": call}}, 2)
    assert seen == {(1, False)}
    assert torch.get_num_threads() == threads
    assert times.by_size[1]["call"].best > 0


def test_steady_means_that_a_second_turn_is_near() -> None:
    assert Turns((1.0, STEADY, 9.0)).steady
    assert not Turns((1.0, STEADY + 0.01, STEADY + 0.01)).steady
    assert Times({1: {"a": Turns((1.0, 1.1, 3.0))}}).by_size[1]["a"].median == 1100
