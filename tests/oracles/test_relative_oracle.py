"""`scores.Relative` against four implementations of transformers.

XLNet and Wav2Vec2-BERT's "relative" are Transformer-XL's form with u and v; Wav2Vec2-BERT's "relative_key" and SpeechT5
are Shaw's. Their tables differ in order and extent; `by_offset` brings each into ours: entry i − j + R for i − j.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

pytest.importorskip("transformers")

from transformers import Wav2Vec2BertConfig, XLNetConfig
from transformers.models.speecht5.modeling_speecht5 import SpeechT5Attention, SpeechT5RelativePositionalEncoding
from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import (
    Wav2Vec2BertRelPositionalEmbedding,
    Wav2Vec2BertSelfAttention,
)
from transformers.models.xlnet.modeling_xlnet import XLNetModel, XLNetRelativeAttention

import regard
from regard import masks, positions, scores

BATCH, HEADS, QUERIES, KEYS, WIDTH = 3, 2, 11, 17, 7
HIDDEN = HEADS * WIDTH
LENGTHS = torch.tensor([KEYS, 13, 5])

pytestmark = pytest.mark.usefixtures("double")


def by_offset(table: Tensor, reach: int, index: Callable[[Tensor], Tensor]) -> Tensor:
    """Rows of their table (axis −2) for the offsets −reach to reach, by their index of an offset i − j."""
    return table[..., index(torch.arange(-reach, reach + 1)), :]


def split(x: Tensor) -> Any:
    """(…, length, hidden) to (…, head, length, width)."""
    return x.unflatten(-1, (HEADS, WIDTH)).transpose(-2, -3)


def joined(out: Tensor) -> Tensor:
    """(…, head, length, width) to (…, length, hidden)."""
    return out.transpose(-2, -3).flatten(-2)


def padding() -> Tensor:
    """LENGTHS as numbers to add to the logits, (batch, 1, KEYS, KEYS)."""
    hidden = (torch.arange(KEYS) >= LENGTHS[:, None])[:, None, None].expand(-1, 1, KEYS, -1)
    return torch.zeros(hidden.shape).masked_fill(hidden, torch.finfo(torch.float64).min)


def linear(draw: Callable[..., Tensor], *names: str) -> dict[str, Tensor]:
    """Weights of square Linear layers."""
    return {f"{name}.weight": draw(HIDDEN, HIDDEN) / HIDDEN**0.5 for name in names}


def without_bias(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same with biases of 0: a bias of the keys moves whole rows of logits, so its derivative is 0 ± rounding."""
    biases = {name.replace("weight", "bias"): torch.zeros(HIDDEN) for name in weights}
    return {**weights, **biases}


class Core(nn.Module):
    """`rel_attn_core` as a forward, so that it can be called with other parameters."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.layer.rel_attn_core(*args, **kwargs)


def xlnet(attention: str = "bi") -> Any:
    return XLNetConfig(
        d_model=HIDDEN, n_head=HEADS, d_inner=5, n_layer=1, vocab_size=3, dropout=0.0, attn_type=attention
    )


@pytest.mark.parametrize("hides", [False, True])
def test_xlnet_scores(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None], hides: bool) -> None:
    """Content score, shifted position score, scale, mask and softmax; the first KEYS − QUERIES keys are memory."""
    core = Core(XLNetRelativeAttention(xlnet()))
    visible = draw(BATCH, HEADS, QUERIES, KEYS) > -0.5
    visible[..., 3] = True

    def ours(q: Tensor, k: Tensor, v: Tensor, r: Tensor, u: Tensor, w: Tensor) -> Tensor:
        # Row t of theirs belongs to offset KEYS − t, from KEYS down to 1 − QUERIES; no pair is further apart.
        table = by_offset(r, KEYS - 1, lambda offset: (KEYS - offset).clamp(max=KEYS + QUERIES - 1))
        score = scores.Relative(table, u, w, scale=None)
        return regard.attend(q, k, v, score=score, mask=visible if hides else None, engine=engine)

    def theirs(q: Tensor, k: Tensor, v: Tensor, r: Tensor, u: Tensor, w: Tensor) -> Any:
        by_length = tuple(x.permute(2, 0, 1, 3) for x in (q, k, v))
        every = r.transpose(0, 1)[:, None].expand(-1, BATCH, -1, -1)
        hidden = (~visible).double().permute(2, 3, 0, 1) if hides else None
        named = {"layer.r_w_bias": u, "layer.r_r_bias": w}
        return functional_call(core, named, (*by_length, every), {"attn_mask": hidden}).permute(1, 2, 0, 3)

    inputs = {
        "query": draw(BATCH, HEADS, QUERIES, WIDTH),
        "key": draw(BATCH, HEADS, KEYS, WIDTH),
        "value": draw(BATCH, HEADS, KEYS, WIDTH),
        "positions": draw(HEADS, KEYS + QUERIES, WIDTH),
        "u": draw(HEADS, WIDTH),
        "v": draw(HEADS, WIDTH),
    }
    agree(ours, theirs, inputs)


@pytest.mark.parametrize("attention", ["bi", "uni"])
def test_xlnet_layer(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None], attention: str) -> None:
    """The whole layer with memory and XLNet's own encoding of the offsets; ours is the sinusoid of i − j."""
    layer = XLNetRelativeAttention(xlnet(attention))
    past = KEYS - QUERIES
    causal = torch.ones(QUERIES, KEYS, dtype=torch.bool).triu(1 + past) if attention == "uni" else None
    encoding = XLNetModel(xlnet(attention)).relative_positional_encoding(QUERIES, KEYS, bsz=BATCH)
    assert encoding.dtype == torch.float64

    def ours(h: Tensor, mems: Tensor, *weights: Tensor) -> Tensor:
        q, k, v, o, r, u, w = weights
        both = torch.cat([mems, h], 1)
        offsets = positions.sinusoidal(2 * KEYS - 1, HIDDEN, start=1 - KEYS, layout="halves", dtype=torch.float64)
        out = regard.attend(
            split(h @ q.flatten(1)),
            split(both @ k.flatten(1)),
            split(both @ v.flatten(1)),
            score=scores.Relative(split(offsets @ r.flatten(1)), u, w, scale=None),
            mask=None if causal is None else masks.Causal(),
            engine=engine,
        )
        return nn.functional.layer_norm(joined(out) @ o.flatten(1).mT + h, (HIDDEN,), eps=1e-12)

    def theirs(h: Tensor, mems: Tensor, *weights: Tensor) -> Any:
        named = dict(zip(("q", "k", "v", "o", "r", "r_w_bias", "r_r_bias"), weights, strict=True))
        hidden = None if causal is None else causal.double()[:, :, None, None]
        args = (h.transpose(0, 1), None, hidden, None, encoding, None)
        return functional_call(layer, named, args, {"mems": mems.transpose(0, 1)})[0].transpose(0, 1)

    inputs = {"h": draw(BATCH, QUERIES, HIDDEN), "mems": draw(BATCH, past, HIDDEN)}
    inputs |= {name: draw(HIDDEN, HEADS, WIDTH) / HIDDEN**0.5 for name in "qkvor"}
    inputs |= {name: draw(HEADS, WIDTH) for name in ("r_w_bias", "r_r_bias")}
    agree(ours, theirs, inputs)


def wav2vec2(kind: str, left: int = 0, right: int = 0) -> Any:
    return Wav2Vec2BertConfig(
        hidden_size=HIDDEN,
        num_attention_heads=HEADS,
        position_embeddings_type=kind,
        left_max_position_embeddings=left,
        right_max_position_embeddings=right,
        max_source_positions=23,
        attention_dropout=0.0,
        attn_implementation="eager",
    )


def test_wav2vec2_bert_relative(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None]) -> None:
    """Transformer-XL's four terms as in its paper, with their own sinusoids of i − j, under a padding mask."""
    config = wav2vec2("relative")
    layer = Wav2Vec2BertSelfAttention(config)
    encoding = Wav2Vec2BertRelPositionalEmbedding(config)(torch.zeros(1, KEYS, HIDDEN))
    assert encoding.dtype == torch.float64

    def ours(hidden: Tensor, u: Tensor, v: Tensor, place: Tensor, *weights: Tensor) -> Tensor:
        named = dict(zip(names, weights, strict=True))
        offsets = positions.sinusoidal(2 * KEYS - 1, HIDDEN, start=1 - KEYS, dtype=torch.float64)
        out = regard.attend(
            *(split(hidden @ named[f"linear_{name}.weight"].mT) for name in "qkv"),
            score=scores.Relative(split(offsets @ place.mT), u, v, scale=None),
            mask=masks.Lengths(LENGTHS),
            engine=engine,
        )
        return joined(out) @ named["linear_out.weight"].mT

    def theirs(hidden: Tensor, u: Tensor, v: Tensor, place: Tensor, *weights: Tensor) -> Any:
        named = without_bias(dict(zip(names, weights, strict=True)))
        named |= {"pos_bias_u": u, "pos_bias_v": v, "linear_pos.weight": place}
        return functional_call(layer, named, (hidden, padding(), encoding))[0]

    inputs = {"hidden": draw(BATCH, KEYS, HIDDEN), "u": draw(HEADS, WIDTH), "v": draw(HEADS, WIDTH)}
    inputs["linear_pos.weight"] = draw(HIDDEN, HIDDEN) / HIDDEN**0.5
    weights = linear(draw, "linear_q", "linear_k", "linear_v", "linear_out")
    names = list(weights)
    agree(ours, theirs, inputs | weights)


@pytest.mark.parametrize("left, right", [(3, 3), (5, 2), (2, 7), (23, 23)])
def test_wav2vec2_bert_relative_key(
    engine: str, draw: Callable[..., Tensor], agree: Callable[..., None], left: int, right: int
) -> None:
    """Shaw's keys. Theirs count j − i from −left to right; ours must be as long on both sides, so the end repeats."""
    layer = Wav2Vec2BertSelfAttention(wav2vec2("relative_key", left, right))

    def ours(hidden: Tensor, table: Tensor, *weights: Tensor) -> Tensor:
        named = dict(zip(names, weights, strict=True))
        out = regard.attend(
            *(split(hidden @ named[f"linear_{name}.weight"].mT) for name in "qkv"),
            score=scores.Relative(
                by_offset(table, max(left, right), lambda offset: (-offset).clamp(-left, right) + left), scale=None
            ),
            mask=masks.Lengths(LENGTHS),
            engine=engine,
        )
        return joined(out) @ named["linear_out.weight"].mT

    def theirs(hidden: Tensor, table: Tensor, *weights: Tensor) -> Any:
        named = without_bias(dict(zip(names, weights, strict=True))) | {"distance_embedding.weight": table}
        return functional_call(layer, named, (hidden, padding()))[0]

    inputs = {"hidden": draw(BATCH, KEYS, HIDDEN), "table": draw(left + right + 1, WIDTH)}
    weights = linear(draw, "linear_q", "linear_k", "linear_v", "linear_out")
    names = list(weights)
    agree(ours, theirs, inputs | weights)


@pytest.mark.parametrize("reach", [5, 23])
def test_speecht5(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None], reach: int) -> None:
    """Shaw's keys for i − j from −reach to reach − 1, through their table of positions and their layer."""
    layer = SpeechT5Attention(HIDDEN, HEADS)
    encoding = SpeechT5RelativePositionalEncoding(WIDTH, reach)

    def ours(hidden: Tensor, table: Tensor, *weights: Tensor) -> Tensor:
        named = dict(zip(names, weights, strict=True))
        out = regard.attend(
            *(split(hidden @ named[f"{name}_proj.weight"].mT) for name in "qkv"),
            score=scores.Relative(
                by_offset(table, reach, lambda offset: offset.clamp(max=reach - 1) + reach), scale=None
            ),
            mask=masks.Lengths(LENGTHS),
            engine=engine,
        )
        return joined(out) @ named["out_proj.weight"].mT

    def theirs(hidden: Tensor, table: Tensor, *weights: Tensor) -> Any:
        named = without_bias(dict(zip(names, weights, strict=True)))
        bias = functional_call(encoding, {"pe_k.weight": table}, (hidden,))
        return functional_call(layer, named, (hidden,), {"attention_mask": padding(), "position_bias": bias})[0]

    inputs = {"hidden": draw(BATCH, KEYS, HIDDEN), "table": draw(2 * reach, WIDTH)}
    weights = linear(draw, "q_proj", "k_proj", "v_proj", "out_proj")
    names = list(weights)
    agree(ours, theirs, inputs | weights)
