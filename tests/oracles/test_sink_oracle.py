"""`Softmax(sink=...)` against the attention of gpt-oss in transformers."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

pytest.importorskip("transformers")

from transformers import GptOssConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention, GptOssRotaryEmbedding, eager_attention_forward

import regard
from regard import masks, normalizers, positions, scores
from regard.spec.positions import YaRN

BATCH, KV_HEADS, GROUP, LENGTH, WIDTH = 2, 3, 5, 17, 14
HEADS = KV_HEADS * GROUP

pytestmark = pytest.mark.usefixtures("double")


def hidden_as_numbers(visible: Tensor) -> Tensor:
    return torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(torch.float64).min)


@pytest.mark.parametrize("size", [1.0, 20.0, -20.0])
def test_eager_attention(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None], size: float) -> None:
    """Sinks that take a share, nearly everything, or nearly nothing; heads in groups; a window."""
    before = 6
    offset = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    added = hidden_as_numbers((offset >= 0) & (offset <= before))

    def ours(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor) -> Tensor:
        return regard.attend(
            q, k, v, mask=masks.Window(before, 0), normalizer=normalizers.Softmax(sinks), engine=engine
        )

    def theirs(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor) -> Any:
        module = SimpleNamespace(sinks=sinks, num_key_value_groups=GROUP, training=False)
        return eager_attention_forward(module, q, k, v, added, scaling=WIDTH**-0.5)[0].transpose(1, 2)

    inputs = {
        "query": draw(BATCH, HEADS, LENGTH, WIDTH),
        "key": draw(BATCH, KV_HEADS, LENGTH, WIDTH),
        "value": draw(BATCH, KV_HEADS, LENGTH, 3),
        "sinks": draw(HEADS) + (0.0 if size == 1.0 else size),
    }
    agree(ours, theirs, inputs)


def test_layer(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None]) -> None:
    """The whole attention layer: rotary positions stretched by YaRN, grouped heads, sinks, causal."""
    inner = 11
    rope = {
        "rope_type": "yarn",
        "rope_theta": 150000.0,
        "factor": 32.0,
        "original_max_position_embeddings": 4096,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
    }
    config = GptOssConfig(
        hidden_size=inner,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=WIDTH,
        num_hidden_layers=1,
        attention_bias=False,
        attn_implementation="eager",
        rope_parameters=rope,
    )
    layer = GptOssAttention(config, layer_idx=0)
    names = ["q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight", "sinks"]
    assert {name for name, _ in layer.named_parameters()} == set(names)
    added = hidden_as_numbers(torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril())
    stretch = YaRN(32.0, original_length=4096, beta_fast=32.0, beta_slow=1.0, truncate=False)

    def heads(x: Tensor, weight: Tensor) -> Any:
        return (x @ weight.mT).unflatten(-1, (-1, WIDTH)).transpose(1, 2)

    def ours(hidden: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, sinks: Tensor) -> Tensor:
        query, key = (positions.rotary(heads(hidden, w), base=150000.0, stretch=stretch) for w in (q, k))
        out = regard.attend(
            query,
            key,
            heads(hidden, v),
            score=scores.ScaledDot(),
            mask="causal",
            normalizer=normalizers.Softmax(sinks),
            engine=engine,
        )
        return out.transpose(1, 2).flatten(2) @ o.mT

    def theirs(hidden: Tensor, *parameters: Tensor) -> Any:
        turns = GptOssRotaryEmbedding(config)(hidden, torch.arange(LENGTH)[None])
        named = dict(zip(names, parameters, strict=True))
        return functional_call(layer, named, (hidden, turns, added))[0]

    inputs = {
        "hidden": draw(BATCH, LENGTH, inner),
        "q": draw(HEADS * WIDTH, inner) / 3,
        "k": draw(KV_HEADS * WIDTH, inner) / 3,
        "v": draw(KV_HEADS * WIDTH, inner),
        "o": draw(inner, HEADS * WIDTH),
        "sinks": draw(HEADS),
    }
    agree(ours, theirs, inputs)
