"""Captures in files: all that makes the weights, the tokens, the checks and the refusals come back."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention
from torch.testing import assert_close

import regard
from regard.inspection.capture import Capture, capture
from regard.inspection.load import load


def through(c: Capture, path: Path) -> Capture:
    c.save(path / "run.safetensors")
    found = load(path / "run.safetensors")
    assert isinstance(found, Capture)
    return found


@torch.no_grad()
def test_choices_and_refusals(tmp_path: Path) -> None:
    layer = regard.nn.MultiHeadAttention(16, 4, mask="causal")
    cache = regard.nn.KVCache(window=3)
    model = nn.ModuleDict({"attention": layer})
    layer(torch.randn(1, 8, 16), cache=cache)
    with capture(model, heads=[1, 3], dtype=torch.float16) as c:
        layer(torch.randn(1, 5, 16))
        layer(torch.randn(1, 1, 16), cache=cache)
    found = through(c, tmp_path)
    assert repr(found) == repr(c)
    assert "rounded to float16" in repr(found)
    assert found.refused == c.refused != {}
    assert found.numbers(0) == (1, 3)
    assert torch.equal(found[0, 3].dense(), c[0, 3].dense())
    with pytest.raises(ValueError, match="attention#2 cannot be shown: its cache has let go of keys"):
        found[1]


class Several(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


SPECS: dict[str, dict[str, Any]] = {
    "alibi, sink": {"bias": regard.biases.ALiBi(4), "normalizer": regard.normalizers.Softmax(0.5)},
    "t5": {"bias": lambda: regard.nn.T5(4), "mask": regard.masks.Window(3, 0)},
    "additive": {"score": lambda: regard.nn.Additive(4, 6), "mask": "causal"},
    "sparse": {"normalizer": regard.normalizers.Sparsemax(), "temperature": 0.4},
}


@pytest.mark.parametrize("heads", [None, [1, 2]])
def test_layers_of_regard(heads: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    parts = [{k: p() if callable(p) and not isinstance(p, type) else p for k, p in s.items()} for s in SPECS.values()]
    model = Several(*(regard.nn.MultiHeadAttention(16, 4, **part) for part in parts))
    c = capture(model, torch.randn(2, 9, 16), heads=heads)
    found = through(c, tmp_path)
    assert repr(found) == repr(c)
    for ours, theirs in zip(found, c, strict=True):
        assert_close(ours.dense(), theirs.dense(), atol=1e-6, rtol=1e-6)


class Flex(nn.Module):
    def __init__(self, **functions: Any) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, x: Tensor) -> Any:
        return flex_attention(x, x, x, **self.functions)


@pytest.mark.filterwarnings("ignore:.*flex_attention.*")
def test_functions_of_flex(tmp_path: Path) -> None:
    x = torch.randn(1, 2, 16, 8)
    c = capture(Flex(), x)
    assert_close(through(c, tmp_path)[0].dense(), c[0].dense())
    changed = capture(Flex(score_mod=lambda score, b, h, i, j: score + i - j), x)
    with pytest.raises(ValueError, match=r"^Flex: the score .* is changed by a function, which a file cannot hold"):
        changed.save(tmp_path / "run.safetensors")
    assert isinstance(load(tmp_path / "run.safetensors"), Capture)  # the one that was there


def test_a_capture_of_a_loaded_one_is_done(tmp_path: Path) -> None:
    found = through(capture(Flex(), torch.randn(1, 2, 16, 8)), tmp_path)
    with pytest.raises(RuntimeError, match="this capture is done; begin another"), found:
        pass
    with pytest.raises(TypeError, match="a safetensors file takes no options, got title"):
        found.save(tmp_path / "run.safetensors", title="mine")
