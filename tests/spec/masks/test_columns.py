"""Lengths, prefixes and global positions: formulas, batch rows, edges, errors."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import attend
from regard.spec import masks
from regard.spec.masks import Mask
from regard.spec.masks.columns import GROUPS
from regard.spec.masks.runs import FULL, MIXED, Run
from regard.spec.plane import Pairs, Plane

Seen = Callable[[Mask, Pairs], Tensor]

BATCH, HEADS, QUERIES, KEYS = 2, 3, 5, 7


def plane(batch: int = BATCH, queries: int = QUERIES, keys: int = KEYS, start: int = 0, key_start: int = 0) -> Plane:
    return Plane(batch, HEADS, 1, queries, keys, torch.tensor([start]), key_start)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_lengths(seen: Seen, dtype: torch.dtype) -> None:
    visible = seen(masks.Lengths(torch.tensor([0, 4], dtype=dtype)), plane().all)
    assert not bool(visible[0].any())
    assert visible[1, :, :, :4].all()
    assert not bool(visible[1, :, :, 4:].any())
    assert masks.Lengths(torch.tensor(3)) == masks.Lengths([3]), "one number is one length for all"
    assert masks.Lengths(torch.tensor(3)).pairs(7, batch=5) == 5 * 7 * 3


@pytest.mark.parametrize("p, first, second", [(3, 3, 3), ([2, 6], 2, 6), (-4, 0, 0), (99, 7, 7), ([5], 5, 5)])
def test_prefix(seen: Seen, p: int | list[int], first: int, second: int) -> None:
    assert seen(masks.Prefix(p), plane().all)[:, 1, 2].sum(-1).tolist() == [first, second]


def test_prefix_language_model() -> None:
    """Everyone sees the prefix; behind it, no one sees the future."""
    mask = masks.Causal() | masks.Prefix(3)
    assert mask.pairs(7) == 3 + 3 + 3 + 4 + 5 + 6 + 7


def test_columns_are_positions(seen: Seen) -> None:
    shard = plane(key_start=4)  # keys 4 to 10
    assert seen(masks.Lengths([6, 4]), shard.all)[:, 0, 0].sum(-1).tolist() == [2, 0]
    assert seen(masks.Prefix(6), shard.all)[:, 0, 0].sum(-1).tolist() == [2, 2]
    assert seen(masks.Global([4, 5, 11]), shard.all)[0, 0, 0].tolist() == [True, True] + [False] * 5


def test_global(seen: Seen) -> None:
    visible = seen(masks.Global([1, 5, 50, -3]), plane(batch=1, start=0).all)[0, 0]
    wanted = [[row == 1 or column in (1, 5) for column in range(KEYS)] for row in range(QUERIES)]
    assert visible.tolist() == wanted


def test_global_of_nothing(seen: Seen) -> None:
    mask = masks.Global([])
    assert not bool(seen(mask, plane().all).any())
    assert mask.runs(plane().row_blocks(2)).lists(0) == [[], [], []]


def test_global_runs() -> None:
    long = plane(batch=1, queries=40, keys=40)
    lists = masks.Global([0, 1, 2, 3, 20]).runs(long.row_blocks(4)).lists(0)
    assert lists[0] == [Run(0, 40, FULL)], "four rows that are all global"
    assert lists[1] == [Run(0, 4, FULL), Run(20, 21, FULL)]
    assert lists[5] == [Run(0, 4, FULL), Run(4, 20, MIXED), Run(20, 21, FULL), Run(21, 40, MIXED)]


def test_many_global_positions_stay_a_short_list(seen: Seen) -> None:
    """Only the widest gaps are told apart, so the list does not grow with the positions."""
    chosen = torch.cat([torch.arange(0, 600, 2), torch.arange(650, 2000, 3)])
    mask, long = masks.Global(chosen), plane(batch=1, queries=3, keys=2001, start=1)
    runs = mask.runs(long.row_blocks(3))
    assert runs.edges.shape[-1] <= 2 * GROUPS + 2
    visible = seen(mask, long.all)[0, 0]
    listed = torch.zeros(2001, dtype=torch.bool)
    for run in runs.lists(0)[0]:
        listed[run.start : run.stop] = True
        assert run.kind == MIXED or bool(visible[:, run.start : run.stop].all())
    assert bool((listed | ~visible.any(0)).all())
    assert mask.pairs(3, 2001, query_start=1) == int(visible.sum())


@pytest.mark.parametrize("queries, keys, batch", [(0, 7, 2), (5, 0, 2), (0, 0, 2), (5, 7, 0)])
def test_nothing(seen: Seen, queries: int, keys: int, batch: int) -> None:
    empty = plane(batch, queries, keys)
    lengths = masks.Lengths([0] * batch)
    for mask in (lengths, masks.Prefix(torch.zeros(batch, dtype=torch.int64)), masks.Global([0]), ~lengths):
        mask.check(empty)
        assert seen(mask, empty.all).shape == (batch, HEADS, queries, keys)
        assert len(mask.runs(empty.row_blocks(3)).lists(0)) == -(-queries // 3)
        assert mask.pairs(queries, keys, batch=batch, query_start=0) == 0


@pytest.mark.parametrize(
    "make, error, text",
    [
        (lambda: masks.Lengths([3, -1]), ValueError, "Lengths must not be negative, got -1; an empty row has length 0"),
        (
            lambda: masks.Lengths(torch.tensor([3.0])),
            TypeError,
            "Lengths must be integers, got float32; convert them with .long() if they are whole",
        ),
        (lambda: masks.Lengths(torch.tensor([True])), TypeError, "Lengths must be integers, got bool"),
        (
            lambda: masks.Lengths(torch.tensor([[3, 5]])),
            ValueError,
            "Lengths must have 0 or 1 axes, got shape (1, 2); squeeze or flatten it first",
        ),
        (lambda: masks.Prefix(torch.tensor(2.5)), TypeError, "Prefix must be integers, got float32"),
        (lambda: masks.Prefix(True), TypeError, "Prefix must be integers, got bool"),
        (lambda: masks.Global(torch.tensor([[1, 2]])), ValueError, "Global must have 0 or 1 axes, got shape (1, 2)"),
        (lambda: masks.Global(torch.tensor([0.5])), TypeError, "Global must be integers, got float32"),
        (
            lambda: masks.Lengths([3, 5, 7]).check(plane()),
            ValueError,
            "Lengths needs one entry per batch row: the inputs have 2, got 3; inputs are (batch, head, length, width), "
            "so give a batch axis with .unsqueeze(0) if it is missing",
        ),
        (
            lambda: attend(*torch.zeros(3, 5, 7, 2), mask=masks.Lengths([7, 3, 1, 2, 5])),
            ValueError,
            "the inputs have 1, got 5; inputs are (batch, head, length, width), so give query, key and value a head "
            "axis with .unsqueeze(1)",
        ),
        (lambda: masks.Prefix([3, 5, 7]).check(plane()), ValueError, "Prefix needs one entry per batch row"),
        (
            lambda: masks.Lengths([3, 8]).check(plane()),
            ValueError,
            "Lengths must not exceed the number of keys, got 8 for 7 keys; they count keys, not queries",
        ),
    ],
)
def test_wrong_arguments(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        make()
