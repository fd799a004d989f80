"""Captures that are larger than the memory they may have."""

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.inspection.capture import Capture, capture
from regard.inspection.capture.spill import AppendedTensor
from regard.inspection.load import load


class Layered(nn.Module):
    """Five layers with grouped heads."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(regard.nn.MultiHeadAttention(32, 4, kv_heads=2) for _ in range(5))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


def mapped(tensor: Tensor) -> bool:
    """Whether a tensor lies in a file that is mapped."""
    place = tensor.data_ptr()
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, *rest = line.split()
        first, last = (int(part, 16) for part in span.split("-"))
        if first <= place < last:
            return len(rest) > 4 and (".safetensors" in line or "regard-" in line or "(deleted)" in line)
    return False


needs_maps = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks into /proc")


@needs_maps
@pytest.mark.parametrize("budget", [0, 30_000, 10**9])
@torch.no_grad()
def test_what_is_above_the_budget_is_in_a_file(budget: int) -> None:
    torch.manual_seed(0)
    model, x = Layered(), torch.randn(2, 50, 32)
    want = capture(model, x)
    c = capture(model, x, spill=budget)
    assert torch.equal(c.output, want.output)
    kept: list[Any] = c._layers
    there = [mapped(layer.query) and mapped(layer.key) for layer in kept]
    assert there == {0: [True] * 5, 30_000: [True, True, True, True, False], 10**9: [False] * 5}[budget]
    for found, theirs in zip(c, want, strict=True):
        assert torch.equal(found.dense(), theirs.dense())
        assert torch.equal(found.received(), theirs.received())


@torch.no_grad()
def test_generation() -> None:
    torch.manual_seed(0)
    model = regard.nn.LanguageModel(23, layers=2, d_model=16, heads=4, position=regard.nn.Rotary(4)).eval()
    tokens = torch.randint(0, 23, (2, 5))
    with capture(model) as want:
        model.generate(tokens, 20)
    for budget in (0, 2000, 5000):
        with capture(model, spill=budget) as c:
            model.generate(tokens, 20)
        assert len(c) == 2
        for found, theirs in zip(c, want, strict=True):
            assert torch.equal(found.dense(), theirs.dense())


@needs_maps
@torch.no_grad()
def test_a_named_file(tmp_path: Path) -> None:
    model, x = Layered(), torch.randn(2, 50, 32)
    c = capture(model, x, tokens=list("ab" * 25), spill=tmp_path / "run.safetensors")
    kept: list[Any] = c._layers
    assert all(mapped(layer.query) and mapped(layer.key) for layer in kept)
    assert [path.name for path in tmp_path.iterdir()] == ["run.safetensors"]
    again = load(tmp_path / "run.safetensors")
    assert isinstance(again, Capture)
    assert again[4].key_tokens == c[4].key_tokens == tuple("ab" * 25)
    for found, theirs in zip(c, again, strict=True):
        assert torch.equal(found.dense(), theirs.dense())
    assert torch.equal(c.output, model(x))


def test_an_error_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="tokens has 3 entries"):
        capture(Layered(), torch.randn(1, 4, 32), tokens=list("abc"), spill=tmp_path / "run.safetensors")
    with pytest.raises(ValueError, match="query must be"):
        capture(Layered(), torch.randn(1, 4, 31), spill=tmp_path / "run.safetensors")
    assert list(tmp_path.iterdir()) == []


@needs_maps
def test_the_temporary_file_goes_with_the_capture() -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = open_files()
    c = capture(Layered(), torch.randn(1, 40, 32), spill=0)
    assert c[0].shape == (1, 4, 40, 40)
    del c
    gc.collect()
    assert open_files() == before


def test_growing() -> None:
    make = torch.Generator().manual_seed(0)
    chunks = [torch.randn(2, 3, size, 4, generator=make) for size in (5, 1, 1, 1, 1, 1, 2, 1, 0, 1)]
    appended = AppendedTensor([chunks[0]])
    for number, piece in enumerate(chunks[1:], 1):
        appended.append(piece)
        whole = torch.cat(chunks[: number + 1], -2)
        assert len(appended) == whole.shape[-2]
        assert torch.equal(appended.joined(), whole)
        assert all(appended.ends_with(whole[..., -count:, :]) for count in (1, 3, whole.shape[-2]))
        assert not appended.ends_with(whole[..., :-1, :])
        if number == 4:
            pending = appended.pending()
            assert pending is not None
            appended.spilled(pending)
            assert appended.resident == 0
    order = appended.order(appended.joined()[[1, 1]])
    assert order is not None
    assert order.tolist() == [1, 1]
    assert appended.order(appended.joined() + 1) is None
    appended.reorder(order)
    assert torch.equal(appended.joined(), whole[[1, 1]])
