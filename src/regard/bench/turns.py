"""Taking turns: contenders run one after the other, round by round, and the best of each counts."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from regard.progress import reporting

SAMPLE = 0.002  # seconds that one sample takes at least: short calls are repeated within it
SHORT = 0.05  # a call below this is run once untimed in each turn, so that nobody pays for the one before
MOST = 200  # rounds
LEAST = 3


@dataclass(frozen=True)
class Best:
    """The shortest time of one call, and in how many samples it was found."""

    seconds: float
    samples: int


def in_turns(
    works: Mapping[str, Callable[[], object]],
    budget: float,
    rounds: int | None = None,
    between: Callable[[], None] = lambda: None,
    settle: Callable[[], None] = lambda: None,
) -> dict[str, Best]:
    """The best time of each work within about `budget` seconds; `between` runs after every round, and
    `settle` returns when all work is done.

    Without a number of rounds, a contender that has used its share of the time sits out, but not before `LEAST`
    samples; the others go on against each other.
    """
    best = dict.fromkeys(works, Best(float("inf"), 0))
    spent = dict.fromkeys(works, 0.0)
    share = budget / len(works)
    with reporting(None):
        for _ in range(rounds or MOST):
            active = [name for name in works if rounds or best[name].samples < LEAST or spent[name] < share]
            if not active:
                break
            for name in active:
                start = time.perf_counter()
                seconds = _sample(works[name], best[name].seconds, settle)
                spent[name] += time.perf_counter() - start
                best[name] = Best(min(best[name].seconds, seconds), best[name].samples + 1)
            between()
    return best


def _sample(work: Callable[[], object], expected: float, settle: Callable[[], None]) -> float:
    """Seconds of one call, on average over one sample."""
    repeats = 1
    if expected < SHORT:
        work()
        repeats = max(1, min(1000, round(SAMPLE / expected)))
    settle()
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    settle()
    return (time.perf_counter() - start) / repeats
