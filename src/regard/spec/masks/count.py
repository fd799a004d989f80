"""The exact number of visible pairs, without visiting those that a closed form settles."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.spec.masks.runs import FULL, MIXED
from regard.spec.plane import Plane, Strips

if TYPE_CHECKING:
    from regard.spec.masks.base import Mask

EDGES = 1 << 17  # edges of runs that are held at once
ROWS = 32_768  # most rows whose runs are computed at once
HEIGHT = 256  # rows that are looked at together where the runs leave something open
CELLS = 1 << 22  # pairs looked at at once


def count_visible(mask: "Mask", plane: Plane) -> int:
    """Visible pairs over all batch rows and query heads."""
    return int(count_cells(mask, plane, [0, plane.queries], [0, plane.keys]).sum())


def count_cells(mask: "Mask", plane: Plane, rows: Sequence[int], columns: Sequence[int]) -> Tensor:
    """Visible pairs of every cell between rising bounds of rows and columns: (batch, head, row cell, column cell)."""
    counts = torch.zeros((plane.batch, plane.heads, len(rows) - 1, len(columns) - 1), dtype=torch.int64, device="cpu")
    if counts.numel() == 0 or plane.queries == 0 or plane.keys == 0:
        return counts
    # strips of one row: nearly every mask is then settled without looking
    size = mask.runs(Strips(plane, 1, 0, 1)).edges.numel()
    step = max(HEIGHT, min(ROWS, EDGES // size))
    for cell, (top, bottom) in enumerate(pairwise(rows)):
        for first in range(top, bottom, step):
            counts[:, :, cell] += _in_rows(mask, plane, first, min(first + step, bottom), columns)
    return counts


def _in_rows(mask: "Mask", plane: Plane, first: int, stop: int, columns: Sequence[int]) -> Tensor:
    """(batch, head, column cell)."""
    runs = mask.runs(Strips(plane, 1, first, stop))
    start, end = (edges - plane.key_start for edges in (runs.edges[..., :-1], runs.edges[..., 1:]))
    full, mixed = runs.kinds == FULL, (runs.kinds == MIXED) & (end > start)
    total = torch.zeros((plane.batch, plane.heads, len(columns) - 1), dtype=torch.int64, device="cpu")
    spans: list[tuple[Tensor | int, Tensor | int]] = [(0, plane.keys)]  # where the runs are believed
    if bool(mixed.any()):
        low = torch.where(mixed, start, plane.keys).amin(-1).flatten(0, 1).amin(0)
        high = torch.where(mixed, end, 0).amax(-1).flatten(0, 1).amax(0)
        for top in range(0, stop - first, HEIGHT):
            block = slice(top, top + HEIGHT)
            hull = slice(int(low[block].min()), int(high[block].max()))
            if hull.start < hull.stop:
                total += _look(mask, plane, slice(first + top, min(first + top + HEIGHT, stop)), hull, columns)
            low[block], high[block] = min(hull.start, hull.stop), hull.stop
        spans = [(0, low.unsqueeze(-1)), (high.unsqueeze(-1), plane.keys)]
    for cell, (left, right) in enumerate(pairwise(columns)):
        for lower, upper in spans:
            width = end.clamp(max=upper).clamp(max=right) - start.clamp(min=lower).clamp(min=left)
            total[..., cell] += (width.clamp(min=0) * full).sum((-1, -2))
    return total


def _look(mask: "Mask", plane: Plane, rows: slice, hull: slice, columns: Sequence[int]) -> Tensor:
    """Count pair by pair in a rectangle that is cut to bounded pieces."""
    total = torch.zeros((plane.batch, plane.kv_heads, plane.group, len(columns) - 1), dtype=torch.int64, device="cpu")
    lanes, bounds = plane.batch * plane.heads, torch.tensor(columns[1:-1], dtype=torch.int64, device="cpu")
    width = min(hull.stop - hull.start, max(1, CELLS // lanes))
    height = max(1, CELLS // (lanes * width))
    for top in range(rows.start, rows.stop, height):
        for left in range(hull.start, hull.stop, width):
            pairs = plane.pairs(slice(top, min(top + height, rows.stop)), slice(left, min(left + width, hull.stop)))
            visible = mask.visible(pairs)
            visible = visible[(None,) * (5 - visible.ndim)].expand(-1, -1, -1, len(pairs.row), len(pairs.column))
            cell = torch.searchsorted(bounds, pairs.column.cpu(), right=True)
            total += torch.zeros((*visible.shape[:3], len(columns) - 1), dtype=torch.int64, device="cpu").index_add_(
                3, cell, visible.sum(3).cpu()
            )
    return total.flatten(1, 2)
