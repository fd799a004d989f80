"""Capture of nn.MultiheadAttention, nn.TransformerEncoder and nn.TransformerDecoder, fast paths on."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from regard.inspection.capture import capture

PADDING = torch.zeros(3, 8, dtype=torch.bool)
PADDING[1, 5:] = PADDING[2, 7:] = True
HIDDEN = torch.ones(8, 8, dtype=torch.bool).triu(2)
MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "padding": {"key_padding_mask": PADDING},
    "hidden": {"attn_mask": HIDDEN},
    "both": {"attn_mask": HIDDEN, "key_padding_mask": PADDING},
    "each head": {"attn_mask": torch.stack([HIDDEN, HIDDEN.T] * 6)},
    "added": {"attn_mask": torch.randn(8, 8, generator=torch.Generator().manual_seed(3))},
}


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("options", [{}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"bias": False}], ids=str)
@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("training", [True, False])
def test_weights_are_those_that_torch_returns(
    masks: dict[str, Any], options: dict[str, Any], need_weights: bool, training: bool
) -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(16, 4, batch_first=True, **options).train(training)
    x = torch.randn(3, 8, 16)
    with torch.set_grad_enabled(training):
        want = layer(x, x, x, need_weights=need_weights, **masks)
        c = capture(layer, x, x, x, need_weights=need_weights, **masks)
        weights = layer(x, x, x, average_attn_weights=False, **masks)[1]
    assert torch.equal(c.output[0], want[0])
    assert_close(c[0].dense(), weights, atol=1e-6, rtol=1e-5)
    fast = not training and not options and ("attn_mask" not in masks or masks["attn_mask"].dtype == torch.bool)
    assert ("fast path" in repr(c)) == fast


def test_dropout_does_not_show() -> None:
    layer, x = nn.MultiheadAttention(16, 4, dropout=0.5), torch.randn(8, 3, 16)
    torch.manual_seed(1)
    want = layer(x, x, x)[0]
    torch.manual_seed(1)
    c = capture(layer, x, x, x)
    assert torch.equal(c.output[0], want)
    assert_close(c[0].dense(), layer.eval()(x, x, x, average_attn_weights=False)[1], atol=1e-6, rtol=1e-5)


def test_keys_of_another_width_and_no_batch_axis() -> None:
    layer = nn.MultiheadAttention(16, 2, kdim=6, vdim=5)
    q, k, v = torch.randn(7, 16), torch.randn(4, 6), torch.randn(4, 5)
    c = capture(layer, q, k, v)
    assert_close(c[0].dense()[0], layer(q, k, v, average_attn_weights=False)[1], atol=1e-6, rtol=1e-5)


def _slow(encoder: nn.TransformerEncoder, x: Tensor, padding: Tensor | None, mask: Tensor | None) -> list[Tensor]:
    """The weights of every layer by the long way."""
    found = []
    for layer in encoder.layers:
        given = layer.norm1(x) if layer.norm_first else x
        attention: Any = layer.self_attn
        options = {"key_padding_mask": padding, "attn_mask": mask, "average_attn_weights": False}
        with torch.enable_grad():
            found.append(attention(given, given, given, **options)[1].detach())
            x = layer(x, src_mask=mask, src_key_padding_mask=padding)
    return found


@pytest.mark.parametrize("padding", [None, PADDING], ids=["all", "padded"])
@pytest.mark.parametrize("mask", [None, HIDDEN], ids=["full", "masked"])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("hooked", [True, False])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_encoder(training: bool, norm_first: bool, mask: Tensor | None, padding: Tensor | None, hooked: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 24, 0.0, batch_first=True, norm_first=norm_first)
    encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=not norm_first).train(training)
    for parameter in encoder.parameters():
        nn.init.normal_(parameter, std=0.4)
    handles = [part.register_forward_hook(lambda *_: None) for part in encoder.modules() if hooked]
    x = torch.randn(3, 8, 16)
    with torch.set_grad_enabled(training):
        want = encoder(x, mask=mask, src_key_padding_mask=padding)
        c = capture(encoder, x, mask=mask, src_key_padding_mask=padding)
    assert torch.equal(c.output, want)
    assert c.layers == tuple(f"layers.{number}.self_attn" for number in range(3))
    assert ("EncoderLayer, fast path" in repr(c)) == (not training and not hooked)
    for handle in handles:
        handle.remove()
    there = torch.ones(3, 1, 8, 1, dtype=torch.bool) if padding is None else ~padding.view(3, 1, 8, 1)
    for found, weights in zip(c, _slow(encoder, x, padding, mask), strict=True):
        assert_close(found.dense() * there, weights * there, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_encoder_and_decoder(training: bool) -> None:
    torch.manual_seed(0)
    model = nn.Transformer(16, 2, 2, 2, 24, 0.0, batch_first=True).train(training)
    source, target = torch.randn(3, 8, 16), torch.randn(3, 5, 16)
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    with torch.set_grad_enabled(training):
        want = model(source, target, tgt_mask=causal, tgt_is_causal=True)
        c = capture(model, source, target, tgt_mask=causal, tgt_is_causal=True, tokens=list("abcdefgh"))
    assert torch.equal(c.output, want)
    assert c.layers == (
        "encoder.layers.0.self_attn",
        "encoder.layers.1.self_attn",
        "decoder.layers.0.self_attn",
        "decoder.layers.0.multihead_attn",
        "decoder.layers.1.self_attn",
        "decoder.layers.1.multihead_attn",
    )
    first: Any = model.decoder.layers[0]
    weights = first.self_attn(target, target, target, attn_mask=causal, average_attn_weights=False)[1]
    assert_close(c["decoder.layers.0.self_attn"].dense(), weights, atol=1e-6, rtol=1e-5)
    x = first.norm1(target + first.self_attn(target, target, target, attn_mask=causal)[0])
    memory = model.encoder(source)
    weights = first.multihead_attn(x, memory, memory, average_attn_weights=False)[1]
    cross = c["decoder.layers.0.multihead_attn"]
    assert_close(cross.dense(), weights, atol=1e-5, rtol=1e-5)
    assert (cross.query_tokens, cross.key_tokens) == (None, tuple("abcdefgh"))
