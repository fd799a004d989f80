"""Which layers and heads are kept, and in what type."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.testing import assert_close

import regard
from regard import biases, masks, normalizers
from regard.inspection.capture import capture


def encoder(layers: int = 4) -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 24, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).eval()


X = torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "layers, kept",
    [
        (2, [2]),
        ([0, 3], [0, 3]),
        (range(1, 3), [1, 2]),
        ("layers.1.self_attn", [1]),
        ("*.[13].*", [1, 3]),
        (["*.0.*", 2], [0, 2]),
        ("*", [0, 1, 2, 3]),
    ],
)
@torch.no_grad()
def test_layers(layers: Any, kept: list[int]) -> None:
    model = encoder()
    c = capture(model, X, layers=layers)
    assert c.layers == tuple(f"layers.{number}.self_attn" for number in kept)
    assert torch.equal(c.output, model(X))
    whole = capture(model, X)
    for place, number in enumerate(kept):
        assert torch.equal(c[place].dense(), whole[number].dense())


def test_layers_that_there_are_not() -> None:
    names = ", ".join(f"layers.{number}.self_attn" for number in range(4))
    with pytest.raises(ValueError, match=f"layers: 'layers.0' made no call of attention; those that did are {names}"):
        capture(encoder(), X, layers=["layers.0", 1])
    with pytest.raises(ValueError, match=r"layers: layer 4 made no call of attention; those that did are layers\.0"):
        capture(encoder(), X, layers=[3, 4])


@pytest.mark.parametrize(
    "options, error, words",
    [
        ({"layers": [-1]}, ValueError, "layers count from 0, got -1; how many there are is not known"),
        ({"layers": []}, ValueError, "layers is empty: nothing would be captured; leave it out for all"),
        ({"layers": [1.5]}, TypeError, "layers must be numbers, names or patterns such as"),
        ({"heads": ["a"]}, TypeError, "a head must be an int, got str"),
        ({"heads": True}, TypeError, "a head must be an int, got bool"),
        ({"heads": X}, TypeError, r"got Tensor; if the model takes an argument of this name, write: with capture"),
        ({"tokens": X}, TypeError, r"got Tensor; if the model takes an argument of this name, write: with capture"),
        ({"dtype": torch.int8}, TypeError, "dtype must be one of torch's float types, such as torch.bfloat16"),
        ({"spill": 1.5}, TypeError, "spill must be a path or a number of bytes, got float"),
        ({"spill": -1}, ValueError, "spill must be at least 0, got -1"),
        ({"spill": "run.pt"}, ValueError, "names its format, one of safetensors; got 'run.pt'"),
        ({"spill": "nowhere/run.safetensors"}, FileNotFoundError, "spill: there is no folder"),
        ({"heads": 4}, ValueError, "layers.0.self_attn: heads: it has 4 heads, numbered from 0, and none is number 4"),
    ],
)
def test_choices_that_are_none(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        capture(encoder(), X, **options)


def test_arguments_of_the_model_with_these_names() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = encoder(1)

        def forward(self, *, tokens: Tensor, layers: int) -> Any:
            return self.inner(tokens)

    model = Named()
    with capture(model, tokens=list("abcdef"), heads=[1]) as c:
        model(tokens=X, layers=3)
    assert c[0].query_tokens == tuple("abcdef")
    assert c.numbers(0) == (1,)


class Attends(nn.Module):
    """One call of attend."""

    def forward(self, q: Tensor, k: Tensor, **spec: Any) -> Any:
        return regard.attend(q, k, k, **spec)


SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "mask": {"mask": torch.rand(2, 6, 7, 7, generator=torch.Generator().manual_seed(0)) > 0.3},
    "masks": {"mask": masks.Dense(torch.rand(6, 7, 7) > 0.3) & masks.Window(4, None) | ~masks.Global([2])},
    "blocks": {"mask": masks.Blocks(4, torch.rand(6, 2, 2) > 0.3)},
    "bias": {"bias": torch.randn(1, 6, 7, 7), "temperature": torch.rand(6) + 0.5},
    "biases": {"bias": biases.Dense(torch.randn(6, 7, 7)) + biases.Dense(torch.randn(7, 7))},
    "sink": {"normalizer": normalizers.Softmax(torch.randn(6)), "mask": "causal"},
    "alibi": {"bias": biases.ALiBi(6), "normalizer": normalizers.Softmax(torch.randn(6))},
    "function": {"mask": masks.Where(lambda b, h, i, j: (i + j) % (h + 2) != 1)},
    "per head": {"score": regard.scores.General(torch.randn(6, 4, 4)), "temperature": torch.rand(6) + 0.5},
}


@pytest.mark.parametrize("heads", [[0], [5], [1, 2], [0, 2, 4], [0, 1, 4], [0, 1, 2, 3, 4, 5]], ids=str)
@pytest.mark.parametrize("name", SPECS)
def test_heads(name: str, heads: list[int]) -> None:
    torch.manual_seed(0)
    q, k = torch.randn(2, 6, 7, 4), torch.randn(2, 3, 7, 4)
    want = capture(Attends(), q, k, **SPECS[name])
    c = capture(Attends(), q, k, heads=heads, **SPECS[name])
    assert c.numbers(0) == tuple(heads)
    assert c[0].shape == (2, len(heads), 7, 7)
    assert_close(c[0].dense(), want[0].dense()[:, heads])
    for head in heads:
        assert_close(c[0, head].dense(), want[0, head].dense())
    assert_close(c[0, heads].dense(), want[0].dense()[:, heads])
    assert float(repr(c).split()[-1]) < 1e-5
    if len(heads) < 6:
        missing = next(head for head in range(6) if head not in heads)
        with pytest.raises(IndexError, match=f"head {missing} of Attends was not captured; captured are {heads[0]}"):
            c[0, missing]


def test_only_the_keys_of_the_heads_are_stored() -> None:
    q, k = torch.randn(2, 6, 7, 4), torch.randn(2, 3, 7, 4)
    kept: Any = capture(Attends(), q, k, heads=[2, 3])._layers[0]  # of one group
    assert (kept.query.shape[1], kept.key.shape[1]) == (2, 1)
    kept = capture(Attends(), q, k, heads=[0, 1, 4, 5])._layers[0]
    assert (kept.query.shape[1], kept.key.shape[1]) == (4, 2)


def test_repeated_keys_are_stored_once() -> None:
    class Repeats(nn.Module):
        def forward(self, q: Tensor, k: Tensor) -> Tensor:
            k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
            return scaled_dot_product_attention(q, k, k)

    q, k = torch.randn(2, 6, 7, 4), torch.randn(2, 3, 7, 4)
    c = capture(Repeats(), q, k)
    kept: Any = c._layers[0]
    assert kept.key.shape == k.shape
    assert torch.equal(kept.key, k)
    assert_close(c[0].dense(), regard.matrix(q, k).dense())
    for keys in (k[:, :1].expand(2, 6, 7, 4), k[:, [0, 0, 1, 2, 2, 2]], k[:, [0, 1, 0, 1, 0, 1]]):
        other = capture(Repeats(), q, keys)
        assert_close(other[0].dense(), regard.matrix(q, keys).dense())
    nearly = k.repeat_interleave(2, 1)
    nearly[1, 3, 5, 2] += 1e-6
    kept = capture(Repeats(), q, nearly)._layers[0]
    assert kept.key.shape[1] == 6


@torch.no_grad()
def test_type() -> None:
    model, x = encoder(2), 3 * X
    exact, c = capture(model, x), capture(model, x, dtype=torch.bfloat16)
    kept: Any = c._layers[1]
    assert kept.query.dtype == kept.key.dtype == torch.bfloat16
    assert torch.equal(c.output, exact.output)
    off = float((c[1].dense() - exact[1].dense()).abs().max())
    assert 0 < off < 0.02
    assert kept.rounded == pytest.approx(off, rel=1e-4)  # with so few rows all are looked at
    title, head, *_ = repr(c).splitlines()
    assert title == "<Capture of TransformerEncoder: 2 layers, queries and keys rounded to bfloat16>"
    assert head.endswith("row sums off by  rounding moved by")
    wider = capture(model, x, dtype=torch.float64)
    assert "rounded" not in repr(wider)
    assert_close(wider[1].dense().float(), exact[1].dense(), atol=1e-6, rtol=1e-5)
