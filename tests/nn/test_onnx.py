"""Layers and models by plain torch.onnx.export, with any batch and length, equal ours in ONNX Runtime."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

from regard import masks
from regard import nn as rnn
from tests.engine.onnx_runtime import DYNAMIC, IGNORED, assert_same, exported

pytestmark = [pytest.mark.filterwarnings(text) for text in IGNORED]
Draw = Callable[[int, int], list[Tensor]]


class Later(nn.Module):
    """A layer whose sequence begins at position 3."""

    def __init__(self) -> None:
        super().__init__()
        mask = masks.Causal() | masks.Prefix(5)
        self.layer = rnn.MultiHeadAttention(16, 4, mask=mask, position=rnn.Rotary(4))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x, query_start=3)
        return out


def floats(batch: int, length: int) -> list[Tensor]:
    return [torch.randn(batch, length, 16)]


def two(batch: int, length: int) -> list[Tensor]:
    return [torch.randn(batch, length, 16), torch.randn(batch, length + 2, 16)]


def tokens(batch: int, length: int) -> list[Tensor]:
    return [torch.randint(40, (batch, length))]


def pairs(batch: int, length: int) -> list[Tensor]:
    return [torch.randint(40, (batch, length)), torch.randint(40, (batch, length + 1))]


def language_model() -> nn.Module:
    """As Llama: rotary positions, grouped heads, RMS norms, a gated feed-forward layer."""
    position = rnn.Rotary(4)
    return rnn.LanguageModel(
        40, layers=2, d_model=16, heads=4, kv_heads=2, position=position, norm="rms", activation="swiglu"
    )


MODULES: dict[str, tuple[Callable[[], nn.Module], Draw]] = {
    "encoder": (lambda: rnn.Encoder(2, 16, 4), floats),
    "language model": (language_model, tokens),
    "transformer": (lambda: rnn.Transformer(40, layers=1, d_model=16, heads=2), pairs),
    "decoder": (lambda: rnn.Decoder(1, 16, 4, position=rnn.T5(4), norm="rms"), two),
    "later": (Later, floats),
    "learned positions": (
        lambda: rnn.LanguageModel(40, layers=1, d_model=16, heads=2, position=rnn.Learned(20, 16)),
        tokens,
    ),
    "additive": (lambda: rnn.MultiHeadAttention(16, 2, score=rnn.Additive(8, 6), normalizer=rnn.Sink(2)), floats),
}
SLOW = ("decoder", "later", "learned positions", "additive")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in MODULES]
)
def test_modules(name: str) -> None:
    make, draw = MODULES[name]
    module, inputs = make(), draw(2, 6)
    run = exported(module, inputs, tuple({0: DYNAMIC, 1: DYNAMIC} for _ in inputs))
    for given in (inputs, draw(3, 9), draw(1, 2)):
        (found,) = run(*given)
        with torch.no_grad():
            assert_same(found, module(*given), name)


def test_causal_attention_is_one_operator() -> None:
    layer, x = rnn.MultiHeadAttention(16, 4, mask="causal"), torch.randn(2, 6, 16)
    run = exported(layer, [x], ({0: DYNAMIC, 1: DYNAMIC},), opset=23)
    assert run.operators.count("Attention") == 1
    for given in (x, torch.randn(3, 11, 16)):
        assert_same(run(given)[0], layer(given))


def test_dropout_in_training_is_refused() -> None:
    layer, x = rnn.MultiHeadAttention(16, 4, dropout=0.1), torch.randn(2, 6, 16)
    with pytest.raises(Exception, match=r"dropped with probability 0.1.*call \.eval\(\) on the module"):
        exported(layer, [x], train=True)
