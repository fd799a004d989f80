"""Blocks and dense tables: every broadcast shape, runs, edges, errors."""

import re
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import attend
from regard.spec import masks
from regard.spec.masks import Mask
from regard.spec.masks.runs import FULL, MIXED, Run
from regard.spec.masks.tables import fits_plane
from regard.spec.plane import Pairs, Plane

Seen = Callable[[Mask, Pairs], Tensor]

BATCH, KV_HEADS, GROUP, QUERIES, KEYS = 2, 3, 5, 11, 13
HEADS = KV_HEADS * GROUP


def plane(queries: int = QUERIES, keys: int = KEYS, *starts: int, batch: int = BATCH, key_start: int = 0) -> Plane:
    return Plane(batch, KV_HEADS, GROUP, queries, keys, torch.tensor(starts or [0]), key_start)


def bools(*size: int) -> Tensor:
    return torch.rand(size, generator=torch.Generator().manual_seed(0)) < 0.5


@pytest.mark.parametrize("size", list(product([1, BATCH], [1, HEADS], [1, QUERIES], [1, KEYS])))
@pytest.mark.parametrize("axes", [4, 3, 2, 1])
def test_dense_broadcasts(size: tuple[int, ...], axes: int, seen: Seen) -> None:
    table = bools(*size[4 - axes :])
    mask = masks.Dense(table)
    mask.check(plane())
    assert torch.equal(seen(mask, plane().all), table.expand(BATCH, HEADS, QUERIES, KEYS))
    assert mask.tensor.numel() == table.numel(), "it stays the size it has"


def test_dense_is_numbered_by_rows_and_columns(seen: Seen) -> None:
    table = bools(QUERIES, KEYS)
    assert torch.equal(seen(masks.Dense(table), plane(QUERIES, KEYS, 7, key_start=5).all)[0, 0], table)


def test_dense_runs_follow_the_table() -> None:
    table = torch.zeros(8, 200, dtype=torch.bool)
    table[:4, :128] = True
    table[4, 150] = True
    lists = masks.Dense(table).runs(plane(8, 200, batch=1).row_blocks(4)).lists(0)
    assert lists == [[Run(0, 128, FULL)], [Run(128, 192, MIXED)]]
    keys = masks.Dense(table[4]).runs(plane(8, 200, batch=1).row_blocks(4)).lists(0)
    assert keys == [[Run(128, 192, MIXED)]] * 2


def test_dense_heads_merge() -> None:
    table = torch.zeros(1, HEADS, 1, KEYS, dtype=torch.bool)
    table[:, 0] = True
    assert masks.Dense(table).runs(plane(3).row_blocks(3)).lists(0) == [[Run(0, KEYS, MIXED)]]
    assert masks.Dense(~table[:, 1:2]).runs(plane(3).row_blocks(3)).lists(0) == [[Run(0, KEYS, FULL)]]


@pytest.mark.parametrize("lead", [(), (HEADS,), (1, HEADS), (BATCH, 1), (BATCH, HEADS)])
@pytest.mark.parametrize("starts", [[0], [3], [4, 1]])
def test_blocks(lead: tuple[int, ...], starts: list[int], seen: Seen) -> None:
    layout = bools(*lead, 4, 5)
    visible = seen(masks.Blocks(4, layout), plane(QUERIES, KEYS, *starts, key_start=2).all)
    four = layout[(None,) * (4 - layout.ndim)].expand(BATCH, HEADS, 4, 5)
    for b, h, row, column in product(range(BATCH), (0, 1, 7, 14), range(QUERIES), range(KEYS)):
        i, j = starts[b % len(starts)] + row, 2 + column
        assert visible[b, h, row, column] == four[b, h, i // 4, j // 4]


def test_blocks_larger_than_the_plane(seen: Seen) -> None:
    assert seen(masks.Blocks(1000, torch.tensor([[True]])), plane().all).all()
    assert masks.Blocks(1000, torch.tensor([[True]])).runs(plane().row_blocks(4)).lists(0) == [[Run(0, KEYS, FULL)]] * 3
    assert not seen(masks.Blocks(1000, torch.tensor([[False, True]])), plane().all).any()


def test_blocks_runs() -> None:
    layout = torch.tensor([[True, False, True], [True, True, False]])
    lists = masks.Blocks(4, layout).runs(plane(8, 12, batch=1).row_blocks(4)).lists(0)
    assert lists == [[Run(0, 4, FULL), Run(8, 12, FULL)], [Run(0, 8, FULL)]]
    lists = masks.Blocks(4, layout).runs(plane(8, 12, batch=1).row_blocks(6)).lists(0)
    assert lists == [[Run(0, 4, FULL), Run(4, 12, MIXED)], [Run(0, 8, FULL)]]


@pytest.mark.parametrize("queries, keys, batch", [(0, 13, 2), (11, 0, 2), (0, 0, 2), (11, 13, 0)])
def test_nothing(queries: int, keys: int, batch: int, seen: Seen) -> None:
    empty = plane(queries, keys, batch=batch)
    for mask in (
        masks.Dense(bools(queries, keys)),
        masks.Dense(bools(batch, 1, 1, keys)),
        masks.Blocks(4, bools(3, 4)),
        masks.Blocks(4, bools(batch, 1, 3, 4)),
    ):
        mask.check(empty)
        assert seen(mask, empty.all).shape == (batch, HEADS, queries, keys)
        lists = mask.runs(empty.row_blocks(4)).lists(0)
        assert len(lists) == -(-queries // 4)


@pytest.mark.parametrize(
    "make, error, text",
    [
        (
            lambda: masks.Dense(torch.zeros(3, 5)),
            TypeError,
            "masks.Dense must be bool (True = visible), got float32; "
            "numbers that are added to the logits belong in bias=",
        ),
        (
            lambda: masks.Dense([[True]]),  # type: ignore[arg-type]
            TypeError,
            "masks.Dense must be a torch.Tensor, got list; wrap it with torch.as_tensor(...)",
        ),
        (
            lambda: masks.Dense(bools(2, 2, 3, 5, 7)),
            ValueError,
            "masks.Dense must have 1 to 4 axes, the last two (query, key), got shape (2, 2, 3, 5, 7); "
            "fold several batch axes into one with flatten",
        ),
        (lambda: masks.Blocks(4, bools(5)), ValueError, "Blocks' layout must have 2 to 4 axes"),
        (lambda: masks.Blocks(0, bools(5, 5)), ValueError, "Blocks' size must be at least 1, got 0"),
        (
            lambda: masks.Blocks(4, bools(0, 5)),
            ValueError,
            "Blocks' layout must have at least one block, got shape (0, 5)",
        ),
        (
            lambda: masks.Blocks(4, bools(2, 2)).check(plane()),
            ValueError,
            "Blocks covers query positions 0 to 7 and key positions 0 to 7, the call has "
            "queries at 0 to 10 and keys at 0 to 12; enlarge the layout or pass query_start",
        ),
        (lambda: masks.Blocks(4, bools(3, 4)).check(plane(11, 13, -1)), ValueError, "queries at -1 to 9"),
        (lambda: masks.Blocks(4, bools(3, 4)).check(plane(11, 13, key_start=4)), ValueError, "keys at 4 to 16"),
        (
            lambda: masks.Blocks(4, bools(7, 3, 4)).check(plane()),
            ValueError,
            "Blocks' layout has 1 batch rows and 7 heads, the call has 2 and 15; each must be 1 or equal",
        ),
    ],
)
def test_wrong_arguments(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        make()


def test_padding_of_inputs_with_three_axes_is_told_what_to_do() -> None:
    x = torch.zeros(5, 7, 2)
    with pytest.raises(ValueError, match=re.escape("give them a head axis with .unsqueeze(1)")):
        attend(x, x, x, mask=masks.from_padding(torch.tril(torch.ones(5, 7))))
    with pytest.raises(
        ValueError, match=re.escape("inputs of three axes have in place of a batch, write [:, None, :]")
    ):
        attend(x, x, x, mask=bools(5, 7))


@pytest.mark.parametrize(
    "size, hint",
    [
        ((KEYS, QUERIES), "rows are queries and columns are keys: transpose it"),
        ((BATCH, QUERIES, KEYS), "for one mask per batch row give it a head axis with .unsqueeze(1)"),
        ((BATCH, KEYS), "for one row of keys per batch row write [:, None, None, :], or use masks.Lengths"),
        ((7, 1, 1), "name the axes that are missing with unsqueeze"),
    ],
)
def test_a_table_of_the_wrong_shape_is_told_what_to_do(size: tuple[int, ...], hint: str) -> None:
    shape = ", ".join(map(str, size))
    text = f"mask must broadcast to (batch, head, query, key) = (2, 15, 11, 13), got ({shape}); {hint}"
    with pytest.raises(ValueError, match=re.escape(text)):
        fits_plane("mask", bools(*size), plane())
