"""What can be counted instead of timed: operations and bytes. The same call gives the same numbers on any machine."""

import math
from collections.abc import Callable

from torch.utils.flop_counter import FlopCounterMode

from regard.engine.memory import Memory


def operations(work: Callable[[], object]) -> int:
    """Multiplications and additions of the matrix products of a call, by torch's own counter.

    Softmax, activations and norms are no products; neither the counter nor this sees inside native code.
    """
    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


def most_bytes(work: Callable[[], object]) -> int:
    """The most that the tensors made by a call hold at once; on the device "meta" without holding anything."""
    with Memory() as memory:
        kept = work()
    del kept
    return memory.peak


def order(first: float, second: float, factor: float = 2.0) -> float:
    """The power of n that something grows with, from its amounts at n and at n · factor."""
    return math.log(second / first) / math.log(factor)
