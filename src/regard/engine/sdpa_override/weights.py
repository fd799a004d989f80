"""The weights that nn.MultiheadAttention returns on request: query × key of them, after dropout."""

import torch
from torch import Tensor

from regard.engine.request import Request
from regard.engine.schedule import Tile
from regard.engine.tiled import logits_of

CELLS = 1 << 22  # pairs over all batch rows and heads at a time


def returned_weights(asked: Request, average: bool) -> Tensor:
    """(batch, head, query, key), or their mean over heads, (batch, query, key), which holds no more than that at once
    unless gradients are wanted. There must be no sink: torch shows it as one more key."""
    assert asked.sink is None
    plane, logits = asked.plane, logits_of(asked)
    operands = tuple(operand.tensor for operand in logits.operands)
    height = max(1, CELLS // max(1, plane.batch * plane.heads * plane.keys))
    strips = []
    for start in range(0, max(1, plane.queries), height):
        rows = slice(start, min(plane.queries, start + height))
        tile = Tile(plane, rows, slice(0, plane.keys), mixed=True)
        x, _ = logits.tile(tile, logits.cut(operands, tile))
        unseen = (x == -torch.inf).all(-1, keepdim=True)
        weights = torch.where(unseen, 0.0, torch.where(unseen, 0.0, x).softmax(-1))
        if asked.dropout is not None:
            weights = weights * asked.dropout.factors(tile.pairs, weights.dtype)
        weights = weights.flatten(1, 2)
        strips.append((weights.mean(1) if average else weights).to(asked.query.dtype))
    return strips[0] if len(strips) == 1 else torch.cat(strips, -2)
