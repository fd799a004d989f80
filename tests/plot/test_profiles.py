"""Statistics of heads: dots, means and maps are the numbers of the table."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from regard.inspection.records import Estimate, Grid, Table
from regard.plot.profiles import draw_maps, draw_profiles, profiles, statistic_maps, statistics_of

TABLE = Table(
    ("layer", "name", "head", "entropy", "distance", "first", "nearest"),
    [
        (0, "a", 0, 1.0, 4.0, Estimate(0.5, 0.4, 0.6), 1),
        (0, "a", 1, 3.0, float("nan"), Estimate(0.25, 0.1, 0.3), 0),
        (2, "c", 0, 2.0, 6.0, Estimate(1.0, 1.0, 1.0), 0),
    ],
)


def test_profiles_are_every_head_and_the_means() -> None:
    entropy, distance = profiles(TABLE)
    assert entropy.heads == [(0, 0, 1.0), (0, 1, 3.0), (2, 0, 2.0)]
    assert entropy.means == [(0, 2.0), (2, 2.0)]
    assert distance.heads == [(0, 0, 4.0), (2, 0, 6.0)]
    (line,) = entropy.lines().lines
    assert (line.x, line.y, line.low, line.high) == ([0, 2], [2.0, 2.0], [1.0, 2.0], [3.0, 2.0])


def test_what_is_drawn_are_those_numbers() -> None:
    figure = draw_profiles(profiles(TABLE), "heads")
    dots, means = figure.axes[0].get_lines()
    assert np.asarray(dots.get_xydata()).tolist() == [[0, 1.0], [0, 3.0], [2, 2.0]]
    assert np.asarray(means.get_xydata()).tolist() == [[0, 2.0], [2, 2.0]]
    assert [axes.get_ylabel() for axes in figure.axes] == ["entropy, nats", "distance, tokens"]


def test_maps_have_a_cell_for_each_head_that_has_a_number() -> None:
    assert statistics_of(TABLE) == ["entropy", "distance", "first"]
    panel = statistic_maps(TABLE, "title")
    grids = {grid.title: grid for grid in panel.pictures if isinstance(grid, Grid)}
    assert grids["entropy"].values == [[1.0, 3.0], [2.0, None]]
    assert grids["distance"].values == [[4.0, None], [6.0, None]]
    assert grids["first"].values == [[0.5, 0.25], [1.0, None]]
    assert (grids["first"].row_labels, grids["first"].column_labels) == (["0", "2"], ["0", "1"])
    images = [axes.images[0] for axes in draw_maps(panel).axes if axes.images]
    assert np.ma.asarray(images[1].get_array()).tolist() == [[4.0, None], [6.0, None]]


def test_rows_of_a_batch_are_averaged() -> None:
    table = Table(("layer", "batch", "head", "entropy"), [(0, 0, 0, 1.0), (0, 1, 0, 2.0)])
    (found,) = profiles(table)
    assert found.heads == [(0, 0, 1.5)]
    assert statistics_of(table) == ["entropy"]


def test_a_capture_gives_the_table(captured: Callable[..., Any], softmax: Callable[..., Any]) -> None:
    given = captured([softmax(2, 5, seed=1), None, softmax(3, 5, seed=2)])
    (entropy,) = profiles(given.heads())
    assert [at for *at, _ in entropy.heads] == [[0, 0], [0, 1], [2, 0], [2, 1], [2, 2]]


def test_a_table_without_heads_says_what_is_wanted() -> None:
    with pytest.raises(ValueError, match=r"the columns layer and head, as c\.heads\(\) gives; got 1 rows of x"):
        profiles(Table(("x",), [(1,)]))
    with pytest.raises(ValueError, match="has none of entropy, distance; it has layer, head, first"):
        profiles(Table(("layer", "head", "first"), [(0, 0, 0.5)]))
