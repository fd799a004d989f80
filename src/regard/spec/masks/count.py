"""Counting visible pairs: exactly, in cells, by query, or as a bound, without visiting those that runs settle.

count_visible(masks.Causal(), plane)              # all pairs
count_cells(mask, plane, [0, 64, 128], [0, 128])  # the pairs of each cell
seen_keys(mask, plane, slice(0, 64))              # the keys that each query sees
visible_pairs(mask, plane)                        # the number, or a bound where looking would take too long
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.spec.masks.runs import EMPTY, FULL, MIXED
from regard.spec.plane import Plane, RowBlocks

if TYPE_CHECKING:
    from regard.spec.biases import Bias
    from regard.spec.masks.base import Mask

EDGES = 1 << 17  # edges of runs in memory at once
ROWS = 32_768  # most rows whose runs are computed at once
HEIGHT = 256  # rows that are looked at together where the runs leave something open
CELLS = 1 << 22  # pairs looked at at once
LOOKS = 1 << 28  # pairs that are looked at before a bound has to do
ROW_EDGES = 1 << 20  # edges of runs in memory at once, for visible_pairs


def count_visible(mask: "Mask", plane: Plane) -> int:
    """Visible pairs over all batch rows and query heads."""
    return int(count_cells(mask, plane, [0, plane.queries], [0, plane.keys]).sum())


def count_cells(mask: "Mask", plane: Plane, rows: Sequence[int], columns: Sequence[int]) -> Tensor:
    """Visible pairs of every cell between rising bounds of rows and columns: (batch, head, row cell, column cell)."""
    counts = torch.zeros((plane.batch, plane.heads, len(rows) - 1, len(columns) - 1), dtype=torch.int64, device="cpu")
    if counts.numel() == 0 or plane.queries == 0 or plane.keys == 0:
        return counts
    # row blocks of one row: nearly every mask is then settled without looking
    size = mask.runs(RowBlocks(plane, 1, 0, 1)).edges.numel()
    step = max(HEIGHT, min(ROWS, EDGES // size))
    for cell, (top, bottom) in enumerate(pairwise(rows)):
        for first in range(top, bottom, step):
            counts[:, :, cell] += _in_rows(mask, plane, first, min(first + step, bottom), columns)
    return counts


def _in_rows(mask: "Mask", plane: Plane, first: int, stop: int, columns: Sequence[int]) -> Tensor:
    """(batch, head, column cell)."""
    runs = mask.runs(RowBlocks(plane, 1, first, stop))
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
    heads, bounds = plane.batch * plane.heads, torch.tensor(columns[1:-1], dtype=torch.int64, device="cpu")
    width = min(hull.stop - hull.start, max(1, CELLS // heads))
    height = max(1, CELLS // (heads * width))
    for top in range(rows.start, rows.stop, height):
        for left in range(hull.start, hull.stop, width):
            pairs = plane.pairs(slice(top, min(top + height, rows.stop)), slice(left, min(left + width, hull.stop)))
            visible = look(mask, plane, pairs.rows, pairs.columns).expand(-1, -1, -1, len(pairs.row), len(pairs.column))
            cell = torch.searchsorted(bounds, pairs.column.cpu(), right=True)
            total += torch.zeros((*visible.shape[:3], len(columns) - 1), dtype=torch.int64, device="cpu").index_add_(
                3, cell, visible.sum(3).cpu()
            )
    return total.flatten(1, 2)


def visible_pairs(mask: "Mask", plane: Plane, looks: int = LOOKS) -> tuple[int, bool]:
    """(number of visible pairs over all batch rows and heads, True), or an upper bound and False where the number could
    only be found by looking at more than `looks` pairs."""
    bound = unsettled = 0
    if plane.queries * plane.keys * plane.batch * plane.heads == 0:
        return 0, True
    step = max(1, ROW_EDGES // mask.runs(RowBlocks(plane, 1, 0, 1)).edges.numel())
    for first in range(0, plane.queries, step):  # row blocks of one row, as in count_cells
        runs = mask.runs(RowBlocks(plane, 1, first, min(first + step, plane.queries)))
        widths = runs.edges.diff(dim=-1)
        seen, open_ = widths * (runs.kinds != EMPTY), (runs.kinds == MIXED) & (widths > 0)
        bound += _total(seen, plane)
        unsettled += _total(seen * open_.any(-1, keepdim=True), plane)
    if unsettled > looks:
        return bound, False
    return count_visible(mask, plane) if unsettled else bound, True


def _total(widths: Tensor, plane: Plane) -> int:
    return int(widths.sum((-1, -2)).expand(plane.batch, plane.heads).sum())


def seen_keys(mask: "Mask", plane: Plane, rows: slice, bias: "Bias | None" = None) -> Tensor:
    """(batch, head, row): the keys that each of these queries sees. A bias counts if it hides anything."""
    runs = mask.runs(RowBlocks(plane, 1, rows.start, rows.stop))
    width = (runs.edges[..., 1:] - runs.edges[..., :-1]).clamp(min=0)
    shape = (plane.batch, plane.heads, rows.stop - rows.start)
    if bias is None and not bool(((runs.kinds == MIXED) & (width > 0)).any()):
        return (width * (runs.kinds == FULL)).sum(-1).expand(shape)
    step = max(1, CELLS // max(1, plane.batch * plane.heads * plane.keys))
    counts = []
    for top in range(rows.start, rows.stop, step):
        bottom = min(top + step, rows.stop)
        seen = look(mask, plane, slice(top, bottom), slice(0, plane.keys), bias)
        size = (plane.batch, plane.kv_heads, plane.group, bottom - top, plane.keys)
        counts.append(seen.expand(size).sum(-1).flatten(1, 2).cpu())
    return torch.cat(counts, -1).expand(shape)


def hull(mask: "Mask", plane: Plane, rows: slice, columns: slice) -> slice:
    """The part of these columns from the first to the last key that any of these queries may see."""
    runs = mask.runs(RowBlocks(plane, max(1, rows.stop - rows.start), rows.start, rows.stop))
    start, stop = (
        edges.sub(plane.key_start).clamp(columns.start, columns.stop)
        for edges in (runs.edges[..., :-1], runs.edges[..., 1:])
    )
    seen = (runs.kinds != EMPTY) & (stop > start)
    if not bool(seen.any()):
        return slice(columns.start, columns.start)
    return slice(int(start[seen].min()), int(stop[seen].max()))


def look(mask: "Mask", plane: Plane, rows: slice, columns: slice, bias: "Bias | None" = None) -> Tensor:
    """Which pairs of a rectangle are visible; broadcasts to (batch, kv head, group, row, column)."""
    pairs = plane.pairs(rows, columns)
    seen = mask.visible(pairs)
    for term in () if bias is None else bias.terms():
        seen = seen & (term.values(pairs) != -torch.inf)
    return seen[(None,) * (5 - seen.ndim)]
