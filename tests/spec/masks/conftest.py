"""Random masks of every kind, on random planes that they fit."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from torch import Tensor

from regard.spec import masks
from regard.spec.masks import Mask
from regard.spec.masks.extent import query_span
from regard.spec.masks.functions import FlexBlocks
from regard.spec.plane import Pairs, Plane

small = st.integers(-4, 12)


def table(draw: DrawFn, *size: int) -> Tensor:
    """Bools, from nearly all hidden to nearly all visible, in patches so that whole tiles agree."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    share = draw(st.sampled_from([0.03, 0.5, 0.97]))
    patches = torch.rand(size, generator=generator) < share
    if draw(st.booleans()) and patches.ndim > 1:
        patches[..., : size[-2] // 2, : size[-1] // 3] = True
        patches[..., size[-2] // 2 :, size[-1] // 2 :] = False
    return patches


def broadcast(draw: DrawFn, *size: int) -> tuple[int, ...]:
    """The size with some axes 1, and some in front left out."""
    chosen = tuple(draw(st.sampled_from([1, length])) for length in size)
    return chosen[draw(st.integers(0, 2)) :]


def per_row(draw: DrawFn, plane: Plane, values: SearchStrategy[int]) -> Tensor:
    """One integer, or one per batch row."""
    count = draw(st.sampled_from([1, plane.batch]))
    return torch.tensor(draw(st.lists(values, min_size=count, max_size=count)), dtype=torch.int64)


def ids(draw: DrawFn, batch: int, length: int) -> Tensor:
    """Document numbers: packed, packed under shuffled names, or in any order."""
    size = (draw(st.sampled_from([1, batch])), length)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    drawn = torch.randint(0, draw(st.integers(1, 5)), size, generator=generator)
    order = draw(st.sampled_from(["packed", "renamed", "any"]))
    if order == "packed":
        drawn = drawn.sort(-1).values
    elif order == "renamed":
        drawn = torch.randperm(5, generator=generator)[drawn.sort(-1).values]
    return drawn[0] if size[0] == 1 and draw(st.booleans()) else drawn


def documents(draw: DrawFn, plane: Plane) -> Mask:
    first, stop = query_span(plane)
    length = max(plane.key_start + plane.keys, stop) + draw(st.integers(0, 3))
    key_ids = ids(draw, plane.batch, length)
    how = draw(st.sampled_from(["none", "rows", "positions"])) if first >= 0 else "rows"
    if how == "none":
        return masks.Documents(key_ids)
    return masks.Documents(key_ids, ids(draw, plane.batch, plane.queries if how == "rows" else length))


def blocks(draw: DrawFn, plane: Plane) -> Mask:
    first, stop = query_span(plane)
    size = draw(st.integers(1, 9))
    rows, columns = (max(1, -(-end // size)) for end in (stop, plane.key_start + plane.keys))
    if first < 0:
        return masks.Full()
    lead = broadcast(draw, plane.batch, plane.heads)
    return masks.Blocks(size, table(draw, *lead, rows, columns))


def row_blocks(draw: DrawFn, plane: Plane) -> Mask:
    size = (draw(st.integers(1, 9)), draw(st.integers(1, 9)))
    rows, columns = (max(1, -(-end // side)) for end, side in zip((plane.queries, plane.keys), size, strict=True))
    lead = (draw(st.sampled_from([1, plane.batch])), draw(st.sampled_from([1, plane.heads])))
    kinds = table(draw, *lead, rows, columns).to(torch.int8) + table(draw, *lead, rows, columns).to(torch.int8)
    return FlexBlocks(size, kinds, draw(st.sampled_from(FUNCTIONS)), (plane.queries, plane.keys))


FUNCTIONS: list[Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = [
    lambda b, h, i, j: (i - j) % (h + 2) == 0,
    lambda b, h, i, j: j >= b * 3,
    lambda b, h, i, j: i > 7,
    lambda b, h, i, j: (i + j + b) % 3 != h % 3,
]


@st.composite
def leaves(draw: DrawFn, plane: Plane) -> Mask:
    """A mask of any kind that fits the plane."""
    kind = draw(st.sampled_from(KINDS))
    match kind:
        case "window":
            before, after = draw(st.none() | small), draw(st.none() | small)
            if before is not None and after is not None:
                after = max(after, -before)
            return masks.Window(before, after)
        case "dilated":
            return masks.Dilated(draw(st.sampled_from([1, 3, 5, 11])), draw(st.integers(1, 5)))
        case "global":
            return masks.Global(draw(st.lists(st.integers(-5, 50), max_size=6)))
        case "global range":
            start = draw(small)
            return masks.Global(range(start, start + draw(st.integers(0, 30))))
        case "prefix":
            value = st.integers(-2, 50)
            return masks.Prefix(draw(value) if draw(st.booleans()) else per_row(draw, plane, value))
        case "lengths":
            return masks.Lengths(per_row(draw, plane, st.integers(0, plane.key_start + plane.keys)))
        case "documents":
            return documents(draw, plane)
        case "blocks":
            return blocks(draw, plane)
        case "dense":
            size = broadcast(draw, plane.batch, plane.heads)
            tail = [draw(st.sampled_from([1, length])) for length in (plane.queries, plane.keys)]
            return masks.Dense(table(draw, *size, *tail))
        case "where":
            return masks.Where(draw(st.sampled_from(FUNCTIONS)))
        case "row where":
            return masks.RowWhere(draw(st.sampled_from(FUNCTIONS)))
        case "row blocks":
            return row_blocks(draw, plane)
    return masks.Full() if kind == "full" else masks.Causal()


KINDS = ["full", "causal", "window", "dilated", "global", "global range", "prefix", "lengths", "documents"]
KINDS += ["blocks", "dense", "where", "row where", "row blocks"]


@st.composite
def compositions(draw: DrawFn, plane: Plane, depth: int = 3) -> Mask:
    """Leaves joined with `&`, `|` and `~` up to this depth."""
    how = draw(st.sampled_from(["leaf", "and", "or", "not"])) if depth else "leaf"
    if how == "leaf":
        return draw(leaves(plane))
    left = draw(compositions(plane, depth - 1))
    if how == "not":
        return ~left
    right = draw(compositions(plane, depth - 1))
    return left & right if how == "and" else left | right


@st.composite
def planes(draw: DrawFn) -> Plane:
    """Any sizes from nothing to 40, queries anywhere, also one place per batch row, keys not always from 0."""
    batch = draw(st.sampled_from([1, 1, 2, 3, 0]))
    length = st.integers(0, 40)
    place = st.integers(-6, 45)
    count = draw(st.sampled_from([1, batch]))
    starts = torch.tensor(draw(st.lists(place, min_size=count, max_size=count)), dtype=torch.int64)
    heads = draw(st.sampled_from([(1, 1), (2, 1), (1, 3), (2, 3)]))
    return Plane(batch, *heads, draw(length), draw(length), starts, draw(st.sampled_from([0, 0, 7])))


@st.composite
def cases(draw: DrawFn) -> tuple[Mask, Plane]:
    """A mask and a plane it fits."""
    plane = draw(planes())
    mask = draw(compositions(plane))
    mask.check(plane)
    return mask, plane


def seen(mask: Mask, pairs: Pairs) -> Tensor:
    """Every pair of the rectangle, (batch, head, query, key)."""
    plane = pairs.plane
    size = (plane.batch, plane.kv_heads, plane.group, len(pairs.row), len(pairs.column))
    return mask.visible(pairs).expand(size).flatten(1, 2)


@pytest.fixture(scope="session", name="cases")
def cases_fixture() -> SearchStrategy[tuple[Mask, Plane]]:
    """See `cases` above."""
    return cases()


@pytest.fixture(scope="session", name="planes")
def planes_fixture() -> SearchStrategy[Plane]:
    """See `planes` above."""
    return planes()


@pytest.fixture(scope="session", name="compositions")
def compositions_fixture() -> Callable[..., SearchStrategy[Mask]]:
    """See `compositions` above."""
    return compositions


@pytest.fixture(scope="session", name="seen")
def seen_fixture() -> Callable[[Mask, Pairs], Tensor]:
    """See `seen` above."""
    return seen
