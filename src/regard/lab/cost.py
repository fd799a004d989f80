"""What a call costs: operations and bytes, which are counted and the same on any machine, and milliseconds."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.engine.memory import MemoryCounter
from regard.progress import reporting

SAMPLE = 0.001  # seconds that a sample takes at least: short calls are repeated within it
MOST = 200  # repeats within a sample


def operations(call: Callable[[], object]) -> int:
    """Multiplications and additions of the matrix products of a call, by torch's own counter.

    Softmax, activations and norms are not counted, nor is anything inside native code.
    """
    with FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())


def peak_bytes(call: Callable[[], object]) -> int:
    """Peak memory of the tensors that a call makes; on the device "meta" nothing is allocated."""
    with MemoryCounter() as memory:
        result = call()
    del result
    return memory.peak


def growth_order(first: float, second: float, factor: float = 2.0) -> float:
    """The power of n that something grows with, from its amounts at n and at n · factor."""
    return math.log(second / first) / math.log(factor)


def milliseconds(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The shortest processor time of each call in `rounds` turns on one thread, after one warm-up turn."""
    best = dict.fromkeys(calls, float("inf"))
    with one_thread(), torch.no_grad(), reporting(None):
        repeats = {}
        for name, call in calls.items():
            call()
            repeats[name] = max(1, min(MOST, round(SAMPLE / max(_seconds(call, 1), 1e-9))))
        for _ in range(rounds):
            for name, call in calls.items():
                best[name] = min(best[name], _seconds(call, repeats[name]))
    return {name: 1e3 * seconds for name, seconds in best.items()}


def _seconds(call: Callable[[], object], repeats: int) -> float:
    start = time.process_time()
    for _ in range(repeats):
        call()
    return (time.process_time() - start) / repeats


@contextmanager
def one_thread() -> Iterator[None]:
    """Run the block on one thread, so that a time measures the work and not how it was shared out."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(before)
