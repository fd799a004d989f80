"""Visible: which pairs of a call take part, without computing a weight."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from regard.engine.request import Request
from regard.engine.tiled.engine import lower_tiled
from regard.engine.tiled.tiles import Tile
from regard.spec.biases import Dense as DenseBias
from regard.spec.masks import Dense
from regard.spec.scores import Modified, Score, SoftCapped

CELLS = 1 << 22  # pairs that are looked at together
LOWEST = -9e3  # models write −10,000, −65,504 or the lowest number of their format where they mean −inf


def plain(request: Request) -> Request:
    """The same call with pairs hidden that a tensor of a bias all but hides."""
    for term in () if request.bias is None else request.bias.terms():
        if isinstance(term, DenseBias) and term.tensor.numel() and bool(term.tensor.amin() <= LOWEST):
            request = replace(request, mask=request.mask & Dense(term.tensor > LOWEST))
    return request


def alike(one: Request, other: Request) -> bool:
    """Whether two calls are certain to have the same visible pairs."""
    sizes = (one.plane.batch, one.plane.heads, one.plane.queries, one.plane.keys, one.plane.key_start)
    others = (other.plane.batch, other.plane.heads, other.plane.queries, other.plane.keys, other.plane.key_start)
    if sizes != others or not torch.equal(one.plane.starts, other.plane.starts) or one.mask != other.mask:
        return False
    return not any(_written(each.score) or (each.bias is not None and each.bias.hides) for each in (one, other))


def looks(request: Request) -> Iterator[tuple[slice, Tensor]]:
    """All rows in strips, and what they see: (1 or batch, 1 or head, row, key)."""
    plane = request.plane
    lanes = plane.batch * (plane.heads if _written(request.score) else 1)
    step = max(1, CELLS // max(1, lanes * plane.keys))
    for first in range(0, plane.queries, step):
        rows = slice(first, min(plane.queries, first + step))
        yield rows, visible(request, rows)


def visible(request: Request, rows: slice) -> Tensor:
    """What some rows see, (1 or batch, 1 or head, row, key)."""
    plane, columns = request.plane, slice(0, request.plane.keys)
    if _written(request.score):  # its function may hide pairs too
        kernel, _, operands = lower_tiled(request)
        tile = Tile(plane, rows, columns, mixed=True)
        seen = kernel.logits.tile(tile, kernel.logits.cut(operands, tile))[0] != -torch.inf
    else:
        pairs = plane.pairs(rows, columns)
        seen = request.mask.visible(pairs)
        for term in () if request.bias is None or not request.bias.hides else request.bias.terms():
            seen = seen & (term.values(pairs) != -torch.inf)
    return headed(seen, request).expand(-1, -1, rows.stop - rows.start, plane.keys)


def headed(tensor: Tensor, request: Request) -> Tensor:
    """What broadcasts to (batch, kv head, group, row, key), with one head axis."""
    tensor = tensor[(None,) * (5 - tensor.ndim)]
    if tensor.shape[1:3] != (1, 1):
        tensor = tensor.expand(-1, request.plane.kv_heads, request.plane.group, -1, -1)
    return tensor.flatten(1, 2)


def _written(score: Score) -> bool:
    """Whether a score holds a function of the user's."""
    return isinstance(score, Modified) or (isinstance(score, SoftCapped) and _written(score.score))
