"""`scores.SoftCapped` against the attention of Gemma 2 in transformers."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

pytest.importorskip("transformers")

from transformers import Gemma2Config
from transformers.models.gemma2.modeling_gemma2 import (
    Gemma2Attention,
    Gemma2RotaryEmbedding,
    eager_attention_forward,
)

import regard
from regard import masks, positions, scores

BATCH, KV_HEADS, GROUP, LENGTH, WIDTH = 2, 3, 5, 17, 14
HEADS = KV_HEADS * GROUP

pytestmark = pytest.mark.usefixtures("double")


@pytest.mark.parametrize("scale, cap", [(None, 50.0), (1.0, 2.0), (0.3, 0.5)])
def test_eager_attention(
    engine: str, draw: Callable[..., Tensor], agree: Callable[..., None], scale: float | None, cap: float
) -> None:
    visible = draw(BATCH, 1, LENGTH, LENGTH) > -0.5
    visible[..., 2] = True
    added = torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(torch.float64).min)
    module = SimpleNamespace(num_key_value_groups=GROUP, training=False, head_dim=WIDTH)

    def ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        score = scores.SoftCapped(scores.ScaledDot(scale), cap)
        return regard.attend(q, k, v, score=score, mask=visible, engine=engine)

    def theirs(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return eager_attention_forward(module, q, k, v, added, scaling=scale, softcap=cap)[0].transpose(1, 2)

    inputs = {
        "query": draw(BATCH, HEADS, LENGTH, WIDTH),
        "key": draw(BATCH, KV_HEADS, LENGTH, WIDTH),
        "value": draw(BATCH, KV_HEADS, LENGTH, 3),
    }
    agree(ours, theirs, inputs, order=2)


def test_layer(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None]) -> None:
    """The whole attention layer: its own scale, rotary positions, grouped heads, soft cap, causal."""
    inner, scalar, cap = 2 * HEADS, 13, 1.5
    config = Gemma2Config(
        hidden_size=inner,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=WIDTH,
        num_hidden_layers=1,
        query_pre_attn_scalar=scalar,
        attn_logit_softcapping=cap,
        attention_dropout=0.0,
        attn_implementation="eager",
    )
    layer = Gemma2Attention(config, layer_idx=0)
    names = ["q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"]
    assert {name for name, _ in layer.named_parameters()} == set(names)
    visible = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    added = torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(torch.float64).min)

    def heads(x: Tensor, weight: Tensor) -> Any:
        return (x @ weight.mT).unflatten(-1, (-1, WIDTH)).transpose(1, 2)

    def ours(hidden: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor) -> Tensor:
        query, key = (positions.rotary(heads(hidden, w)) for w in (q, k))
        score = scores.SoftCapped(scores.ScaledDot(scalar**-0.5), cap)
        out = regard.attend(query, key, heads(hidden, v), score=score, mask=masks.Causal(), engine=engine)
        return out.transpose(1, 2).flatten(2) @ o.mT

    def theirs(hidden: Tensor, *parameters: Tensor) -> Any:
        turns = Gemma2RotaryEmbedding(config)(hidden, torch.arange(LENGTH)[None])
        named = dict(zip(names, parameters, strict=True))
        return functional_call(layer, named, (hidden, turns, added))[0]

    inputs = {
        "hidden": draw(BATCH, LENGTH, inner),
        "q": draw(HEADS * WIDTH, inner) / 3,
        "k": draw(KV_HEADS * WIDTH, inner) / 3,
        "v": draw(KV_HEADS * WIDTH, inner),
        "o": draw(inner, HEADS * WIDTH),
    }
    agree(ours, theirs, inputs)
