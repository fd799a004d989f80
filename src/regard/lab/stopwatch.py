"""A stopwatch: works take turns, round by round on one thread, and the best time of each counts."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch

from regard.progress import reporting

SAMPLE = 0.001  # seconds that a sample takes at least: short works are repeated within it
MOST = 200  # repeats within a sample


def milliseconds(works: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The shortest time of each work in `rounds` turns, after one turn that only warms up."""
    best = dict.fromkeys(works, float("inf"))
    with one_thread(), torch.no_grad(), reporting(None):
        repeats = {name: _repeats(work) for name, work in works.items()}
        for _ in range(rounds):
            for name, work in works.items():
                best[name] = min(best[name], _seconds(work, repeats[name]))
    return {name: 1e3 * seconds for name, seconds in best.items()}


def _repeats(work: Callable[[], object]) -> int:
    work()
    return max(1, min(MOST, round(SAMPLE / max(_seconds(work, 1), 1e-9))))


def _seconds(work: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    return (time.perf_counter() - start) / repeats


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for the block: a time then says how much work it was, and not how it was shared out."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(before)
