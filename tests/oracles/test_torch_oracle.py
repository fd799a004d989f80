"""Plain attention, cosine scores and statistics against torch's own functions: values, first and second derivatives."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cosine_similarity, scaled_dot_product_attention

import regard
from regard import biases, masks, scores

BATCH, HEADS, QUERIES, KEYS, WIDTH, D_VALUE = 2, 3, 11, 17, 7, 5


@pytest.fixture(autouse=True)
def math_backend() -> Iterator[None]:
    with sdpa_kernel(SDPBackend.MATH):
        yield


def inputs(draw: Callable[..., Tensor], queries: int = QUERIES, heads: int = HEADS) -> dict[str, Tensor]:
    return {
        "query": draw(BATCH, heads, queries, WIDTH),
        "key": draw(BATCH, HEADS, KEYS, WIDTH),
        "value": draw(BATCH, HEADS, KEYS, D_VALUE),
    }


@pytest.mark.parametrize("scale", [None, 1.0, -0.3, 2.7])
def test_full(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None], scale: float | None) -> None:
    def ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return regard.attend(q, k, v, score=scores.ScaledDot(scale), engine=engine)

    def theirs(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v, scale=scale)

    agree(ours, theirs, inputs(draw), order=2)


def test_dot(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None]) -> None:
    def ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return regard.attend(q, k, v, score=scores.Dot(), engine=engine)

    agree(ours, lambda q, k, v: scaled_dot_product_attention(q, k, v, scale=1.0), inputs(draw), order=2)


def test_causal(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None]) -> None:
    def ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return regard.attend(q, k, v, mask="causal", engine=engine)

    def theirs(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v, is_causal=True)

    agree(ours, theirs, inputs(draw, queries=KEYS), order=2)


def test_causal_of_fewer_queries_is_top_left_in_torch(
    engine: str, draw: Callable[..., Tensor], agree: Callable[..., None]
) -> None:
    def ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return regard.attend(q, k, v, mask=masks.Causal(), query_start=0, engine=engine)

    def theirs(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v, is_causal=True)

    agree(ours, theirs, inputs(draw), order=2)


@pytest.mark.parametrize("size", [(BATCH, HEADS, QUERIES, KEYS), (QUERIES, KEYS), (BATCH, 1, 1, KEYS)])
def test_bool_mask(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None], size: tuple[int, ...]) -> None:
    visible = draw(*size) > 0.3
    visible[..., 4] = True

    def ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return regard.attend(q, k, v, mask=visible, engine=engine)

    def theirs(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v, attn_mask=visible)

    agree(ours, theirs, inputs(draw), order=2)


def test_queries_that_see_nothing(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None]) -> None:
    visible = draw(BATCH, HEADS, QUERIES, KEYS) > 0
    visible[:, :, 6] = False
    visible[1] = False

    def ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return regard.attend(q, k, v, mask=visible, engine=engine)

    def theirs(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v, attn_mask=visible)

    agree(ours, theirs, inputs(draw))


@pytest.mark.parametrize("size", [(BATCH, HEADS, QUERIES, KEYS), (QUERIES, KEYS), (1, HEADS, 1, KEYS)])
def test_float_mask(
    engine: str, draw: Callable[..., Tensor], agree: Callable[..., None], size: tuple[int, ...]
) -> None:
    def ours(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return regard.attend(q, k, v, bias=biases.Dense(bias), engine=engine)

    def theirs(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v, attn_mask=bias)

    agree(ours, theirs, {**inputs(draw), "bias": draw(*size)}, order=2)


def test_float_mask_that_hides(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None]) -> None:
    hidden = draw(BATCH, HEADS, QUERIES, KEYS) > 0.5
    hidden[..., 4] = False

    def ours(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return regard.attend(q, k, v, bias=bias.masked_fill(hidden, -torch.inf), engine=engine)

    def theirs(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v, attn_mask=bias.masked_fill(hidden, -torch.inf))

    agree(ours, theirs, {**inputs(draw), "bias": draw(QUERIES, KEYS)}, order=2)


@pytest.mark.parametrize("group", [2, 5])
def test_grouped_heads(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None], group: int) -> None:
    def ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return regard.attend(q, k, v, mask=masks.Causal(), query_start=0, engine=engine)

    def theirs(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    agree(ours, theirs, inputs(draw, heads=HEADS * group), order=2)


@pytest.mark.parametrize("temperature", [0.5, 3.0])
def test_temperature_divides_score_and_bias(
    engine: str, draw: Callable[..., Tensor], agree: Callable[..., None], temperature: float
) -> None:
    def ours(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return regard.attend(q, k, v, bias=bias, temperature=temperature, engine=engine)

    def theirs(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        scale = WIDTH**-0.5 / temperature
        return scaled_dot_product_attention(q, k, v, attn_mask=bias / temperature, scale=scale)

    agree(ours, theirs, {**inputs(draw), "bias": draw(QUERIES, KEYS)}, order=2)


@pytest.mark.parametrize("engine", ["reference", "tiled", "native"])
def test_longer_than_the_tiles_as_shipped(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None]) -> None:
    queries, keys = 263, 1031

    def ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return regard.attend(q, k, v, mask=masks.Causal(), query_start=keys - queries, engine=engine)

    def theirs(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        visible = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
        return scaled_dot_product_attention(q, k, v, attn_mask=visible)

    sized = {"query": draw(1, 2, queries, WIDTH), "key": draw(1, 2, keys, WIDTH), "value": draw(1, 2, keys, D_VALUE)}
    agree(ours, theirs, sized, order=2)


@pytest.mark.parametrize("scale", [1.0, 6.5])
def test_cosine(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None], scale: float) -> None:
    def ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return regard.attend(q, k, v, score=scores.Cosine(scale), engine=engine)

    def theirs(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (scale * cosine_similarity(q.unsqueeze(-2), k.unsqueeze(-3), dim=-1)).softmax(-1) @ v

    agree(ours, theirs, inputs(draw), order=2)


@pytest.mark.parametrize("name", ["lse", "entropy"])
def test_differentiable_statistics(
    engine: str, draw: Callable[..., Tensor], agree: Callable[..., None], name: str
) -> None:
    """Against torch.logsumexp and the entropy of torch.distributions."""
    value = draw(BATCH, HEADS, KEYS, D_VALUE)

    def ours(q: Tensor, k: Tensor, bias: Tensor) -> Tensor:
        _, aux = regard.attend(q, k, value, bias=bias, aux=name, engine=engine)
        found = getattr(aux, name)
        assert isinstance(found, Tensor)
        return found

    def theirs(q: Tensor, k: Tensor, bias: Tensor) -> Any:
        logits = q @ k.mT / WIDTH**0.5 + bias
        return logits.logsumexp(-1) if name == "lse" else Categorical(logits=logits).entropy()

    given = inputs(draw) | {"bias": draw(QUERIES, KEYS)}
    del given["value"]
    agree(ours, theirs, given, order=2)
