"""How many keys each query sees, without looking at pairs that a closed form settles."""

import torch
from torch import Tensor

from regard.spec.biases import Bias
from regard.spec.masks import Mask
from regard.spec.masks.runs import EMPTY, FULL, MIXED
from regard.spec.plane import Plane, Strips

CELLS = 1 << 22  # pairs that are looked at at once


def seen_keys(mask: Mask, plane: Plane, rows: slice, bias: Bias | None = None) -> Tensor:
    """(batch, head, row): the keys that each of these queries sees. A bias counts if it hides anything."""
    runs = mask.runs(Strips(plane, 1, rows.start, rows.stop))
    width = (runs.edges[..., 1:] - runs.edges[..., :-1]).clamp(min=0)
    lanes = (plane.batch, plane.heads, rows.stop - rows.start)
    if bias is None and not bool(((runs.kinds == MIXED) & (width > 0)).any()):
        return (width * (runs.kinds == FULL)).sum(-1).expand(lanes)
    step = max(1, CELLS // max(1, plane.batch * plane.heads * plane.keys))
    found = [_looked(mask, plane, slice(first, min(first + step, rows.stop)), bias) for first in _range(rows, step)]
    return torch.cat(found, -1).expand(lanes)


def span(mask: Mask, plane: Plane, rows: slice) -> slice:
    """The keys from the first to the last that any of these queries may see; empty if there is none."""
    return hull(mask, plane, rows, slice(0, plane.keys))


def hull(mask: Mask, plane: Plane, rows: slice, columns: slice) -> slice:
    """The part of these columns from the first to the last key that any of these queries may see."""
    strip = Strips(plane, max(1, rows.stop - rows.start), rows.start, rows.stop)
    runs = mask.runs(strip)
    start, stop = (
        edges.sub(plane.key_start).clamp(columns.start, columns.stop)
        for edges in (runs.edges[..., :-1], runs.edges[..., 1:])
    )
    seen = (runs.kinds != EMPTY) & (stop > start)
    if not bool(seen.any()):
        return slice(columns.start, columns.start)
    return slice(int(start[seen].min()), int(stop[seen].max()))


def _range(rows: slice, step: int) -> range:
    return range(rows.start, rows.stop, step)


def _looked(mask: Mask, plane: Plane, rows: slice, bias: Bias | None) -> Tensor:
    seen = look(mask, plane, rows, slice(0, plane.keys), bias)
    size = (plane.batch, plane.kv_heads, plane.group, rows.stop - rows.start, plane.keys)
    return seen.expand(size).sum(-1).flatten(1, 2).cpu()


def look(mask: Mask, plane: Plane, rows: slice, columns: slice, bias: Bias | None = None) -> Tensor:
    """Which pairs of a rectangle are visible; broadcasts to (batch, kv head, group, row, column)."""
    pairs = plane.pairs(rows, columns)
    seen = mask.visible(pairs)
    for term in () if bias is None else bias.terms():
        seen = seen & (term.values(pairs) != -torch.inf)
    return seen[(None,) * (5 - seen.ndim)]
