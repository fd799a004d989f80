"""The mask and the bias of a call as dense tables, one entry for each pair."""

from collections.abc import Callable

import torch
from torch import Tensor

from regard.engine.request import Request
from regard.spec.plane import Pairs

PAIRS = 1 << 22  # pairs computed at once


def visible(request: Request, most: int | None = None) -> Tensor:
    """(batch or 1, head or 1, query, key) of bools, True where a pair is visible."""
    return _table(request, request.mask.visible, most)


def added(request: Request, most: int | None = None) -> Tensor:
    """(batch or 1, head or 1, query, key) of what is added to the scores."""

    def values(pairs: Pairs) -> Tensor:
        total = torch.zeros((1, 1), dtype=request.dtype, device=request.query.device)
        for term in () if request.bias is None else request.bias.terms():
            total = total + term.values(pairs)
        return total

    return _table(request, values, most)


def _table(request: Request, entries_of: Callable[[Pairs], Tensor], most: int | None) -> Tensor:
    """By blocks of rows; refused if there are more than `most` entries."""
    plane = request.plane
    height = max(1, PAIRS // max(1, plane.keys))
    blocks: list[Tensor] = []
    for first in range(0, max(1, plane.queries), height):
        rows = slice(first, min(plane.queries, first + height))
        part = entries_of(plane.pairs(rows, slice(0, plane.keys)))
        part = part[(None,) * (5 - part.ndim)]
        heads = (1, 1) if part.shape[1:3] == (1, 1) else (plane.kv_heads, plane.group)
        part = part.expand(-1, *heads, rows.stop - rows.start, plane.keys).flatten(1, 2)
        entries = part.shape[0] * part.shape[1] * plane.queries * plane.keys
        if most is not None and entries > most:
            raise ValueError(f"written out it has {entries:,} entries, more than {most:,}")
        blocks.append(part)
    batch, count = (max(part.shape[axis] for part in blocks) for axis in (0, 1))
    return torch.cat([part.expand(batch, count, -1, -1) for part in blocks], -2)
