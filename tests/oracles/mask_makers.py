"""Makers of masks for generated calls: every kind, narrow ones, and trees of & | ~."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard import masks
from tests.oracles.draws import Draw, Sizes

Maker = Callable[[Draw, Sizes], Any]


def mask_of(draw: Draw, size: Sizes) -> Any:
    """A mask of up to three levels, or one of the short forms."""
    kind = draw.pick("short", "leaf", "leaf", "narrow", "tree", "tree", "tree")
    if kind == "short":
        leading = [axis if draw.often(0.7) else 1 for axis in size.leading]
        return draw.pick(None, "causal", draw.chance(0.6, *leading, size.heads, size.queries, size.keys))
    if kind == "narrow":
        found = narrow(draw, size)
        return found & mask_leaf(draw, size) if draw.often(0.2) else found
    return tree(draw, size, 0 if kind == "leaf" else 3)


def tree(draw: Draw, size: Sizes, depth: int) -> masks.Mask:
    if depth == 0 or draw.often(0.25):
        found = mask_leaf(draw, size)
        return ~found if draw.often(0.15) else found
    left, right = tree(draw, size, depth - 1), tree(draw, size, depth - 1)
    found = left & right if draw.often(0.4) else left | right
    return ~found if draw.often(0.15) else found


def mask_leaf(draw: Draw, size: Sizes) -> masks.Mask:
    found: masks.Mask = MASKS[draw.pick(*MASKS)](draw, size)
    return found


def narrow(draw: Draw, size: Sizes) -> masks.Mask:
    """One or a few visible keys a row."""
    shape = (draw.pick(1, size.batch), draw.pick(1, size.heads), size.queries, size.keys)
    one = torch.zeros(shape, dtype=torch.bool)
    if size.keys:
        one.scatter_(-1, draw.integers(0, size.keys, *shape[:-1], 1), True)
    found: masks.Mask = draw.pick(
        masks.Window(0, 0),
        masks.Window(1, 0),
        masks.Window(2, -2),
        masks.Dilated(1, 2),
        masks.Dilated(3, 4),
        masks.Dense(one),
        masks.Dense(draw.chance(0.1, *shape)),
    )
    return found


def window(draw: Draw, size: Sizes) -> masks.Mask:
    before, after = draw.pick(
        (3, 2), (4, -1), (-1, 5), (None, 3), (2, None), (None, None), (0, 0), (100, 0), (None, -2)
    )
    return masks.Window(before, after)


def prefix(draw: Draw, size: Sizes) -> masks.Mask:
    return masks.Prefix(draw.pick(draw.random.randint(-1, size.keys + 2), draw.integers(0, size.keys + 1, size.batch)))


def documents(draw: Draw, size: Sizes) -> masks.Mask:
    def ids(length: int, kinds: int) -> Tensor:
        found = draw.integers(0, kinds, *draw.pick((), (size.batch,)), length)
        return found.sort(-1).values if draw.often(0.5) else found

    kind = draw.pick("own", "rows", "positions")
    if size.low >= 0 and size.high <= 200 and kind != "rows":
        places = max(size.high, size.queries + 1)  # as many as queries would be one per row
        own = kind == "own"
        return masks.Documents(ids(max(size.keys, places if own else 0), 3), None if own else ids(places, 4))
    return masks.Documents(ids(size.keys, 3), ids(size.queries, 4))


def blocks(draw: Draw, size: Sizes) -> masks.Mask:
    side = draw.pick(1, 2, 3, 5)
    if size.low < 0 or size.high > 200:
        return masks.Full()
    shape = (1 + max(size.high - 1, 0) // side, 1 + max(size.keys - 1, 0) // side)
    lead = draw.pick((), (size.heads,), (1,), (size.batch, 1), (size.batch, size.heads))
    return masks.Blocks(side, draw.chance(0.5, *lead, *shape))


def dense(draw: Draw, size: Sizes) -> masks.Mask:
    lead = draw.pick((), (size.heads,), (1,), (size.batch, 1), (size.batch, size.heads))
    rows, columns = draw.pick((size.queries, size.keys), (size.queries, size.keys), (1, size.keys), (size.queries, 1))
    return masks.Dense(draw.chance(draw.pick(0.2, 0.5, 0.8), *lead, rows, columns))


def bigbird(draw: Draw, size: Sizes) -> masks.Mask:
    if size.low < 0 or size.high > 200:
        return masks.local(5)
    return masks.bigbird(max(size.high, size.keys, 1), 3, random=1, seed=draw.seed, causal=draw.often(0.5))


MASKS: dict[str, Maker] = {
    "full": lambda draw, size: masks.Full(),
    "causal": lambda draw, size: masks.Causal(),
    "window": window,
    "dilated": lambda draw, size: masks.Dilated(*draw.pick((1, 1), (3, 2), (5, 3), (7, 1))),
    "global": lambda draw, size: masks.Global(draw.integers(0, size.keys + 2, draw.pick(1, 3))),
    "prefix": prefix,
    "documents": documents,
    "lengths": lambda draw, size: masks.Lengths(draw.integers(0, size.keys + 1, draw.pick(1, size.batch))),
    "blocks": blocks,
    "dense": dense,
    "where": lambda draw, size: masks.Where(lambda b, h, i, j: (i * 3 + j + b + h) % 4 != 0),
    "row where": lambda draw, size: masks.RowWhere(lambda b, h, row, column: (row + 2 * column + h) % 3 != b % 2),
    "longformer": lambda draw, size: masks.longformer(3, [0, 4], draw.pick(1, 2)),
    "bigbird": bigbird,
}
