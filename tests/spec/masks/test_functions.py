"""Masks given by a function: positions and rows, and what the function may return."""

import doctest
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.spec import masks
from regard.spec.masks import Mask, functions
from regard.spec.plane import Pairs, Plane

Seen = Callable[[Mask, Pairs], Tensor]

BATCH, KV_HEADS, GROUP, QUERIES, KEYS = 2, 3, 5, 7, 11
plane = Plane(BATCH, KV_HEADS, GROUP, QUERIES, KEYS, torch.tensor([4, 9]), 3)


def everything(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return (1000 * b + 100 * h + 7 * i + j) % 3 == 0


def test_where_sees_positions(seen: Seen) -> None:
    visible = seen(masks.Where(everything), plane.all)
    for b, h, row, column in ((0, 0, 0, 0), (1, 14, 6, 10), (0, 7, 3, 5), (1, 2, 5, 4)):
        i, j = (4, 9)[b] + row, 3 + column
        assert visible[b, h, row, column] == ((1000 * b + 100 * h + 7 * i + j) % 3 == 0)


def test_row_where_sees_rows(seen: Seen) -> None:
    visible = seen(masks.RowWhere(everything), plane.all)
    for b, h, row, column in ((0, 0, 0, 0), (1, 14, 6, 10), (0, 7, 3, 5), (1, 2, 5, 4)):
        assert visible[b, h, row, column] == ((1000 * b + 100 * h + 7 * row + column) % 3 == 0)


@pytest.mark.parametrize("answer", [True, False, torch.tensor(True)])
def test_one_answer_for_all(answer: bool | Tensor, seen: Seen) -> None:
    for kind in (masks.Where, masks.RowWhere):
        visible = seen(kind(lambda b, h, i, j: answer), plane.all)  # type: ignore[arg-type, return-value]
        assert bool((visible == answer).all())


@pytest.mark.parametrize(
    "fn, share",
    [
        (lambda b, h, i, j: j < 5, 2 / 11),
        (lambda b, h, i, j: b == 0, 1 / 2),
        (lambda b, h, i, j: h == 0, 1 / 15),
        (lambda b, h, i, j: (j < 5) & (b == 0), 1 / 11),
    ],
)
def test_answers_broadcast(fn: Callable[..., Tensor], share: float, seen: Seen) -> None:
    assert seen(masks.Where(fn), plane.all).double().mean().item() == pytest.approx(share, abs=1e-12)


def test_captured_tensors(seen: Seen) -> None:
    """A function may look things up in tables of its own."""
    ids = torch.tensor([[0, 0, 1, 1, 1, 2, 2], [0, 1, 1, 1, 1, 1, 1]])
    mask = masks.Where(lambda b, h, i, j: ids[b, i] == ids[b, j])
    square = Plane(2, 1, 3, 7, 7, torch.tensor([0]))
    assert torch.equal(seen(mask, square.all), seen(masks.Documents(ids), square.all))


@pytest.mark.parametrize(
    "fn, error, text",
    [
        (
            lambda b, h, i, j: i - j,
            TypeError,
            "Where(<lambda>)'s function must return bools (True = visible), got int64; "
            "compare, as in j <= i, or add != 0",
        ),
        (
            lambda b, h, i, j: None,
            TypeError,
            "Where(<lambda>)'s function must return a bool tensor (True = visible), got NoneType",
        ),
        (lambda b, h, i, j: 1, TypeError, "must return a bool tensor (True = visible), got int"),
        (
            lambda b, h, i, j: torch.ones(4, 4, dtype=torch.bool),
            ValueError,
            "Where(<lambda>)'s function must return one bool per pair, got shape (4, 4) for indices that broadcast to "
            "(batch, kv head, group, query, key) = (2, 3, 5, 7, 11); use elementwise operations on b, h, i, j",
        ),
        (lambda b, h, i, j: (i == j)[None], ValueError, "got shape (1, 2, 1, 1, 7, 11)"),
    ],
)
def test_wrong_answers(fn: Callable[..., Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        masks.Where(fn).visible(plane.all)


def test_not_a_function() -> None:
    text = "Where takes a function of (b, h, i, j), got Tensor; a bool tensor is masks.Dense(tensor)"
    with pytest.raises(TypeError, match=re.escape(text)):
        masks.Where(torch.ones(3, 3))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="RowWhere takes a function"):
        masks.RowWhere(None)  # type: ignore[arg-type]


def test_the_example_runs() -> None:
    assert doctest.testmod(functions) == (0, 1)
