"""Alignments: the map of two texts, and the strongest key of every row at its exact place."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.patches import Rectangle

import regard
from regard.lab.maps import TRANSLATION
from regard.plot.alignment import Alignment, alignment
from regard.plot.attention import AttentionPicture, figure_of


def cells(found: Alignment) -> np.ndarray[Any, Any]:
    return np.array(found.grid.values, dtype=float)


def test_a_printed_translation_marks_the_words_that_belong_together() -> None:
    matrix = regard.AttentionMatrix.from_weights(TRANSLATION.tensor(), TRANSLATION.rows, TRANSLATION.columns)
    found = alignment(matrix, title="translation")
    assert found.grid.values == [list(row) for row in TRANSLATION.weights]
    assert (found.grid.row_labels, found.grid.column_labels) == (list(TRANSLATION.rows), list(TRANSLATION.columns))
    assert [key for _, key in found.marks] == [0, 1, 2, 2, 3, 4, 5]
    assert [row for row, _ in found.marks] == list(range(7))
    assert found.grid.note.endswith("; marked: the strongest key of each row")
    frames = [
        patch
        for patch in figure_of(matrix, AttentionPicture("alignment")).axes[0].patches
        if isinstance(patch, Rectangle)
    ]
    assert [(frame.get_x() + 0.5, frame.get_y() + 0.5) for frame in frames] == [
        (key, row) for row, key in enumerate([0, 1, 2, 2, 3, 4, 5])
    ]


def test_several_heads_are_averaged() -> None:
    torch.manual_seed(0)
    weights = torch.randn(1, 4, 9, 5).softmax(-1)
    found = alignment(regard.AttentionMatrix.from_weights(weights))
    mean = weights[0].mean(0)
    np.testing.assert_allclose(cells(found), mean, rtol=1e-6)
    assert [key for _, key in found.marks] == mean.argmax(-1).tolist()
    assert found.grid.note.startswith("mean of 4 heads; 9 queries (rows) × 5 keys (columns)")


def test_hidden_rows_have_no_mark() -> None:
    mask = torch.tensor([[True, False], [False, False]])
    found = alignment(regard.matrix(torch.randn(2, 4), torch.randn(2, 4), mask=mask))
    assert found.marks == [(0, 0)]
    assert found.grid.values == [[1.0, None], [None, None]]


@pytest.mark.parametrize("size", [60, 2000])
def test_marks_are_exact_where_cells_are_not(size: int) -> None:
    torch.manual_seed(size)
    q, k = torch.randn(size, 8), torch.randn(size // 2, 8)
    matrix = regard.matrix(q, k)
    found = alignment(matrix, 100)
    high, wide = cells(found).shape
    best = matrix.dense().argmax(-1).tolist()
    wanted = [((row + 0.5) * high / size - 0.5, (key + 0.5) * wide / (size // 2) - 0.5) for row, key in enumerate(best)]
    np.testing.assert_allclose(found.marks, wanted)
    assert (high, wide) == ((60, 30) if size == 60 else (100, 50))


def test_what_cannot_be_aligned_says_why(tmp_path: Path) -> None:
    torch.manual_seed(0)
    two = regard.matrix(*torch.randn(2, 2, 3, 4, 8))
    with pytest.raises(ValueError, match=r"one pair of texts, and this matrix has \(2, 3, 4, 4\); choose one"):
        two.save(tmp_path / "x.png", kind="alignment")
    with pytest.raises(ValueError, match="the mean of 2 heads is drawn for up to 256 × 256 tokens, and there are 300"):
        regard.matrix(*torch.randn(2, 1, 2, 300, 8)).save(tmp_path / "x.png", kind="alignment")
    assert list(tmp_path.iterdir()) == []
