"""`scores.Modified` against torch's FlexAttention, and its gradients against the formula inside FlexAttention.

Called outside torch.compile, `flex_attention` computes its formula densely, on a CPU forward only. The formula itself
is a plain function, which autograd can differentiate.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.flex_attention import math_attention
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention, noop_mask

import regard
from regard import masks, scores

BATCH, KV_HEADS, GROUP, QUERIES, KEYS, WIDTH, D_VALUE = 2, 3, 5, 11, 17, 7, 13
HEADS = KV_HEADS * GROUP

Mod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def inputs(draw: Callable[..., Tensor]) -> dict[str, Tensor]:
    return {
        "query": draw(BATCH, HEADS, QUERIES, WIDTH),
        "key": draw(BATCH, KV_HEADS, KEYS, WIDTH),
        "value": draw(BATCH, KV_HEADS, KEYS, D_VALUE),
    }


def relative(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return score + (i - j) * 0.1


def every_index(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return torch.tanh(score) * (1 + b) + torch.sin(h * 1.0) - 0.01 * i * j


def hides(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return torch.where((i + 2 * j + h + b) % 3 != 0, score, -torch.inf)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("mod", [relative, every_index, hides])
def test_flex_attention(engine: str, draw: Callable[..., Tensor], close: Callable[..., None], mod: Mod) -> None:
    """Flex numbers queries from 0: ours do with query_start=0."""
    q, k, v = inputs(draw).values()
    theirs = flex_attention(q, k, v, score_mod=mod, enable_gqa=True)
    score = scores.Modified(scores.ScaledDot(), mod)
    close(regard.attend(q, k, v, score=score, query_start=0, engine=engine), theirs, "output")


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_with_captured_tensors(
    engine: str, draw: Callable[..., Tensor], close: Callable[..., None]
) -> None:
    q, k, v = inputs(draw).values()
    slopes, table = draw(HEADS), draw(BATCH, QUERIES, KEYS)

    def mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score * slopes[h] + table[b, i, j]

    asked = AuxRequest(lse=True)
    theirs, found = flex_attention(q, k, v, score_mod=mod, enable_gqa=True, scale=0.7, return_aux=asked)
    score = scores.Modified(scores.ScaledDot(0.7), mod)
    ours, aux = regard.attend(q, k, v, score=score, query_start=0, aux="lse", engine=engine)
    close(ours, theirs, "output")
    close(aux.lse, found.lse, "lse")


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_with_a_block_mask(engine: str, draw: Callable[..., Tensor], close: Callable[..., None]) -> None:
    q, k, v = inputs(draw).values()

    def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (j <= i) & ((i + j + h) % 4 != 1) | (j == b)

    block = create_block_mask(visible, BATCH, HEADS, QUERIES, KEYS, device="cpu")
    theirs = flex_attention(q, k, v, score_mod=relative, block_mask=block, enable_gqa=True)
    score = scores.Modified(scores.ScaledDot(), relative)
    ours = regard.attend(q, k, v, score=score, mask=masks.Where(visible), query_start=0, engine=engine)
    close(ours, theirs, "output")


@pytest.mark.parametrize("plain", [relative, every_index, hides])
def test_gradients(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None], plain: Mod) -> None:
    """Of query, key and value, and of two tensors that the function captures."""

    def mod(slopes: Tensor, table: Tensor) -> Mod:
        def captured(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return plain(score * slopes[h] + torch.sin(table[b, i, j]), b, h, i, j)

        return captured

    def ours(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, table: Tensor) -> Tensor:
        score = scores.Modified(scores.ScaledDot(), mod(slopes, table))
        return regard.attend(q, k, v, score=score, query_start=0, engine=engine)

    def theirs(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, table: Tensor) -> Tensor:
        return math_attention(q, k, v, mod(slopes, table), (noop_mask,), WIDTH**-0.5, {})[0]

    agree(ours, theirs, {**inputs(draw), "slopes": draw(HEADS), "table": draw(BATCH, QUERIES, KEYS)})


@pytest.mark.parametrize("mod", [relative, every_index, hides])
def test_second_derivatives(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None], mod: Mod) -> None:
    """Of query, key and value; FlexAttention has none for captured tensors."""

    def ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return regard.attend(q, k, v, score=scores.Modified(scores.ScaledDot(), mod), query_start=0, engine=engine)

    def theirs(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return math_attention(q, k, v, mod, (noop_mask,), WIDTH**-0.5, {})[0]

    agree(ours, theirs, inputs(draw), order=2)
