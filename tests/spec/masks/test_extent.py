"""The sizes masks suggest, and where queries stand when nobody says."""

import re

import pytest
import torch

from regard.spec import masks
from regard.spec.masks import Mask
from regard.spec.masks.extent import Extent, plane_of, query_span, starts_of
from regard.spec.masks.functions import FlexBlocks
from regard.spec.plane import Plane

table = torch.ones(2, 3, 5, 7, dtype=torch.bool)


@pytest.mark.parametrize(
    "mask, extent",
    [
        (masks.Causal(), Extent()),
        (masks.Lengths([3, 5]), Extent(batch=2, keys=5)),
        (masks.Lengths([]), Extent(batch=0)),
        (masks.Prefix(3), Extent()),
        (masks.Prefix([3, 5]), Extent(batch=2)),
        (masks.Documents([0, 1, 1]), Extent(queries=3, keys=3)),
        (masks.Documents([[0, 1, 1]] * 2, [0, 1]), Extent(batch=2, queries=2, keys=3)),
        (masks.Blocks(4, table), Extent(2, 3, 20, 28)),
        (masks.Dense(table), Extent(2, 3, 5, 7)),
        (masks.Dense(table[:, :1, :1]), Extent(2, 1, 0, 7)),
        (FlexBlocks((2, 4), table.to(torch.int8), lambda b, h, i, j: i == j, (9, 27)), Extent(2, 3, 9, 27)),
        (masks.Causal() & ~masks.Lengths([3, 5]) | masks.Dense(table[0]), Extent(2, 3, 5, 7)),
    ],
)
def test_extent(mask: Mask, extent: Extent) -> None:
    assert mask.extent == extent


def test_sizes_come_from_the_call_first() -> None:
    def sizes(plane: Plane) -> tuple[int, int, int, int, list[int]]:
        return plane.batch, plane.heads, plane.queries, plane.keys, plane.starts.tolist()

    lengths = masks.Lengths([3, 5])
    assert sizes(plane_of(lengths)) == (2, 1, 5, 5, [0])
    assert sizes(plane_of(lengths, 7)) == (2, 1, 7, 7, [0])
    assert sizes(plane_of(lengths, keys=7)) == (2, 1, 7, 7, [0])
    assert sizes(plane_of(masks.Causal(), 3, 7, 2, 5)) == (2, 5, 3, 7, [4])
    assert sizes(plane_of(masks.Causal(), 3, query_start=torch.tensor([1, -2]))) == (2, 1, 3, 3, [1, -2])


@pytest.mark.parametrize(
    "mask, sizes, text",
    [
        (masks.Causal(), (), "Causal() fits any number of queries; say how many, as in pairs(1024)"),
        (masks.Causal(), (-1,), "queries must be at least 0, got -1"),
        (
            masks.Causal(),
            (5, 3),
            "query_start is ambiguous: 5 queries, 3 keys, and there are more queries than keys; pass query_start=0 "
            "if the first query stands at the first key, or the position of the first query "
            "(an int, or one per batch row)",
        ),
        (masks.Causal() & masks.Lengths([3]), (2, 5), "2 queries, 5 keys, and the keys have Lengths; pass query_start"),
        (masks.Dense(table), (5, 11), "mask must broadcast to (batch, head, query, key) = (2, 3, 5, 11)"),
    ],
)
def test_what_cannot_be_guessed_is_refused(mask: Mask, sizes: tuple[int, ...], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        mask.pairs(*sizes)


def test_a_guess_that_does_not_matter_is_no_guess() -> None:
    assert masks.Full().pairs(5, 3) == 15
    assert masks.Lengths([3]).pairs(2, 5) == 6


@pytest.mark.parametrize(
    "start, error, text",
    [
        (1.5, TypeError, "query_start must be an int, got float"),
        (torch.tensor([1.5]), ValueError, "integers for each of the 2 batch rows, got float32 of shape (1,)"),
        (torch.tensor([1, 2, 3]), ValueError, "integers for each of the 2 batch rows, got int64 of shape (3,)"),
    ],
)
def test_wrong_starts(start: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        starts_of(start, 3, 5, 2, masks.Causal(), True)


def test_query_span() -> None:
    starts = torch.tensor([4, -2])
    assert query_span(Plane(2, 1, 1, 5, 3, starts)) == (-2, 9)
    assert query_span(Plane(2, 1, 1, 0, 3, starts)) == (0, 0)
    assert query_span(Plane(0, 1, 1, 5, 3, starts[:0])) == (0, 0)
