"""T5's buckets, its table of biases and its whole attention layer, against transformers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

pytest.importorskip("transformers")

from transformers import DynamicCache, T5Config
from transformers.models.t5.modeling_t5 import T5Attention

import regard
from regard import biases, masks, scores
from regard.spec.plane import Plane

BATCH, HEADS, QUERIES, KEYS, WIDTH, HIDDEN = 2, 3, 37, 53, 5, 11
OFFSETS = torch.arange(-5000, 5001)


def t5_attention(bidirectional: bool, buckets: int, max_distance: int) -> T5Attention:
    config = T5Config(
        d_model=HIDDEN,
        d_kv=WIDTH,
        num_heads=HEADS,
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=max_distance,
        is_decoder=not bidirectional,
        dropout_rate=0.0,
        attn_implementation="eager",
    )
    return T5Attention(config, has_relative_attention_bias=True, layer_idx=0).double()


# At 939, with 32 buckets one way or 64 both ways, a logarithm in float64 gives another bucket than theirs in float32.
@pytest.mark.parametrize("max_distance", [20, 33, 100, 128, 256, 939, 1024])
@pytest.mark.parametrize("buckets", [8, 16, 32, 64])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_buckets(bidirectional: bool, buckets: int, max_distance: int) -> None:
    """Integers, so equal. Their offsets are key minus query, ours query minus key."""
    table = torch.zeros(buckets, 1)
    if max_distance <= buckets // (4 if bidirectional else 2):
        # the one bucket per offset already reaches further: their logarithm of max_distance turns negative
        with pytest.raises(ValueError, match="max_distance"):
            biases.T5(table, bidirectional, max_distance)
        return
    ours = biases.T5(table, bidirectional, max_distance).bucket(OFFSETS)
    theirs = T5Attention._relative_position_bucket(-OFFSETS, bidirectional, buckets, max_distance)
    assert torch.equal(ours, theirs)
    assert ours.unique().numel() > buckets // 2


@pytest.mark.parametrize("past", [0, 13])
@pytest.mark.parametrize("buckets, max_distance", [(8, 20), (32, 128)])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_values(bidirectional: bool, buckets: int, max_distance: int, past: int) -> None:
    """The biases that a real layer adds; copies of table entries, so equal."""
    layer = t5_attention(bidirectional, buckets, max_distance)
    theirs = layer.compute_bias(QUERIES, KEYS, past_seen_tokens=past).detach()
    bias = biases.T5(layer.relative_attention_bias.weight.detach(), bidirectional, max_distance)
    plane = Plane(1, HEADS, 1, QUERIES, KEYS, torch.tensor([past]))
    ours = bias.values(plane.all).flatten(0, 1)
    assert theirs.shape == (1, HEADS, QUERIES, KEYS)
    assert torch.equal(ours, theirs[0])
    pairs = plane.pairs(slice(5, 18), slice(7, 30))
    form = bias.lower(plane, torch.float64)
    cut = tuple(operand.cut(operand.tensor, pairs) for operand in form.operands)
    assert torch.equal(form.evaluate(pairs, None, cut).flatten(0, 1), theirs[0, :, 5:18, 7:30])


def weights(draw: Callable[..., Tensor], buckets: int) -> dict[str, Tensor]:
    inner = HEADS * WIDTH
    return {
        "hidden": draw(BATCH, QUERIES, HIDDEN),
        "q.weight": draw(inner, HIDDEN) / HIDDEN,
        "k.weight": draw(inner, HIDDEN),
        "v.weight": draw(inner, HIDDEN),
        "o.weight": draw(HIDDEN, inner),
        "relative_attention_bias.weight": draw(buckets, HEADS),
    }


def heads(x: Tensor, weight: Tensor) -> Any:
    return (x @ weight.mT).unflatten(-1, (HEADS, WIDTH)).transpose(1, 2)


@pytest.mark.parametrize("buckets, max_distance", [(8, 20), (32, 128)])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_self_attention_layer(
    engine: str,
    draw: Callable[..., Tensor],
    agree: Callable[..., None],
    bidirectional: bool,
    buckets: int,
    max_distance: int,
) -> None:
    """An encoder's layer with padded keys, and a decoder's with a causal mask."""
    layer = t5_attention(bidirectional, buckets, max_distance)
    names = [name for name, _ in layer.named_parameters()]
    lengths = torch.tensor([29, QUERIES])
    mask = masks.Lengths(lengths) if bidirectional else masks.Causal()
    padded = (torch.arange(QUERIES) >= lengths[:, None])[:, None, None]
    future = torch.ones(QUERIES, QUERIES, dtype=torch.bool).triu(1)
    added = torch.zeros(BATCH, 1, QUERIES, QUERIES, dtype=torch.float64)
    added = added.masked_fill(padded if bidirectional else future, torch.finfo(torch.float64).min)

    def ours(hidden: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, table: Tensor) -> Tensor:
        out: Tensor = regard.attend(
            heads(hidden, q),
            heads(hidden, k),
            heads(hidden, v),
            score=scores.Dot(),
            bias=biases.T5(table, bidirectional, max_distance),
            mask=mask,
            engine=engine,
        )
        return out.transpose(1, 2).flatten(2) @ o.mT

    def theirs(hidden: Tensor, *parameters: Tensor) -> Any:
        return functional_call(layer, dict(zip(names, parameters, strict=True)), (hidden,), {"mask": added})[0]

    inputs = weights(draw, buckets)
    assert list(inputs)[1:] == names
    agree(ours, theirs, inputs)


def test_layer_with_a_past(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None]) -> None:
    """A decoder's layer whose queries stand behind the keys of its cache."""
    past, buckets, max_distance = KEYS - QUERIES, 32, 128
    layer = t5_attention(False, buckets, max_distance)
    names = [name for name, _ in layer.named_parameters()]
    future = torch.ones(QUERIES, KEYS, dtype=torch.bool).triu(past + 1)
    added = torch.zeros(BATCH, 1, QUERIES, KEYS, dtype=torch.float64)
    added = added.masked_fill(future, torch.finfo(torch.float64).min)

    def ours(
        past_key: Tensor, past_value: Tensor, hidden: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, table: Tensor
    ) -> Tensor:
        out: Tensor = regard.attend(
            heads(hidden, q),
            torch.cat([past_key, heads(hidden, k)], 2),
            torch.cat([past_value, heads(hidden, v)], 2),
            score=scores.Dot(),
            bias=biases.T5(table, False, max_distance),
            mask="causal",
            engine=engine,
        )
        return out.transpose(1, 2).flatten(2) @ o.mT

    def theirs(past_key: Tensor, past_value: Tensor, hidden: Tensor, *parameters: Tensor) -> Any:
        cache = DynamicCache()
        cache.update(past_key, past_value, 0)
        named = dict(zip(names, parameters, strict=True))
        return functional_call(layer, named, (hidden,), {"mask": added, "past_key_values": cache})[0]

    kept = {"past_key": draw(BATCH, HEADS, past, WIDTH), "past_value": draw(BATCH, HEADS, past, WIDTH)}
    agree(ours, theirs, kept | weights(draw, buckets))
