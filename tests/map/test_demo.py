"""The demo's heads have the structure that its page promises, at the places that it names."""

import pytest
import torch

from regard.map import demo
from regard.map.native_view import NativeHeadView, native_call, native_head_view
from regard.map.views import LayerView

N = 3000


@pytest.fixture(scope="module")
def rows() -> list[int]:
    return [N // 3 + 5, N // 2 + 7, (9 * N) // 10]


@pytest.fixture(scope="module")
def weights(rows: list[int]) -> dict[str, torch.Tensor]:
    """Some rows of every head."""
    (layer,) = demo.view(N).layers
    assert layer.head_names == demo.HEADS
    return {name: head_view(layer, name).lines(rows).clamp(min=0) for name in demo.HEADS}


def head_view(layer: LayerView, name: str) -> NativeHeadView:
    head, call = layer.head(0, demo.HEADS.index(name)), native_call(layer.matrix)
    assert call is not None
    found = native_head_view(call, head)
    assert found is not None
    return found


def test_band(weights: dict[str, torch.Tensor], rows: list[int]) -> None:
    for own, row in zip(weights["band"], rows, strict=True):
        assert int(own.argmax()) == row
        assert float(own[row - 8 : row + 1].sum()) > 0.6


def test_stripes(weights: dict[str, torch.Tensor], rows: list[int]) -> None:
    period = demo.period(N)
    for own, row in zip(weights["stripes"], rows, strict=True):
        behind = [key for key in range(row + 1) if (key - 1 - row) % period == 0]
        assert len(behind) >= 2
        assert float(own[behind].sum()) > 0.99
        assert float(own[behind].min()) > 0.3 / len(behind)


def test_sink(weights: dict[str, torch.Tensor]) -> None:
    assert ((weights["sink"][:, 0] - 0.75).abs() < 0.1).all()


def test_documents(weights: dict[str, torch.Tensor], rows: list[int]) -> None:
    starts = demo.documents(N)
    assert len(starts) == 12
    assert starts[0] == 0
    for own, row in zip(weights["documents"], rows, strict=True):
        first = max(start for start in starts if start <= row)
        assert float(own[first : row + 1].sum()) > 0.99
        assert float(own.max()) * (row + 1 - first) < 4


def test_columns_and_even(weights: dict[str, torch.Tensor], rows: list[int]) -> None:
    assert (weights["columns"][:, :: demo.COLUMN].sum(-1) > 0.8).all()
    for own, row in zip(weights["even"], rows, strict=True):
        assert float(own.max()) * (row + 1) < 4


def test_mixed(weights: dict[str, torch.Tensor], rows: list[int]) -> None:
    for own, row in zip(weights["mixed"], rows, strict=True):
        assert 0.35 < float(own[0]) < 0.65
        assert 0.3 < float(own[row - 8 : row + 1].sum()) < 0.65


def test_needle() -> None:
    (layer,) = demo.view(N).layers
    row, column = demo.needle(N)
    grid = head_view(layer, "needle").grid(slice(0, N), slice(0, N), 1).max
    assert divmod(int(grid.argmax()), N) == (row, column)
    assert float(grid[row, column]) > 0.98 * (row + 1)
    grid[row] = 0
    assert float(grid.max()) < 8  # nothing else stands out
    assert layer.word("key", column) == "needle"
    assert layer.word("query", row) == "needle?"


def test_the_demo_is_the_same_each_time_and_of_any_length() -> None:
    one, two = (demo.view(16).layers[0] for _ in range(2))
    assert torch.equal(one.matrix.dense(), two.matrix.dense())
    assert one.tokens("key") == two.tokens("key")
    for wrong in (15, 1 << 21):
        with pytest.raises(ValueError, match="the demo has 16 to 1,048,576 tokens"):
            demo.view(wrong)
    with pytest.raises(TypeError, match="must be an int"):
        demo.view("x")  # type: ignore[arg-type]
