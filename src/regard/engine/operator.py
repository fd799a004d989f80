"""Attention as operators of torch, `regard::attend` and `regard::attend_backward`: what torch.compile sees.

Each has a twin that knows shapes alone. Checks, the choice of the engine and planning happen when the operator runs.
The spec comes as `regard.spec.serialize` writes it; `aux` and `keeps` name the results, see `regard.engine.outputs`.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.engine.halves import backward, forward
from regard.engine.outputs import DIFFERENTIABLE, blank, names_in, resumed_names
from regard.spec.dropout import Dropout
from regard.spec.serialize import Held, decoded

ARGUMENTS = ("score", "mask", "bias", "temperature", "normalizer", "dropout", "query_start")


@torch.library.custom_op("regard::attend", mutates_args=())
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tensors: list[Tensor],
    integers: list[int],
    floats: list[float],
    spec: str,
    aux: str,
    engine: str,
    keeps: str,
) -> list[Tensor]:
    """The output, the statistics asked for, and rows for backward."""
    return forward((query, key, value), _spec(spec, integers, floats, tensors), aux, engine, keeps)


@attend.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> list[Tensor]:
    *_, aux, _, keeps = rest
    return blank(query, key, value, aux, keeps)


@torch.library.custom_op("regard::attend_backward", mutates_args=())
def attend_backward(
    grads: list[Tensor | None],
    inputs: list[Tensor],
    results: list[Tensor],
    needed: list[bool],
    integers: list[int],
    floats: list[float],
    spec: str,
    aux: str,
    engine: str,
    keeps: str,
) -> list[Tensor]:
    """Gradients of those inputs (query, key, value and the spec's tensors) that are needed."""
    spec_of = partial(_spec, spec, integers, floats)
    return backward(grads, inputs, results, needed, spec_of, (aux, engine, keeps))


@attend_backward.register_fake
def _(grads: list[Tensor | None], inputs: list[Tensor], results: list[Tensor], needed: list[bool], *_: Any) -> Any:
    return [tensor.new_empty(tensor.shape) for tensor, need in zip(inputs, needed, strict=True) if need]


def _save(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    query, key, value, tensors, *ctx.rest = inputs
    *_, aux, _, keeps = ctx.rest
    public = ("out", *names_in(aux))
    ctx.public = len(public)
    fixed = [tensor for name, tensor in zip(public, output, strict=False) if name not in DIFFERENTIABLE]
    ctx.mark_non_differentiable(*fixed, *output[ctx.public :])
    ctx.set_materialize_grads(False)
    named = dict(zip((*public, *names_in(keeps)), output, strict=True))  # a kept one comes last, and counts
    ctx.save_for_backward(query, key, value, *tensors, *(named[name] for name in resumed_names(aux, keeps)))


def _gradients(ctx: Any, grads: list[Tensor | None]) -> tuple[Any, ...]:
    *first, others = ctx.needs_input_grad[:4]
    needed = [*first, *others]
    inputs, results = ctx.saved_tensors[: len(needed)], ctx.saved_tensors[len(needed) :]
    found = iter(attend_backward(grads[: ctx.public], list(inputs), list(results), needed, *ctx.rest))
    query, key, value, *tensors = [next(found) if need else None for need in needed]
    integers, floats = ctx.rest[:2]
    # torch takes an empty list for one of tensors
    return query, key, value, tensors, None if integers else [], None if floats else [], None, None, None, None


attend.register_autograd(_gradients, setup_context=_save)


def _spec(text: str, integers: list[int], floats: list[float], tensors: list[Tensor]) -> dict[str, Any]:
    """The keyword arguments of `attend`; a seed drawn in the graph comes as a tensor."""
    spec = dict(zip(ARGUMENTS, decoded(text, Held(tensors, integers, floats)), strict=True))
    if isinstance(spec["dropout"], tuple):
        rate, seed = spec["dropout"]
        spec["dropout"] = Dropout(rate, int(seed) + 2**63)  # torch.randint's range begins at −2⁶³
    return spec
