"""ALiBi's slopes, and attention with them, against BLOOM and MPT of transformers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

pytest.importorskip("transformers")

from transformers import BloomConfig, MptConfig
from transformers.models.bloom.modeling_bloom import BloomAttention, build_alibi_tensor
from transformers.models.mpt.modeling_mpt import MptAttention, build_mpt_alibi_tensor

import regard
from regard import biases, masks

BATCH, LENGTH, WIDTH = 2, 19, 5
EPS = torch.finfo(torch.float64).eps

pytestmark = pytest.mark.usefixtures("double")


@pytest.mark.parametrize("heads", range(1, 49))
def test_slopes(heads: int) -> None:
    ours = biases.ALiBi(heads).slopes
    bloom = build_alibi_tensor(torch.ones(1, 2), heads, torch.float64)[:, 0, 1]
    mpt = -build_mpt_alibi_tensor(heads, 2)[:, 0, 0]
    # They round 2^(−8/n) and raise it to a power of at most n, so n roundings of the base and one of the result.
    budget = (heads + 1) * EPS
    for theirs in (bloom, mpt):
        assert theirs.dtype == ours.dtype == torch.float64
        torch.testing.assert_close(ours, theirs, atol=0, rtol=budget)


def fused(draw: Callable[..., Tensor], heads: int) -> dict[str, Tensor]:
    inner = heads * WIDTH
    return {
        "hidden": draw(BATCH, LENGTH, inner),
        "w_in": draw(3 * inner, inner) / inner**0.5,
        "w_out": draw(inner, inner) / inner**0.5,
    }


@pytest.mark.parametrize("heads", [1, 2, 3, 7, 12])
def test_bloom_layer(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None], heads: int) -> None:
    """BLOOM adds slope · j, which is −slope · (i − j) plus a constant of the row; causal, and padded on the left."""
    config = BloomConfig(hidden_size=heads * WIDTH, n_head=heads, hidden_dropout=0.0, attention_dropout=0.0)
    layer = BloomAttention(config, layer_idx=0)
    real = torch.arange(LENGTH) >= torch.tensor([[0], [4]])
    visible = real[:, None, None] & torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    added = torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(torch.float64).min)
    alibi = build_alibi_tensor(real.long(), heads, torch.float64)

    def ours(hidden: Tensor, w_in: Tensor, w_out: Tensor) -> Tensor:
        q, k, v = (hidden @ w_in.mT).unflatten(-1, (heads, 3, WIDTH)).permute(3, 0, 2, 1, 4)
        mask = masks.Causal() & masks.Dense(real[:, None, None])
        out: Tensor = regard.attend(q, k, v, mask=mask, bias=biases.ALiBi(heads), engine=engine)
        return (out.transpose(1, 2).flatten(2) @ w_out.mT + hidden)[real]

    def theirs(hidden: Tensor, w_in: Tensor, w_out: Tensor) -> Any:
        zeros = {"query_key_value.bias": w_in.new_zeros(len(w_in)), "dense.bias": w_out.new_zeros(len(w_out))}
        named = {"query_key_value.weight": w_in, "dense.weight": w_out} | zeros
        # a query that is padding sees no key; what it gives there is nobody's concern
        return functional_call(layer, named, (hidden, hidden, alibi, added))[0][real]

    agree(ours, theirs, fused(draw, heads))


@pytest.mark.parametrize("heads", [1, 2, 3, 7, 12])
def test_mpt_layer(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None], heads: int) -> None:
    """MPT adds slope · (j − last), again −slope · (i − j) plus a constant of the row."""
    layer = MptAttention(MptConfig(d_model=heads * WIDTH, n_heads=heads), layer_idx=0)
    hidden_pairs = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)[None, None]

    def ours(hidden: Tensor, w_in: Tensor, w_out: Tensor) -> Tensor:
        q, k, v = (hidden @ w_in.mT).unflatten(-1, (3, heads, WIDTH)).permute(2, 0, 3, 1, 4)
        out: Tensor = regard.attend(q, k, v, mask="causal", bias=biases.ALiBi(heads), engine=engine)
        return out.transpose(1, 2).flatten(2) @ w_out.mT

    def theirs(hidden: Tensor, w_in: Tensor, w_out: Tensor) -> Any:
        named = {"Wqkv.weight": w_in, "out_proj.weight": w_out}
        alibi = build_mpt_alibi_tensor(heads, LENGTH)
        return functional_call(layer, named, (hidden, alibi), {"attention_mask": hidden_pairs})[0]

    agree(ours, theirs, fused(draw, heads))


def test_both_directions(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None]) -> None:
    """Without a causal mask the distance counts, whichever side the key is on; the slopes are BLOOM's."""
    heads = 7
    slopes = build_alibi_tensor(torch.ones(1, 2), heads, torch.float64)[:, 0, 1]
    distance = (torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)).abs()

    def ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return regard.attend(q, k, v, bias=biases.ALiBi(heads), engine=engine)

    def theirs(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        added = -slopes[:, None, None] * distance
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=added.expand(BATCH, -1, -1, -1))

    agree(ours, theirs, {name: draw(BATCH, heads, LENGTH, WIDTH) for name in ("query", "key", "value")})
