"""Previews: coarse cells estimated from a few of their rows before the pass over all pairs, thumbnails of heads, and
the strongest cells of a head."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch

from regard.inspection.matrix.reductions import PooledGrid
from regard.map.head_view import HeadView
from regard.map.jobs import Stop
from regard.map.levels import BASE, TILE, Bytes, Levels
from regard.map.pyramid import Planes

ROWS = 2  # of each cell
THUMBNAIL_ROWS = 8  # of each cell of a thumbnail
TOGETHER = 128  # rows that are computed at once: each needs all of its keys
SMALL = 1 << 24  # pairs of a head that are computed without waiting for the long pass
SIZES = (8, 16, 32, 64, 128, 256)  # of thumbnails


@cache
def sampled(first: int, past: int, count: int = ROWS) -> tuple[int, ...]:
    """Up to `count` rows of first … past − 1, spread evenly but not regularly, so that no stripe is missed."""
    if past - first <= count:
        return tuple(range(first, past))
    draw = torch.Generator().manual_seed(first * 0x9E3779B1 + past)
    parts = [first + (past - first) * part // count for part in range(count + 1)]
    shares = torch.rand(count, generator=draw, device="cpu", dtype=torch.float32).tolist()
    return tuple(low + int(share * (high - low)) for low, high, share in zip(parts, parts[1:], shares, strict=False))


def preview_grid(head_view: HeadView, rows: slice, side: int, stop: Stop, count: int = ROWS) -> PooledGrid:
    """Rows of cells over all keys, from `count` rows of each."""
    cells = [sampled(first, min(rows.stop, first + side), count) for first in range(rows.start, rows.stop, side)]
    chosen = [row for cell in cells for row in cell]
    owner = torch.tensor([number for number, cell in enumerate(cells) for _ in cell], device="cpu", dtype=torch.int64)
    everything = slice(0, head_view.keys)
    size = (len(cells), -(-head_view.keys // side))
    total, largest = torch.zeros(2, *size, dtype=torch.float64, device="cpu")
    pairs = torch.zeros(size, dtype=torch.int64, device="cpu")
    for start in range(0, len(chosen), TOGETHER):
        stop.check()
        some = chosen[start : start + TOGETHER]
        own = owner[start : start + TOGETHER]
        part = head_view.sample(some, everything, side)
        total.index_add_(0, own, part.sum.double())
        pairs.index_add_(0, own, part.pairs.long())
        largest.scatter_reduce_(0, own.view(-1, 1).expand(part.max.shape), part.max.double(), "amax")
    return PooledGrid(total, largest, pairs)


class CoarseView(NamedTuple):
    """All of a head in cells of `side`: bytes of mean and max, and whether they are exact."""

    side: int
    mean: Bytes
    max: Bytes
    exact: bool


def overview(
    head_view: HeadView, levels: Levels, size: int, planes: Planes | None, stop: Stop, rows: int = THUMBNAIL_ROWS
) -> CoarseView:
    """The square of tile 0 in size × size cells, as far as the head goes."""
    side = levels.side(0) * TILE // size
    everything = (slice(0, levels.queries), slice(0, levels.keys))
    if planes is not None and side >= BASE:
        cells = tuple(slice(0, -(-count // side)) for count in (levels.queries, levels.keys))
        mean, largest = (planes.read(f"{name}.{side}", cells[0], cells[1]) for name in ("mean", "max"))
        return CoarseView(side, mean, largest, True)
    if levels.queries * levels.keys <= SMALL or side <= rows:
        return CoarseView(side, *levels.coded(head_view.grid(*everything, side)), True)
    return CoarseView(side, *levels.coded(preview_grid(head_view, everything[0], side, stop, rows)), False)


def strongest(head_view: HeadView, view: CoarseView, count: int, stop: Stop) -> list[dict[str, Any]]:
    """The largest weight times visible keys of the `count` strongest cells of an overview, the largest first."""
    order = np.argsort(view.max, axis=None, kind="stable")[::-1][:count]
    strongest_cells = []
    for number in order.tolist():
        stop.check()
        y, x = divmod(number, view.max.shape[1])
        if view.max[y, x] == 0:
            break
        rows, columns = (
            slice(at * view.side, min(most, (at + 1) * view.side))
            for at, most in ((y, head_view.queries), (x, head_view.keys))
        )
        cells = head_view.grid(rows, columns, 1).max
        at, own = divmod(int(cells.argmax()), cells.shape[1])
        q, k = rows.start + at, columns.start + own
        relative, visible = float(cells[at, own]), int(head_view.seen(slice(q, q + 1))[0])
        strongest_cells.append((relative, {"q": q, "k": k, "weight": relative / max(1, visible), "visible": visible}))
    return [cell for _, cell in sorted(strongest_cells, key=lambda pair: -pair[0])]
