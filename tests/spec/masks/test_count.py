"""Exact numbers of visible pairs: brute force on small planes, known formulas for a million positions."""

import time
from collections.abc import Callable
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, SearchStrategy
from torch import Tensor

from regard.spec import masks
from regard.spec.masks import Mask, count
from regard.spec.masks.count import count_cells, count_visible
from regard.spec.plane import Pairs, Plane

Seen = Callable[[Mask, Pairs], Tensor]
Cases = SearchStrategy[tuple[Mask, Plane]]

MILLION = 1_000_000
PREFIX, LENGTH, WIDTH, DOCUMENT = 1009, 900_001, 4099, 2000


def edges(data: DataObject, length: int) -> list[int]:
    inner = data.draw(st.lists(st.integers(0, length), max_size=4))
    return [0, *sorted(inner), length]


@settings(max_examples=60)
@given(data=st.data())
def test_brute_force(cases: Cases, seen: Seen, data: DataObject) -> None:
    """Also with blocks so small that every limit on what is held at once cuts something."""
    mask, plane = data.draw(cases)
    visible = seen(mask, plane.all)
    rows, columns = edges(data, plane.queries), edges(data, plane.keys)
    limits = {"EDGES": 1, "ROWS": 4, "HEIGHT": 3, "CELLS": 5} if data.draw(st.booleans()) else {"ROWS": count.ROWS}
    with patch.multiple(count, **limits):  # type: ignore[call-overload]
        assert count_visible(mask, plane) == int(visible.sum())
        cells = count_cells(mask, plane, rows, columns)
    assert cells.shape == (plane.batch, plane.heads, len(rows) - 1, len(columns) - 1)
    for row in range(len(rows) - 1):
        for column in range(len(columns) - 1):
            part = visible[..., rows[row] : rows[row + 1], columns[column] : columns[column + 1]]
            assert torch.equal(cells[..., row, column], part.sum((-1, -2)))


def staircase(height: int) -> int:
    return height * (height + 1) // 2


@pytest.mark.parametrize(
    "mask, pairs",
    [
        (masks.Full(), MILLION**2),
        (masks.Causal(), staircase(MILLION)),
        (~masks.Causal(), staircase(MILLION - 1)),
        (masks.Window(WIDTH - 1, 0), MILLION * WIDTH - staircase(WIDTH - 1)),
        (masks.local(2 * WIDTH + 1), MILLION * (2 * WIDTH + 1) - 2 * staircase(WIDTH)),
        (masks.Dilated(7, 1), MILLION * 7 - 2 * staircase(3)),
        (masks.Prefix(PREFIX), MILLION * PREFIX),
        (masks.Lengths([LENGTH]), MILLION * LENGTH),
        (masks.Global([0, 1, 500_000]), 2 * 3 * MILLION - 9),
        (masks.Documents(torch.arange(MILLION) // DOCUMENT), MILLION * DOCUMENT),
        (masks.Documents(500 - torch.arange(MILLION) // DOCUMENT), MILLION * DOCUMENT),
        (masks.Causal() | masks.Prefix(PREFIX), staircase(MILLION) + staircase(PREFIX - 1)),
        (masks.Causal() & masks.Lengths([LENGTH]), staircase(MILLION) - staircase(MILLION - LENGTH)),
        (
            masks.Causal() & masks.Documents(torch.arange(MILLION) // DOCUMENT),
            MILLION // DOCUMENT * staircase(DOCUMENT),
        ),
        (
            masks.Window(99, 0) & masks.Documents(torch.arange(MILLION) // DOCUMENT),
            MILLION // DOCUMENT * (DOCUMENT * 100 - staircase(99)),
        ),
    ],
    ids=repr,
)
def test_a_million_positions(mask: Mask, pairs: int) -> None:
    """In less than a second of the processor, which a closed form makes possible."""
    start = time.process_time()
    assert mask.pairs(MILLION) == pairs
    assert time.process_time() - start < 1.0


def test_only_what_is_open_is_looked_at() -> None:
    """A function is asked where the rest of the mask shows something and leaves rows unsettled, nowhere else."""
    asked = []

    def odd(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        asked.append((int(i.min()), int(i.max()), int(j.min()), int(j.max())))
        return (i + j) % 2 == 1

    length = 100_000
    mask = masks.Window(9, 0) & (masks.Where(odd) | ~masks.Documents(torch.arange(length) // 90_000))
    seen = mask.pairs(length)
    # every query sees the odd half of its 10 keys; near the border, of those in the other document the even half too
    assert seen == sum(min(i + 1, 10) // 2 for i in range(length)) + sum((9 - i) // 2 for i in range(9))
    assert all(right - left <= bottom - top + 9 for top, bottom, left, right in asked)


def test_runs_that_settle_everything_are_believed() -> None:
    """No pair is looked at: the mask's own answer for pairs would be an error."""

    class Silent(masks.Causal):
        runs = masks.Causal.runs

        def visible(self, pairs: Pairs) -> Tensor:
            raise AssertionError("looked at pairs")

    assert (Silent() & masks.Window(5, 0)).pairs(1000) == 1000 * 6 - staircase(5)


def test_dilated_is_looked_at_in_its_band() -> None:
    """Width 7 and step 3 in 100,000 positions: 18 keys around each query, not 100,000."""
    start = time.process_time()
    assert masks.Dilated(7, 3).pairs(100_000) == 7 * 100_000 - 2 * (3 + 6 + 9)
    assert time.process_time() - start < 1.0
