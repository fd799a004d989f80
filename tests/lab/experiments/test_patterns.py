"""Patterns: counts in closed form, growth, pictures that are the mask, and what is never computed."""

from collections.abc import Callable

import pytest

from regard.lab.experiments.patterns import DRAWN, LONG, PATTERNS, SHORT, TIMED, computed, picture
from regard.lab.report import Report

Quick = Callable[[str], Report]
BY_NAME = {pattern.name: pattern for pattern in PATTERNS}


@pytest.mark.parametrize("n", [1, 7, 64])
def test_counts_in_closed_form(n: int) -> None:
    full, causal, band = (pattern.at(n).pairs(n) for pattern in TIMED)
    assert (full, causal, band) == (n * n, n * (n + 1) // 2, 3 * n - 2)


@pytest.mark.parametrize("name", BY_NAME)
def test_the_picture_is_the_mask(name: str) -> None:
    grid = picture(BY_NAME[name])
    seen = sum(value is not None for row in grid.values for value in row)
    assert seen == BY_NAME[name].drawn.pairs(DRAWN)
    assert all(len(row) == DRAWN for row in grid.values)


@pytest.mark.parametrize("name", BY_NAME)
def test_what_is_visible_is_computed(name: str) -> None:
    mask = BY_NAME[name].at(512)
    assert mask.pairs(512) / 512**2 <= computed(mask, 512) <= 1
    assert computed(BY_NAME["full"].at(512), 512) == 1


def test_local_work_is_linear_and_full_work_quadratic(quick: Quick) -> None:
    growth = {row[0]: row[4] for row in quick("patterns").tables[0].rows}
    assert growth["full"] == 4
    assert growth["causal"] == pytest.approx(4, rel=1e-3)
    for name in ("local, window 3", "dilated, 5 keys", "global + local", "causal documents"):
        assert growth[name] == pytest.approx(2, rel=0.01)
    assert LONG == 2 * SHORT


def test_times_stand_apart(quick: Quick) -> None:
    timing = quick("patterns").timing
    assert timing is not None
    assert timing.tables[0].columns == ("n", *(pattern.name for pattern in TIMED))
