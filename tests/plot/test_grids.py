"""Checked, ranged and pooled grids."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.inspection.records import Grid
from regard.plot import grids
from regard.plot.grids import Limits

values = st.none() | st.floats(0, 1e308)


def test_ragged_rows_and_wrong_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="rows of one length, got lengths 1 to 2"):
        grids.cells(Grid([[1.0], [1.0, 2.0]]))
    with pytest.raises(ValueError, match="got 1 row labels for 2 rows"):
        grids.cells(Grid([[1.0], [2.0]], row_labels=["a"]))
    with pytest.raises(ValueError, match="got 3 column labels for 1 columns"):
        grids.cells(Grid([[1.0], [2.0]], column_labels=["a", "b", "c"]))


@pytest.mark.parametrize(
    "row, expected",
    [
        ([0.1, 0.7], Limits(0.0, 0.7)),
        ([3.2, 4.1], Limits(3.2, 4.1)),
        ([-2.0, 1.0], Limits(-2.0, 1.0)),
        ([0.25, 0.25], Limits(0.0, 0.25)),
        ([0.0, 0.0], Limits(0.0, 1.0)),
        ([None, math.nan, math.inf, 0.5], Limits(0.0, 0.5)),
        ([None], Limits(0.0, 1.0)),
        ([0.01, 0.01, 0.01, 1.0], Limits(0.0, 1.0, power=0.5)),
    ],
)
def test_range_of_the_colors(row: list[float | None], expected: Limits) -> None:
    assert grids.limits([row]) == expected


def test_limits_of_the_grid_go_before_its_values() -> None:
    assert grids.limits([[0.2]], (0.0, 1.0)) == Limits(0.0, 1.0)
    with pytest.raises(ValueError, match=r"the lower first; got 1\.0 and 0\.0"):
        grids.limits([[0.2]], (1.0, 0.0))


@given(st.floats(allow_nan=False), st.floats(-1.7e308, 1.7e308), st.floats(-1.7e308, 1.7e308))
def test_fraction_stays_within_the_colors(value: float, one: float, other: float) -> None:
    assert 0 <= Limits(min(one, other), max(one, other)).fraction(value) <= 1


@given(st.integers(1, 7), st.integers(1, 7), st.integers(1, 4), st.integers(1, 4), st.data())
def test_a_pooled_cell_is_the_mean_of_what_is_visible(
    height: int, width: int, rows: int, columns: int, data: st.DataObject
) -> None:
    full = data.draw(st.lists(st.lists(values, min_size=width, max_size=width), min_size=height, max_size=height))
    small = grids.pooled(full, rows, columns)
    assert grids.shape(small) == (math.ceil(height / rows), math.ceil(width / columns))
    for top, line in enumerate(small):
        for start, cell in enumerate(line):
            covered = [
                full[i][j]
                for i in range(top * rows, min((top + 1) * rows, height))
                for j in range(start * columns, min((start + 1) * columns, width))
            ]
            seen = [value for value in covered if value is not None]
            if not seen:
                assert cell is None
            else:
                assert cell is not None
                assert math.isclose(cell, math.fsum(v / len(seen) for v in seen), rel_tol=1e-14)  # 16 sums of 1e-16


def test_a_pattern_is_ones_and_blanks() -> None:
    assert grids.is_pattern([[1, None], [1.0, True]])
    assert grids.is_pattern([[None]])
    assert not grids.is_pattern([[0.25, 0.25]])
    assert not grids.is_pattern([[1.0, math.nan]])


def test_a_pooled_pattern_is_the_share_that_is_visible() -> None:
    pattern: grids.Cells = [[1.0, None, None], [1.0, 1.0, None], [1.0, 1.0, 1.0]]
    assert grids.shares(pattern, 2, 2) == [[0.75, None], [1.0, 1.0]]


def test_pooling_shows_what_is_not_a_number() -> None:
    assert grids.pooled([[0.5, math.inf], [None, 0.5]], 2, 2) == [[math.inf]]
    (cell,) = grids.pooled([[0.5, math.nan]], 1, 2)[0]
    assert cell is not None
    assert math.isnan(cell)
