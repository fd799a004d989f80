"""Scores that add, v · φ(W₁q + W₂k), as plain torch writes them: cases, and whom ours is compared with."""

import importlib.util
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.bench.case import Case, Inputs, Shape, Work, attention_inputs
from regard.spec import scores
from regard.spec.scores.base import ACTIVATIONS

LARGEST = 4 << 30  # bytes of a (query, key, hidden) tensor that is still tried


def inputs(shape: Shape, draw: torch.Generator) -> Inputs:
    """Query, key, value, both projections and v; there are as many hidden units as a query has numbers."""
    hidden = shape.d
    by_width = (torch.randn(hidden, shape.d, generator=draw) / shape.d**0.5 for _ in range(2))
    return (*attention_inputs(shape, draw), *by_width, torch.randn(hidden, generator=draw) / hidden**0.5)


def spec(phi: str, shape: Shape, given: Inputs) -> dict[str, Any]:
    """Bahdanau's score, or Luong's concat with another activation."""
    w_query, w_key, v = given[3:]
    return {"score": scores.ConcatMLP(w_query, w_key, None, v, activation=phi)}


def phi_of(case: Case) -> str | None:
    """The activation of a case that adds; None for the others."""
    return case.spec.args[0] if isinstance(case.spec, partial) and case.spec.func is spec else None


def too_large(case: Case) -> str | None:
    """Why a tensor of all pairs' hidden units is not tried."""
    shape = case.shape
    size = 4 * shape.batch * shape.heads * shape.rows * shape.n * shape.d * (4 if case.backward else 1)
    return f"hidden units of all pairs take {size / 2**30:.0f} GiB" if size > LARGEST else None


def no_identity(case: Case) -> str | None:
    """Why the identity with exponentials is not tried."""
    return too_large(case) if phi_of(case) == "tanh" else "the identity is tanh's"


def eager(case: Case, given: Inputs) -> Work:
    """Every pair's hidden units, as textbooks write it."""
    phi = ACTIVATIONS[str(phi_of(case))]

    def work(x: Inputs) -> Tensor:
        query, key, value, w_query, w_key, v = x
        a, b = query @ w_query.T, key @ w_key.T
        return (phi(a.unsqueeze(-2) + b.unsqueeze(-3)) @ v).softmax(-1) @ value

    return work


def identity(case: Case, given: Inputs) -> Work:
    """tanh(a + b) = 1 − 2 / (1 + e^2a · e^2b): no exponential per pair; overflows for large numbers."""

    def work(x: Inputs) -> Tensor:
        query, key, value, w_query, w_key, v = x
        e, f = (2 * (query @ w_query.T)).exp(), (2 * (key @ w_key.T)).exp()
        logits = v.sum() - 2 * (v / (1 + e.unsqueeze(-2) * f.unsqueeze(-3))).sum(-1)
        return logits.softmax(-1) @ value

    return work


def no_keras(case: Case) -> str | None:
    """Why Keras' layer is not tried: it has one head, tanh, and Keras must be there, on torch."""
    if phi_of(case) != "tanh" or case.shape.heads != 1:
        return "Keras adds under tanh, with one head"
    if case.shape.device != "cpu":
        return "Keras is timed on the processor only"
    if importlib.util.find_spec("keras") is None:
        return "Keras is not installed"
    return too_large(case)


def keras(case: Case, given: Inputs) -> Work:
    """keras.layers.AdditiveAttention behind both projections; its `scale` is v."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    layers: Any = importlib.import_module("keras").layers
    layer = layers.AdditiveAttention()
    layer.build([tuple(x.shape[0:1] + x.shape[2:]) for x in (given[0], given[2], given[1])])

    def work(x: Inputs) -> Tensor:
        query, key, value, w_query, w_key, v = x
        object.__setattr__(layer, "scale", v)  # so that its gradient is v's
        out: Tensor = layer([(query @ w_query.T).squeeze(1), value.squeeze(1), (key @ w_key.T).squeeze(1)])
        return out.unsqueeze(1)

    return work


def compiled(make: Callable[[Case, Inputs], Work], case: Case, given: Inputs) -> Work:
    """The same through torch.compile, compiled before it is timed."""
    torch._dynamo.reset()
    plain = make(case, given)
    work: Any = torch.compile(lambda *x: plain(x), dynamic=False)

    def run(x: Inputs) -> Tensor:
        out: Tensor = work(*x)
        return out

    out = run(given)
    if case.backward:
        torch.autograd.grad(out.sum(), given)
    return run
