"""Full, causal, window and dilated against their formulas, pair by pair."""

import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.spec import masks
from regard.spec.masks import Mask
from regard.spec.masks.runs import FULL, MIXED, Run
from regard.spec.plane import Pairs, Plane

Seen = Callable[[Mask, Pairs], Tensor]

QUERIES, KEYS, KEY_START = 11, 17, 3


@pytest.mark.parametrize("starts", [[0], [5], [-4], [2, -7, 13]])
@pytest.mark.parametrize(
    "mask, formula",
    [
        (masks.Full(), lambda i, j: True),
        (masks.Causal(), lambda i, j: j <= i),
        (masks.Window(3, 2), lambda i, j: i - 3 <= j <= i + 2),
        (masks.Window(0, 0), lambda i, j: i == j),
        (masks.Window(None, 0), lambda i, j: j <= i),
        (masks.Window(2, None), lambda i, j: j >= i - 2),
        (masks.Window(None, None), lambda i, j: True),
        (masks.Window(5, -2), lambda i, j: i - 5 <= j <= i - 2),
        (masks.Window(-2, 5), lambda i, j: i + 2 <= j <= i + 5),
        (masks.Window(None, -1), lambda i, j: j < i),
        (masks.Dilated(5, 3), lambda i, j: j in {i - 6, i - 3, i, i + 3, i + 6}),
        (masks.Dilated(7, 1), lambda i, j: abs(i - j) <= 3),
        (masks.Dilated(1, 4), lambda i, j: i == j),
    ],
)
def test_formula(mask: Mask, formula: Callable[[int, int], bool], starts: list[int], seen: Seen) -> None:
    plane = Plane(len(starts), 2, 1, QUERIES, KEYS, torch.tensor(starts), KEY_START)
    wanted = [
        [[formula(start + row, KEY_START + column) for column in range(KEYS)] for row in range(QUERIES)]
        for start in starts
    ]
    assert seen(mask, plane.all).tolist() == [[table, table] for table in wanted]


@pytest.mark.parametrize("start", [-(1 << 62), (1 << 62) - 5])
def test_the_farthest_positions(start: int) -> None:
    """Nothing wraps around, neither in pairs nor in runs."""
    far = 1 << 61
    before, behind = (0, 15) if start < 0 else (15, 0)
    for mask, pairs in (
        (masks.Causal(), before),
        (masks.Window(far, None), behind),
        (masks.Window(None, far), before),
        (masks.Window(far, far), 0),
        (masks.Dilated(3, far // 3), 0),
    ):
        plane = Plane(1, 1, 1, 5, 3, torch.tensor([start]))
        assert int(mask.visible(plane.all).expand(1, 1, 1, 5, 3).sum()) == pairs
        assert mask.pairs(5, 3, query_start=start) == pairs


def test_step_1_is_a_window() -> None:
    plane = Plane(1, 1, 1, 40, 40, torch.tensor([0]))
    dilated, window = (mask.runs(plane.row_blocks(7)) for mask in (masks.Dilated(9, 1), masks.Window(4, 4)))
    assert torch.equal(dilated.edges, window.edges)
    assert torch.equal(dilated.kinds, window.kinds)


def test_runs_are_as_short_as_they_can_be() -> None:
    plane = Plane(1, 1, 1, 24, 24, torch.tensor([0]))

    def third(mask: Mask) -> list[Run]:
        return mask.runs(plane.row_blocks(4)).lists(0)[3]  # the queries 12 to 15

    assert third(masks.Full()) == [Run(0, 24, FULL)]
    assert third(masks.Causal()) == [Run(0, 13, FULL), Run(13, 16, MIXED)]
    assert third(masks.Window(5, 0)) == [Run(7, 10, MIXED), Run(10, 13, FULL), Run(13, 16, MIXED)]
    assert third(masks.Window(1, 1)) == [Run(11, 17, MIXED)]
    assert third(masks.Window(None, None)) == [Run(0, 24, FULL)]
    assert third(masks.Window(3, None)) == [Run(9, 12, MIXED), Run(12, 24, FULL)]
    assert third(masks.Dilated(3, 2)) == [Run(10, 18, MIXED)]
    assert third(masks.Causal() & masks.Window(5, 2)) == third(masks.Window(5, 0))


@pytest.mark.parametrize(
    "make, error, text",
    [
        (
            lambda: masks.Window(2, -3),
            ValueError,
            "Window(before, after) sees keys i − before to i + after and must leave at least one, "
            "got before=2, after=-3; before + after must not be negative",
        ),
        (
            lambda: masks.Window(2.0, 0),  # type: ignore[arg-type]
            TypeError,
            "Window's before must be an int, got float",
        ),
        (lambda: masks.Window(0, True), TypeError, "Window's after must be an int, got bool"),
        (
            lambda: masks.Dilated(4, 2),
            ValueError,
            "Dilated's width must be odd, so that the band has a center, got 4; take 3 or 5",
        ),
        (
            lambda: masks.Window(sys.maxsize, 0),
            ValueError,
            f"Window's before must lie within ±2**61, got {sys.maxsize}; None leaves that side open",
        ),
        (lambda: masks.Dilated(3, 1 << 60), ValueError, "Dilated's step times its width must not exceed 2**61, got"),
        (lambda: masks.Dilated(-3, 2), ValueError, "Dilated's width must be at least 1, got -3"),
        (lambda: masks.Dilated(3, 0), ValueError, "Dilated's step must be at least 1, got 0"),
    ],
)
def test_wrong_arguments(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        make()
