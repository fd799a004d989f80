"""Stopwatch: how long calls take. All experiments that measure times use it.

Every call is warmed up, and then all calls at all sizes take turns, so that a busy moment of the machine meets each of
them alike. Measured is processor time on one thread: the time that others take is not counted, but they disturb caches
and clocks. The best turn counts, if another turn confirms it; if none does within `PATIENCE` times as many turns as
were asked for, the machine is too busy, the time is called unsteady, and nothing is drawn.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from regard.cached import cached_property
from regard.inspection.number import short
from regard.inspection.records import Cell, Line, Lines, Picture, Table
from regard.lab.cost import one_thread
from regard.progress import report, reporting

SAMPLE = 0.002  # seconds that a turn takes at least: short calls are repeated within it
MOST = 500  # repeats within a turn
WARM_UP = 0.01  # seconds of calls before the first turn, at least two calls
STEADY = 1.25  # a time is steady if the second best turn took at most so many times as long as the best
PATIENCE = 4
UNSTEADY = "unsteady"

Call = Callable[[], object]


@dataclass(frozen=True)
class Turns:
    """Seconds of processor time of one call, in each of its turns."""

    seconds: tuple[float, ...]

    @property
    def best(self) -> float:
        """Milliseconds of the shortest turn."""
        return 1e3 * min(self.seconds)

    @property
    def median(self) -> float:
        """Milliseconds of the middle turn."""
        return 1e3 * statistics.median(self.seconds)

    @property
    def confirmation(self) -> float:
        """The second best turn, as a multiple of the best."""
        best, second = sorted(self.seconds)[:2]
        return second / best

    @property
    def steady(self) -> bool:
        """Whether another turn confirms the best."""
        return self.confirmation <= STEADY


@dataclass(frozen=True)
class Times:
    """The turns of every call, by size and name. All sizes have the same names."""

    by_size: dict[int, dict[str, Turns]]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The calls."""
        return tuple(next(iter(self.by_size.values())))

    @cached_property
    def unsteady(self) -> tuple[tuple[str, int, Turns], ...]:
        """Name and size of every time that no other turn confirms, the worst first."""
        every = [(name, size, turns) for size, calls in self.by_size.items() for name, turns in calls.items()]
        return tuple(sorted((one for one in every if not one[2].steady), key=lambda one: -one[2].confirmation))

    def ratio(self, size: int, one: str, other: str) -> float | None:
        """The time of one call over that of another; None if one of them is unsteady."""
        calls = self.by_size[size]
        return calls[one].best / calls[other].best if calls[one].steady and calls[other].steady else None

    def how(self) -> str:
        """How it was measured, and what is unsteady, for the title of a table."""
        turns = [len(each.seconds) for calls in self.by_size.values() for each in calls.values()]
        counted = str(turns[0]) if len(set(turns)) == 1 else f"{min(turns)} to {max(turns)}"
        text = f"processor time on one thread, best of {counted} turns; spread: the largest median over its best"
        if self.unsteady:
            name, size, worst = self.unsteady[0]
            text += (
                f". Not drawn, the machine was too busy: {len(self.unsteady)} of {len(turns)} times are unsteady; the "
                f"second best turn of {name} at {size:,} took {short(worst.confirmation, 2)} times as long as the best "
                f"(allowed: {STEADY:g})"
            )
        return text

    def table(self, axis: str, title: str, *ratios: tuple[str, str]) -> Table:
        """Milliseconds by size, ratios of two calls, and the spread."""
        rows: list[tuple[Cell, ...]] = []
        for size, calls in self.by_size.items():
            cells: list[Cell] = [turns.best if turns.steady else UNSTEADY for turns in calls.values()]
            for pair in ratios:
                over = self.ratio(size, *pair)
                cells.append(UNSTEADY if over is None else f"{over:.1f}×")
            rows.append((size, *cells, max(turns.median / turns.best for turns in calls.values())))
        columns = (axis, *self.names, *(f"{one} ÷ {other}" for one, other in ratios), "spread")
        return Table(columns, rows, f"{title}: milliseconds of {self.how()}")

    def pictures(self, axis: str, title: str) -> tuple[Picture, ...]:
        """The best times as lines with the median turns as the upper ends of bands; nothing if any is unsteady."""
        if self.unsteady:
            return ()
        sizes = list(self.by_size)
        lines = []
        for name in self.names:
            turns = [self.by_size[size][name] for size in sizes]
            best = [each.best for each in turns]
            lines.append(Line(name, sizes, best, best, [each.median for each in turns]))
        return (Lines(lines, axis, "ms", title, log_x=True, log_y=True),)


def timed(calls: Mapping[int, Mapping[str, Call]], turns: int) -> Times:
    """The times of all calls by size and name, in at least two and up to `PATIENCE` · `turns` turns, on one thread."""
    every = {(size, name): call for size, named in calls.items() for name, call in named.items()}
    taken: dict[tuple[int, str], list[float]] = {key: [] for key in every}
    with one_thread(), torch.no_grad():
        with reporting(None):
            repeats = {key: _repeats(call) for key, call in every.items()}
        for turn in range(PATIENCE * max(turns, 2)):
            left = [key for key in every if turn < max(turns, 2) or not Turns(tuple(taken[key])).steady]
            if not left:
                break
            report("timing, turn", turn, max(turns, 2))
            with reporting(None):
                for key in left:
                    taken[key].append(_seconds(every[key], repeats[key]))
    return Times({size: {name: Turns(tuple(taken[size, name])) for name in named} for size, named in calls.items()})


def _repeats(call: Call) -> int:
    """Warm a call up, and say how many of it fill a turn."""
    call()
    seconds = [_seconds(call, 1)]
    while sum(seconds) < WARM_UP and len(seconds) < MOST:
        seconds.append(_seconds(call, 1))
    return max(1, min(MOST, round(SAMPLE / max(min(seconds), 1e-9))))


def _seconds(call: Call, repeats: int) -> float:
    start = time.process_time()
    for _ in range(repeats):
        call()
    return (time.process_time() - start) / repeats
