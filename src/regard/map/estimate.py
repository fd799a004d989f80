"""Estimate: what coarse cells look like from a few of their rows, before the long pass has been through all."""

from functools import cache

import torch

from regard.inspection.matrix.reductions import PooledGrid
from regard.map.lane import Lane
from regard.map.stop import Stop

ROWS = 2  # of each cell
TOGETHER = 128  # rows that are looked at at once: each needs all of its keys


@cache
def sampled(first: int, past: int, count: int = ROWS) -> tuple[int, ...]:
    """Up to `count` rows of first … past − 1, spread evenly but not regularly: a stripe has no chance to hide."""
    if past - first <= count:
        return tuple(range(first, past))
    draw = torch.Generator().manual_seed(first * 0x9E3779B1 + past)
    parts = [first + (past - first) * part // count for part in range(count + 1)]
    shares = torch.rand(count, generator=draw, device="cpu", dtype=torch.float32).tolist()
    return tuple(low + int(share * (high - low)) for low, high, share in zip(parts, parts[1:], shares, strict=False))


def estimated(lane: Lane, rows: slice, side: int, stop: Stop, count: int = ROWS) -> PooledGrid:
    """Rows of cells over all keys, from `count` rows of each."""
    cells = [sampled(first, min(rows.stop, first + side), count) for first in range(rows.start, rows.stop, side)]
    chosen = [row for cell in cells for row in cell]
    owner = torch.tensor([number for number, cell in enumerate(cells) for _ in cell], device="cpu", dtype=torch.int64)
    everything = slice(0, lane.keys)
    size = (len(cells), -(-lane.keys // side))
    total, largest = torch.zeros(2, *size, dtype=torch.float64, device="cpu")
    pairs = torch.zeros(size, dtype=torch.int64, device="cpu")
    for start in range(0, len(chosen), TOGETHER):
        stop.check()
        some = chosen[start : start + TOGETHER]
        own = owner[start : start + TOGETHER]
        part = lane.sample(some, everything, side)
        total.index_add_(0, own, part.sum.double())
        pairs.index_add_(0, own, part.pairs.long())
        largest.scatter_reduce_(0, own.view(-1, 1).expand(part.max.shape), part.max.double(), "amax")
    return PooledGrid(total, largest, pairs)
