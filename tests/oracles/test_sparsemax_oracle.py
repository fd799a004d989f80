"""Sparsemax against the package entmax: weights, threshold, gradients, alone and inside attention."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("entmax")

import entmax
from entmax.activations import _sparsemax_threshold_and_support as threshold_and_support

import regard
from regard import normalizers, scores

BATCH, HEADS, QUERIES, KEYS, WIDTH, D_VALUE = 2, 3, 11, 17, 7, 5
EPS = torch.finfo(torch.float64).eps


def random(draw: Callable[..., Tensor]) -> Tensor:
    return draw(BATCH, HEADS, QUERIES, KEYS)


def tied(draw: Callable[..., Tensor]) -> Tensor:
    """Every logit three times in its row or more, the last two all in one."""
    logits = draw(BATCH, HEADS, QUERIES, 5).repeat_interleave(4, -1)[..., :KEYS]
    logits[..., -2:, :] = 0.3
    return logits


def masked(draw: Callable[..., Tensor]) -> Tensor:
    logits = draw(BATCH, HEADS, QUERIES, KEYS)
    logits[draw(BATCH, HEADS, QUERIES, KEYS) > 0] = -torch.inf
    logits[..., 4] = 0.5
    logits[..., 0, :4] = logits[..., 0, 5:] = -torch.inf
    return logits


def wide(draw: Callable[..., Tensor]) -> Tensor:
    """Far apart and far from 0: one key takes all."""
    return 1000 + 100 * draw(BATCH, HEADS, QUERIES, KEYS)


def narrow(draw: Callable[..., Tensor]) -> Tensor:
    """So close that every key is in the support."""
    return draw(BATCH, HEADS, QUERIES, KEYS) / 100


CASES = [random, tied, masked, wide, narrow]


@pytest.mark.parametrize("case", CASES)
def test_weights_and_threshold(
    case: Callable[..., Tensor], draw: Callable[..., Tensor], close: Callable[..., None]
) -> None:
    logits = case(draw)
    weights, threshold = normalizers.Sparsemax().weights(logits)
    theirs = entmax.sparsemax(logits, -1)
    tau, size = threshold_and_support(logits, -1)
    close(weights, theirs, "weights")
    close(threshold, tau.squeeze(-1), "threshold")
    assert torch.equal(weights > 0, theirs > 0)
    assert torch.equal((weights > 0).sum(-1, keepdim=True), size)


def gradients(logits: Tensor, along: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of the logits: by autograd through our weights, by our closed form, and theirs."""
    mine = logits.clone().requires_grad_()
    weights, _ = normalizers.Sparsemax().weights(mine)
    (by_autograd,) = torch.autograd.grad(weights, mine, along)
    closed = normalizers.Sparsemax().backward(weights.detach(), along)
    other = logits.clone().requires_grad_()
    (theirs,) = torch.autograd.grad(entmax.sparsemax(other, -1), other, along)
    return by_autograd, closed, theirs


@pytest.mark.parametrize("case", [random, tied, masked, narrow])
def test_gradients(case: Callable[..., Tensor], draw: Callable[..., Tensor], close: Callable[..., None]) -> None:
    logits = case(draw)
    by_autograd, closed, theirs = gradients(logits, draw(*logits.shape))
    close(by_autograd, theirs, "gradient by autograd")
    close(closed, theirs, "gradient in closed form")


def test_gradients_where_one_key_takes_all(draw: Callable[..., Tensor]) -> None:
    logits = wide(draw)
    for found in gradients(logits, draw(*logits.shape)):
        assert torch.equal(found, torch.zeros_like(logits))


@pytest.mark.parametrize("row", [[1.0, 0.0, -2.0], [0.0, 1.0, 1.0, 0.5], [2.0, 3.0, 3.0, 2.5, 2.5], [0.0, 0.0, -0.5]])
def test_gradients_at_a_kink(row: list[float], draw: Callable[..., Tensor]) -> None:
    """A logit exactly at the threshold has weight 0 and no part in the gradient: the support is what has weight."""
    logits = torch.tensor(row, dtype=torch.float64)
    weights, threshold = normalizers.Sparsemax().weights(logits)
    assert bool((logits == threshold).any())
    assert torch.equal(weights, entmax.sparsemax(logits, -1))
    by_autograd, closed, theirs = gradients(logits, draw(len(row)))
    torch.testing.assert_close(closed, theirs, atol=8 * EPS, rtol=0)
    torch.testing.assert_close(by_autograd, theirs, atol=8 * EPS, rtol=0)


@pytest.mark.parametrize("temperature", [1.0, 0.4, 5.0])
def test_attention(engine: str, draw: Callable[..., Tensor], agree: Callable[..., None], temperature: float) -> None:
    visible = draw(BATCH, 1, QUERIES, KEYS) > -0.5
    visible[..., 4] = True

    def ours(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return regard.attend(
            q,
            k,
            v,
            bias=bias,
            mask=visible,
            temperature=temperature,
            normalizer=normalizers.Sparsemax(),
            engine=engine,
        )

    def theirs(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Any:
        logits = (q @ k.mT / WIDTH**0.5 + bias) / temperature
        return entmax.sparsemax(logits.masked_fill(~visible, -torch.inf), -1) @ v

    inputs = {
        "query": draw(BATCH, HEADS, QUERIES, WIDTH),
        "key": draw(BATCH, HEADS, KEYS, WIDTH),
        "value": draw(BATCH, HEADS, KEYS, D_VALUE),
        "bias": draw(HEADS, QUERIES, KEYS),
    }
    agree(ours, theirs, inputs)


@pytest.mark.parametrize("case", [random, tied, masked, narrow])
def test_attention_by_given_logits(
    engine: str, case: Callable[..., Tensor], draw: Callable[..., Tensor], agree: Callable[..., None]
) -> None:
    """The logits come as a bias of scores that are 0; −inf among them hides the key."""
    given = case(draw)
    hidden = given == -torch.inf
    q, k = given.new_zeros(BATCH, HEADS, QUERIES, 1), given.new_zeros(BATCH, HEADS, KEYS, 1)

    def ours(logits: Tensor, v: Tensor) -> Tensor:
        bias = logits.masked_fill(hidden, -torch.inf)
        return regard.attend(q, k, v, score=scores.Dot(), bias=bias, normalizer=normalizers.Sparsemax(), engine=engine)

    def theirs(logits: Tensor, v: Tensor) -> Any:
        return entmax.sparsemax(logits.masked_fill(hidden, -torch.inf), -1) @ v

    agree(ours, theirs, {"logits": given.masked_fill(hidden, 0.0), "value": draw(BATCH, HEADS, KEYS, D_VALUE)})


def test_attention_at_a_kink(engine: str) -> None:
    logits = torch.tensor([[1.0, 0.0, -2.0]], dtype=torch.float64)
    value = torch.tensor([[1.0], [10.0], [100.0]], dtype=torch.float64)
    zero = value.new_zeros(3, 1)
    found = []
    for compute in (
        lambda bias: regard.attend(
            zero[:1], zero, value, score=scores.Dot(), bias=bias, normalizer=normalizers.Sparsemax(), engine=engine
        ),
        lambda bias: entmax.sparsemax(bias, -1) @ value,
    ):
        bias = logits.clone().requires_grad_()
        out = compute(bias)
        found.append((out.detach(), *torch.autograd.grad(out.sum(), bias)))
    for ours, theirs in zip(*found, strict=True):
        assert torch.equal(ours, theirs)
