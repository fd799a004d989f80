"""Attention as records: the numbers, labels and notes of every picture, whatever its size and script."""

import math

import numpy as np
import pytest
import torch

import regard
from regard.inspection.records import Grid, Panel
from regard.plot.pooling import picture, pool


def causal(
    queries: int,
    keys: int | None = None,
    *,
    query_tokens: list[str] | None = None,
    key_tokens: list[str] | None = None,
) -> regard.AttentionMatrix:
    torch.manual_seed(queries)
    q, k = torch.randn(1, 1, queries, 8), torch.randn(1, 1, keys or queries, 8)
    return regard.matrix(q, k, mask="causal", query_start=0, query_tokens=query_tokens, key_tokens=key_tokens)


def grid_of(matrix: regard.AttentionMatrix, rows: int = 64, columns: int = 64, how: str = "max") -> Grid:
    found = picture(matrix, rows, columns, how=how)
    assert isinstance(found, Grid)
    return found


def numbers(grid: Grid) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.array([[math.nan if value is None else value for value in row] for row in grid.values])


def test_one_head_is_its_weights_with_hidden_pairs_blank() -> None:
    matrix = causal(3, query_tokens=["a", "b", "c"], key_tokens=["x", "y", "z"])
    grid = grid_of(matrix)
    assert [[value is None for value in row] for row in grid.values] == [
        [False, True, True],
        [False, False, True],
        [False, False, False],
    ]
    weights = matrix[0, 0].dense().double().numpy()
    np.testing.assert_allclose(np.nan_to_num(numbers(grid)), weights, rtol=1e-6)
    assert (grid.row_labels, grid.column_labels) == (["a", "b", "c"], ["x", "y", "z"])
    assert grid.note == "3 queries (rows) × 3 keys (columns)"


def test_a_visible_zero_is_a_number() -> None:
    matrix = regard.AttentionMatrix.from_weights(torch.tensor([[0.0, 1.0]]))
    assert grid_of(matrix).values == [[0.0, 1.0]]


def test_cross_attention_has_tokens_of_two_texts() -> None:
    weights = torch.tensor([[0.25, 0.75, 0.0], [0.5, 0.25, 0.25]])
    matrix = regard.AttentionMatrix.from_weights(weights, ["die", "Katze"], ["the", "cat", "."])
    grid = grid_of(matrix)
    assert grid.values == weights.tolist()
    assert (grid.row_labels, grid.column_labels) == (["die", "Katze"], ["the", "cat", "."])
    assert grid.note == "2 queries (rows) × 3 keys (columns)"


def test_a_spike_among_many_stays_visible_and_the_note_says_what_a_cell_is() -> None:
    weights = torch.zeros(1000, 1000)
    weights[617, 203] = 1.0
    matrix = regard.AttentionMatrix.from_weights(weights, [f"t{n}" for n in range(1000)])
    grid = grid_of(matrix, 50, 50)
    assert numbers(grid).shape == (50, 50)
    assert np.argwhere(numbers(grid) == 1.0).tolist() == [[30, 10]]
    assert grid.row_labels[30] == "600"
    assert grid.column_labels[10] == "200"
    assert grid.note == (
        "1,000 queries (rows) × 1,000 keys (columns); each cell: the largest of up to 20 × 20 weights; "
        "the mean of all is 1e-6"
    )
    mean = grid_of(matrix, 50, 50, "mean")
    assert numbers(mean)[30, 10] == pytest.approx(1 / 400)
    assert mean.note.endswith("each cell: the mean of up to 20 × 20 weights; the largest of all is 1")


@pytest.mark.parametrize(
    "queries, keys, rows, columns", [(100, 100, 16, 16), (7, 90, 10, 32), (90, 7, 32, 10), (33, 65, 32, 64)]
)
def test_cells_are_the_largest_and_the_mean_of_what_is_visible(
    queries: int, keys: int, rows: int, columns: int
) -> None:
    matrix = causal(queries, keys)
    found = pool(matrix, rows, columns)
    high, wide = found.max.shape[1:]
    assert high <= rows
    assert wide <= columns
    weights = matrix[0, 0].dense().double().numpy()
    seen = np.tril(np.ones((queries, keys), dtype=bool))
    starts = [[*edges, size] for edges, size in zip(found.starts, (queries, keys), strict=True)]
    for row in range(high):
        for column in range(wide):
            part = np.s_[starts[0][row] : starts[0][row + 1], starts[1][column] : starts[1][column + 1]]
            cell = weights[part][seen[part]]
            assert found.visible[0, row, column] == (cell.size > 0)
            assert max(np.subtract(weights[part].shape, (found.down, found.right))) <= 0
            if cell.size:
                assert found.max[0, row, column] == pytest.approx(cell.max(), rel=1e-5)
                assert found.mean[0, row, column] == pytest.approx(cell.mean(), rel=1e-4)
    assert found.average == pytest.approx(weights[seen].mean(), rel=1e-4)


def test_a_short_axis_keeps_its_tokens_while_the_long_one_is_pooled() -> None:
    matrix = causal(2, 500, query_tokens=["a", "b"], key_tokens=["k"] * 500)
    grid = grid_of(matrix, 8, 100)
    assert grid.row_labels == ["a", "b"]
    assert grid.column_labels[:3] == ["0", "5", "10"]
    assert "up to 1 × 5 weights" in grid.note


def test_heads_share_their_colors_and_are_named_by_index() -> None:
    weights = torch.rand(2, 3, 4, 4).softmax(-1)
    panel = picture(regard.AttentionMatrix.from_weights(weights), title="all")
    assert isinstance(panel, Panel)
    every = [part for part in panel.pictures if isinstance(part, Grid)]
    assert panel.title == "all"
    assert [grid.title for grid in every] == ["[0, 0]", "[0, 1]", "[0, 2]", "[1, 0]", "[1, 1]", "[1, 2]"]
    assert {grid.limits for grid in every} == {(0.0, float(weights.max()))}
    np.testing.assert_allclose(numbers(every[4]), weights[1, 1])


def test_what_cannot_be_drawn_says_why() -> None:
    weights = torch.ones(1025, 1, 1)
    with pytest.raises(ValueError, match=r"at most 1,024 heads, this matrix has 1,025; choose some, as in A\[0\]"):
        picture(regard.AttentionMatrix.from_weights(weights))
    with pytest.raises(ValueError, match=r"shape \(0, 2, 2\) has no head to show"):
        picture(regard.AttentionMatrix.from_weights(torch.ones(0, 2, 2)))
    with pytest.raises(ValueError, match="max or mean; got 'sum'"):
        picture(causal(2), how="sum")
    assert grid_of(regard.AttentionMatrix.from_weights(torch.ones(2, 0))).values == [[], []]
