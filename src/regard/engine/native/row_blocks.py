"""Masks without a closed form, such as `Where`: evaluated by row block, and only where runs leave them open."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial

import torch
from torch import Tensor

from regard.engine.request import Request
from regard.engine.tiled.tiles import Rows
from regard.spec import masks
from regard.spec.biases import Bias, Dense, Total
from regard.spec.masks.runs import EMPTY, FULL
from regard.spec.plane import Plane

CELLS = 1 << 22  # pairs that a row block may hold, over all batch rows and heads
LOOK = 1 << 20  # pairs that a function is asked about at once: it may hold several int64 for each
HEIGHT = 48  # least rows of a row block: the keys are packed anew for each


@dataclass(frozen=True, eq=False, repr=False)
class RowBlockMask(masks.Dense):
    """The mask of some rows as a table that can be made again: those of all row blocks would hold queries × keys."""

    again: Callable[[], Tensor]


def by_row_blocks(request: Request, attention: Callable[[Request], Rows]) -> Rows:
    """The rows of a request whose mask becomes a table, a row block of queries at a time."""
    whole = replace(request, **{name: getattr(request, name).to(request.dtype) for name in ("query", "key", "value")})
    found = [attention(block) for block in _row_blocks(whole)]
    return Rows(**{f.name: torch.cat([getattr(rows, f.name) for rows in found], 3) for f in fields(Rows)})


def _row_blocks(request: Request) -> Iterator[Request]:
    plane = request.plane
    height = height_of(plane)
    for first in range(0, max(1, plane.queries), height):
        rows = slice(first, min(first + height, plane.queries))
        table = partial(_table, request.mask, plane, rows)
        yield replace(
            request,
            query=request.query[..., rows, :],
            mask=RowBlockMask(table(), table),
            bias=None if request.bias is None else _row_bias(request.bias, rows),
            plane=replace(plane, queries=rows.stop - rows.start, starts=plane.starts + first),
        )


def height_of(plane: Plane) -> int:
    """Rows of a row block."""
    return max(HEIGHT, CELLS // max(1, plane.batch * plane.heads * plane.keys) // HEIGHT * HEIGHT)


def _table(mask: masks.Mask, plane: Plane, rows: slice) -> Tensor:
    """The mask of these rows, (batch or 1, head or 1, rows, keys). The function runs on mixed runs only."""
    table = torch.zeros((1, 1, rows.stop - rows.start, plane.keys), dtype=torch.bool, device="cpu")
    if table.numel() == 0 or plane.batch * plane.heads == 0:
        return table
    blocks = replace(plane.row_blocks(rows.stop - rows.start), start=rows.start, stop=rows.stop)
    for run in mask.runs(blocks).lists(plane.key_start)[0]:
        if run.kind == EMPTY:
            continue
        columns = slice(run.start, run.stop)
        if run.kind == FULL:
            table[..., columns] = True
            continue
        width = max(1, LOOK // (plane.batch * plane.heads * (rows.stop - rows.start)))
        for first in range(run.start, run.stop, width):
            piece = slice(first, min(first + width, run.stop))
            seen = _four_axes(mask.visible(plane.pairs(rows, piece)), plane, rows, piece)
            if seen.shape[0] > table.shape[0] or seen.shape[1] > table.shape[1]:
                batch_heads = max(seen.shape[0], table.shape[0]), max(seen.shape[1], table.shape[1])
                table = table.expand(*batch_heads, -1, -1).clone()
            table[..., piece] = seen
    return table


def _four_axes(seen: Tensor, plane: Plane, rows: slice, columns: slice) -> Tensor:
    """(…, query, key) with any axes missing or 1, as (batch or 1, head or 1, query, key)."""
    seen = seen.expand(*seen.shape[:-2], rows.stop - rows.start, columns.stop - columns.start)
    seen = seen[(None,) * (5 - seen.ndim)]
    if seen.shape[1] * seen.shape[2] > 1:
        seen = seen.expand(-1, plane.kv_heads, plane.group, -1, -1)
    return seen.flatten(1, 2)


def _row_bias(bias: Bias, rows: slice) -> Bias:
    """The same bias of these query rows; only a dense one is stored by row."""
    terms = [
        Dense(term.tensor[..., rows, :]) if isinstance(term, Dense) and term.tensor.shape[-2] > 1 else term
        for term in bias.terms()
    ]
    return terms[0] if len(terms) == 1 else Total(tuple(terms))
