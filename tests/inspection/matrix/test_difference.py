"""Differences of two matrices: exact numbers by index and in grids, never queries × keys, no statistics of weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard import masks, normalizers
from regard.inspection.matrix.difference import MatrixDifference
from regard.inspection.tokens import token_labels
from regard.testing import allocations


def pair(
    queries: int = 37, keys: int = 41, heads: int = 3, **spec: Any
) -> tuple[regard.AttentionMatrix, regard.AttentionMatrix]:
    tensors = torch.randn(2, 2, heads, max(queries, keys), 8, dtype=torch.float64)
    first, second = (
        regard.matrix(each[..., :queries, :], each[..., :keys, :], query_start=0, **spec) for each in tensors
    )
    return first, second


def test_numbers_are_those_of_the_first_less_those_of_the_second() -> None:
    first, second = pair(mask="causal")
    difference, expected = first - second, first.dense() - second.dense()
    assert isinstance(difference, MatrixDifference)
    assert difference.shape == first.shape == difference.dense().shape
    assert (difference.ndim, len(difference), difference.dtype) == (4, 2, torch.float64)
    assert torch.equal(difference.dense(), expected)
    assert torch.equal(difference[0, 2].dense(), expected[0, 2])
    assert torch.equal(difference[..., 3:9, [1, 5]], expected[..., 3:9, [1, 5]])
    assert torch.equal(difference[1, 1, 4], expected[1, 1, 4])
    assert torch.equal((-difference).dense(), -expected)
    assert [part.shape for part in difference] == [(3, 37, 41)] * 2
    np.testing.assert_array_equal(np.asarray(difference, dtype=np.float32), expected.numpy().astype(np.float32))
    torch.testing.assert_close(difference.received(), expected.sum(-2))
    torch.testing.assert_close(difference[1].variation(), expected[1].abs().sum(-1) / 2)
    assert repr(difference[0, 0]).startswith("MatrixDifference(37 × 41: AttentionMatrix(37 × 41, ScaledDot()")


@pytest.mark.parametrize(
    "specs",
    [
        ({}, {}),
        ({"mask": "causal"}, {"mask": "causal"}),
        ({"mask": "causal"}, {"mask": masks.Window(3, 3)}),
        ({"normalizer": normalizers.Sparsemax()}, {"mask": masks.Prefix(5)}),
    ],
    ids=["full", "causal", "two masks", "sparsemax"],
)
@pytest.mark.parametrize("size", [(5, 7), (1, 1), (40, 2)])
def test_grids_are_exact(specs: tuple[dict[str, Any], dict[str, Any]], size: tuple[int, int]) -> None:
    (first, _), (_, second) = pair(**specs[0]), pair(**specs[1])
    difference, expected = first - second, first.dense() - second.dense()
    seen = [
        regard.matrix(torch.zeros(37, 1), torch.zeros(41, 1), query_start=0, mask=spec.get("mask")).dense() > 0
        for spec in specs
    ]
    either = seen[0] | seen[1]
    for how in ("sum", "mean", "max"):
        grid = difference.pool(*size, how=how)
        assert grid.shape == (2, 3, *size)
        for row in range(size[0]):
            for column in range(size[1]):
                down, right = (
                    slice(n * count // cells, max((n + 1) * count // cells, n * count // cells + 1))
                    for n, count, cells in ((row, 37, size[0]), (column, 41, size[1]))
                )
                cell = expected[..., down, right].flatten(-2)
                count = int(either[down, right].sum())
                wanted = {
                    "sum": cell.sum(-1),
                    "mean": cell.sum(-1) / max(count, 1),
                    "max": cell.gather(-1, cell.abs().argmax(-1, keepdim=True)).squeeze(-1),
                }[how]
                tied = (cell.amax(-1) + cell.amin(-1)).abs() < 1e-9  # rows of two keys: one more is the other less
                sign = grid[..., row, column].sign() * wanted.sign() if how == "max" else torch.ones(())
                wanted = torch.where(tied, wanted * sign, wanted)
                torch.testing.assert_close(grid[..., row, column], wanted, rtol=1e-9, atol=1e-12)


def test_stored_weights_and_computed_ones_are_compared() -> None:
    first, second = pair()
    stored = regard.AttentionMatrix.from_weights(second.dense())
    assert torch.equal((first - stored).dense(), (first - second).dense())
    torch.testing.assert_close((first - stored).pool(4, 4, "max"), (first - second).pool(4, 4, "max"))
    assert (stored - stored).pool(3, 3, "sum").abs().max() == 0
    wide = regard.AttentionMatrix.from_weights(torch.eye(3, dtype=torch.float64))
    assert (regard.AttentionMatrix.from_weights(torch.eye(3)) - wide).dtype == torch.float64


def test_a_long_difference_never_holds_queries_times_keys() -> None:
    first, second = (regard.matrix(*torch.randn(2, 1, 1, 6000, 8), mask="causal") for _ in range(2))
    largest = max(allocations(lambda: (first - second)[0, 0].pool(16, 16)))
    assert 0 < largest < 6000 * 6000  # of float32 numbers, a quarter of all pairs


def test_statistics_of_weights_are_refused() -> None:
    first, second = pair()
    difference = first - second
    for name in ("entropy", "peak", "topk", "distance", "lse", "mass", "similarity", "survey"):
        with pytest.raises(AttributeError, match=f"{name} has no meaning for a signed difference.*D.first.{name}"):
            getattr(difference, name)
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        difference.colour  # noqa: B018
    with pytest.raises(TypeError):
        first - 1


def test_other_shapes_and_grids_are_refused() -> None:
    first, second = pair()
    with pytest.raises(ValueError, match=r"two matrices of one shape, got \(2, 3, 37, 41\) and \(3, 37, 41\).*compare"):
        first - second[0]
    with pytest.raises(ValueError, match="how must be one of mean, max, sum, got 'min'"):
        (first - second).pool(2, 2, "min")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rows"):
        (first - second).pool(0, 2)
    empty = regard.matrix(torch.zeros(1, 0, 4), torch.zeros(1, 3, 4), query_start=0)
    with pytest.raises(ValueError, match="has no cells to pool"):
        (empty - empty).pool(2, 2)


def test_tokens_that_differ_are_written_as_both() -> None:
    q = torch.randn(3, 4)
    first = regard.matrix(q, q, query_tokens=["The", "Ġcat", "Ġsat"], key_tokens=["The", "Ġcat", "Ġsat"])
    second = regard.matrix(q, q, query_tokens=["The", "Ġdog", "Ġsat"])
    difference = first - second
    assert difference.query_tokens is not None
    assert token_labels(difference.query_tokens) == ["The", "·cat / ·dog", "·sat"]
    assert difference.key_tokens == first.key_tokens
    assert (first - first).query_tokens == first.query_tokens


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf", "html", "npz", "csv"])
@pytest.mark.parametrize("heads", [1, 3, 60])
def test_pictures_and_files(tmp_path: Path, suffix: str, heads: int) -> None:
    tensors = torch.randn(2, 2, heads, 6, 4)
    first, second = (regard.matrix(each, each, mask="causal") for each in tensors)
    difference = (first - second)[0] if heads < 60 else first - second
    difference.save(tmp_path / f"difference.{suffix}", title="first less second")
    content = (tmp_path / f"difference.{suffix}").read_bytes()
    assert content
    if suffix == "npz":
        with np.load(tmp_path / "difference.npz") as file:
            np.testing.assert_array_equal(file["differences"], difference.dense().numpy())
    if suffix == "csv":
        lines = content.decode().splitlines()
        assert lines[0].endswith(",difference")
        assert len(lines) == 1 + 21 * int(np.prod(difference.shape[:-2]))


def test_a_difference_is_shown_in_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    weights = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
    first, second = (regard.AttentionMatrix.from_weights(each) for each in (weights, weights.flip(-1)))
    (first - second).show(title="difference")
    text = capsys.readouterr().out
    assert "-0.5" in text.replace("−", "-")
    assert "first less second: above zero where the first gives more" in " ".join(text.split())
    assert "-1 ≡=~-·░▒▓█ 1" in text.replace("−", "-")
    assert "<iframe" in (first - second)._repr_html_()
