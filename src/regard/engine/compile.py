"""attend inside torch.compile and torch.export: the spec becomes a string, the call one operator."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from regard.engine.arguments import Shapes, tensors_of
from regard.engine.attend import attend
from regard.engine.native.engine import serves
from regard.engine.native.library import library
from regard.engine.operator import ARGUMENTS, DIFFERENTIABLE, attend_operator, empty_results, names_in
from regard.engine.request import AUX, Aux
from regard.spec.serialize import OperatorInputs, encoded, storable

if TYPE_CHECKING:
    from regard.engine.ring import Ring


FUNCTIONS = (
    "attend was given something that torch.compile cannot store, such as a function in masks.Where or scores.Modified, "
    "or a Ring; give its values as a tensor, or leave out fullgraph=True: then this one call runs outside the graph"
)


def attend_traced(
    query: Tensor, key: Tensor, value: Tensor, spec: dict[str, Any], aux: Any, engine: "str | Ring"
) -> Tensor | tuple[Tensor, Aux]:
    """What `attend` returns, by the operator. `spec` holds the arguments in the operator's order."""
    names = (aux,) if isinstance(aux, str) else aux
    traceable = isinstance(names, (tuple, list, set, frozenset)) and storable(tuple(spec.values()))
    traceable = traceable and all(isinstance(tensor, Tensor) for tensor in (query, key, value))
    if not isinstance(engine, str) or (not traceable and not torch.compiler.is_exporting()):
        return _outside(query, key, value, spec, aux, engine)  # type: ignore[no-any-return]
    names = tuple(names)
    rate = spec["dropout"]
    if isinstance(rate, float) and 0.0 < rate < 1.0:
        seed = torch.randint(-(2**63), 2**63 - 1, (), device="cpu")  # in the graph, so that backward sees the same
        spec = {**spec, "dropout": (rate, seed)}
    held = OperatorInputs([], [], [])
    text = encoded(tuple(spec.values()), held)
    saves = ""
    tensors = (query, key, value, *held.tensors)
    if torch.is_grad_enabled() and engine in ("auto", "native") and any(t.requires_grad for t in tensors):
        saves = _saved_names(query, spec)
    results: list[Tensor] = attend_operator(
        query,
        key,
        value,
        held.tensors,
        held.integers,
        held.floats,
        text,
        ",".join([str(name) for name in names]),
        engine,
        saves,
    )
    if not names:
        return results[0]
    return results[0], Aux(**{name: tensor for name, tensor in zip(names, results[1:], strict=False) if name in AUX})


def attend_shapes(
    query: Tensor, key: Tensor, value: Tensor, spec: tuple[Any, ...], aux: Any
) -> Tensor | tuple[Tensor, Aux]:
    """What `attend` returns for inputs that hold shapes and no numbers; `spec` is in the operator's order.

    FakeTensors go through the operator where it can store the spec, so that a graph that records them has one node.
    """
    Shapes.of(query, key, value)
    names = (aux,) if isinstance(aux, str) else tuple(aux)
    if isinstance(query, FakeTensor) and storable(spec):
        return attend_traced(query, key, value, dict(zip(ARGUMENTS, spec, strict=True)), names, "auto")
    tensors = [tensor for part in spec for _, tensor in tensors_of("", part, functions=True)]
    out, *statistics = _ShapesOnly.apply(",".join(names), query, key, value, *tensors)  # type: ignore[no-untyped-call]
    return (out, Aux(**dict(zip(names, statistics, strict=True)))) if names else out


class _ShapesOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, aux: str, query: Tensor, key: Tensor, value: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        results = empty_results(query, key, value, aux, "")
        named = zip(("out", *names_in(aux)), results, strict=True)
        ctx.mark_non_differentiable(*(tensor for name, tensor in named if name not in DIFFERENTIABLE))
        ctx.save_for_backward(query, key, value, *tensors)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        pairs = zip(ctx.saved_tensors, ctx.needs_input_grad[1:], strict=True)
        return None, *(torch.empty_like(tensor) if need else None for tensor, need in pairs)


def _saved_names(query: Tensor, spec: dict[str, Any]) -> str:
    """The rows that the native kernels save for backward, beside the results that are returned anyway."""
    if query.device.type != "cpu" or not _built() or not serves(spec["score"], spec["mask"], spec["normalizer"]):
        return ""
    return "state,at,native,out" if query.dtype in (torch.bfloat16, torch.float16) else "state,at,native"


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _built() -> bool:
    return library() is not None


@torch.compiler.disable(reason=FUNCTIONS)  # type: ignore[untyped-decorator]
def _outside(
    query: Tensor, key: Tensor, value: Tensor, spec: dict[str, Any], aux: Any, engine: "str | Ring"
) -> Tensor | tuple[Tensor, Aux]:
    return attend(query, key, value, aux=aux, engine=engine, **spec)  # type: ignore[no-any-return]
