"""Dot and additive attention against the layers of Keras 3, which has no heads and no projections."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("keras")

import keras
from keras.src.backend.common import dtypes

import regard
from regard import masks, scores

BATCH, QUERIES, KEYS, WIDTH, D_VALUE = 3, 11, 17, 7, 5


@pytest.fixture(autouse=True)
def keep_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """On torch, Keras turns results of float64 to float32, "to be aligned with JAX's default behavior"."""
    monkeypatch.setitem(dtypes.BIT64_TO_BIT32_DTYPE, "float64", "float64")


def inputs(draw: Callable[..., Tensor], queries: int = QUERIES) -> dict[str, Tensor]:
    return {
        "query": draw(BATCH, queries, WIDTH),
        "value": draw(BATCH, KEYS, D_VALUE),
        "key": draw(BATCH, KEYS, WIDTH),
    }


def layer(kind: Callable[..., Any], scale: Tensor | None = None, weight: Tensor | None = None, **options: Any) -> Any:
    """A layer in float64 whose trainable numbers are the given tensors, so that gradients reach them."""
    built = kind(dtype="float64", **options)
    built.build([(BATCH, QUERIES, WIDTH), (BATCH, KEYS, D_VALUE), (BATCH, KEYS, WIDTH)])
    for name, tensor in (("scale", scale), ("concat_score_weight", weight)):
        have: Any = getattr(built, name, None)
        assert (have is None) == (tensor is None), f"Keras' {name} is not where it was"
        if tensor is not None:
            assert tuple(have.shape) == tuple(tensor.shape)
            # Keras keeps attributes of a built layer under lock; the tracker is what enforces it.
            object.__setattr__(built, name, tensor)
    return built


def attend(query: Tensor, value: Tensor, key: Tensor, **options: Any) -> Tensor:
    """One head, in Keras' order of arguments."""
    q, k, v = (x.unsqueeze(1) for x in (query, key, value))
    out = regard.attend(q, k, v, **options)
    assert isinstance(out, Tensor)
    return out.squeeze(1)


def padded(draw: Callable[..., Tensor]) -> tuple[Tensor, Tensor]:
    """Which values are real, and the same as a mask of ours."""
    real = draw(BATCH, KEYS) > -0.5
    real[:, 0] = True
    return real, real[:, None, None]


def test_dot(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None]) -> None:
    theirs = layer(keras.layers.Attention)
    agree(
        lambda q, v, k: attend(q, v, k, score=scores.Dot(), engine=engine),
        lambda q, v, k: theirs([q, v, k]),
        inputs(draw),
    )


def test_dot_with_a_learned_scale(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None]) -> None:
    """A scale that learns is a temperature of 1/scale, or scaled queries."""

    def theirs(q: Tensor, v: Tensor, k: Tensor, scale: Tensor) -> Any:
        return layer(keras.layers.Attention, scale, use_scale=True)([q, v, k])

    given = {**inputs(draw), "scale": torch.tensor(0.37, dtype=torch.float64)}
    agree(lambda q, v, k, s: attend(q * s, v, k, score=scores.Dot(), engine=engine), theirs, given)
    agree(lambda q, v, k, s: attend(q, v, k, score=scores.Dot(), temperature=1 / s, engine=engine), theirs, given)


def test_dot_with_masks(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None]) -> None:
    """Keys that are padding, and rows of the output that are."""
    theirs = layer(keras.layers.Attention)
    real, visible = padded(draw)
    asked = draw(BATCH, QUERIES) > -0.5

    def ours(q: Tensor, v: Tensor, k: Tensor) -> Tensor:
        return attend(q, v, k, score=scores.Dot(), mask=visible & asked[:, None, :, None], engine=engine)

    agree(ours, lambda q, v, k: theirs([q, v, k], mask=[asked, real]), inputs(draw))


def test_dot_causal(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None]) -> None:
    """Keras counts both from 0, whatever the lengths."""
    theirs = layer(keras.layers.Attention)
    real, visible = padded(draw)

    def ours(q: Tensor, v: Tensor, k: Tensor) -> Tensor:
        mask = masks.Causal() & masks.Dense(visible)
        return attend(q, v, k, score=scores.Dot(), mask=mask, query_start=0, engine=engine)

    agree(ours, lambda q, v, k: theirs([q, v, k], mask=[None, real], use_causal_mask=True), inputs(draw))


def test_additive(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None]) -> None:
    """scale · Σ tanh(q + k): Bahdanau's score whose matrices are the identity and whose v is the scale."""
    same = torch.eye(WIDTH, dtype=torch.float64)

    def ours(q: Tensor, v: Tensor, k: Tensor, scale: Tensor) -> Tensor:
        return attend(q, v, k, score=scores.Additive(same, same, scale), engine=engine)

    def theirs(q: Tensor, v: Tensor, k: Tensor, scale: Tensor) -> Any:
        return layer(keras.layers.AdditiveAttention, scale)([q, v, k])

    agree(ours, theirs, {**inputs(draw), "scale": draw(WIDTH)})


def test_additive_of_projected_inputs(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None]) -> None:
    """Projected before the layer, it is Bahdanau's score with true matrices; with padding and a causal mask."""
    hidden = 13
    real, visible = padded(draw)

    def ours(q: Tensor, v: Tensor, k: Tensor, w_query: Tensor, w_key: Tensor, scale: Tensor) -> Tensor:
        mask = masks.Causal() & masks.Dense(visible)
        score = scores.Additive(w_query, w_key, scale)
        return attend(q, v, k, score=score, mask=mask, query_start=0, engine=engine)

    def theirs(q: Tensor, v: Tensor, k: Tensor, w_query: Tensor, w_key: Tensor, scale: Tensor) -> Any:
        built = keras.layers.AdditiveAttention(dtype="float64")
        built.build([(BATCH, QUERIES, hidden), (BATCH, KEYS, D_VALUE), (BATCH, KEYS, hidden)])
        object.__setattr__(built, "scale", scale)
        return built([q @ w_query.mT, v, k @ w_key.mT], mask=[None, real], use_causal_mask=True)

    given = inputs(draw) | {"w_query": draw(hidden, WIDTH), "w_key": draw(hidden, WIDTH), "scale": draw(hidden)}
    agree(ours, theirs, given)


def test_additive_without_a_scale(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None]) -> None:
    same, ones = torch.eye(WIDTH, dtype=torch.float64), torch.ones(WIDTH, dtype=torch.float64)
    theirs = layer(keras.layers.AdditiveAttention, use_scale=False)
    agree(
        lambda q, v, k: attend(q, v, k, score=scores.Additive(same, same, ones), engine=engine),
        lambda q, v, k: theirs([q, v, k]),
        inputs(draw),
    )


@pytest.mark.parametrize("scaled", [False, True])
def test_concat(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None], scaled: bool) -> None:
    """weight · Σ tanh(scale · (q + k)), two numbers: a hidden layer of scale · identity, all with the same v."""
    real, visible = padded(draw)

    def ours(q: Tensor, v: Tensor, k: Tensor, weight: Tensor, *scale: Tensor) -> Tensor:
        same = torch.eye(WIDTH, dtype=torch.float64) * (scale[0] if scaled else 1.0)
        score = scores.ConcatMLP(same, same, None, weight.expand(WIDTH))
        return attend(q, v, k, score=score, mask=visible, engine=engine)

    def theirs(q: Tensor, v: Tensor, k: Tensor, weight: Tensor, *scale: Tensor) -> Any:
        given = scale[0] if scaled else None
        built = layer(keras.layers.Attention, given, weight, use_scale=scaled, score_mode="concat")
        return built([q, v, k], mask=[None, real])

    given = {**inputs(draw), "weight": torch.tensor(0.9, dtype=torch.float64)}
    if scaled:
        given["scale"] = torch.tensor(-0.6, dtype=torch.float64)
    agree(ours, theirs, given)
