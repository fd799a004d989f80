"""attend inside torch.compile and torch.export: the spec becomes a string, the call one operator.

`regard::attend` has `regard::attend_backward` as its backward.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from regard.engine.arguments import Shapes, tensors_of, widest
from regard.engine.attend import attend, choose, engine_name, module
from regard.engine.context import exporting
from regard.engine.native import call_cache
from regard.engine.native.call import NotFiniteError
from regard.engine.native.engine import begun, resumed, serves
from regard.engine.native.library import library
from regard.engine.onnx import decompose
from regard.engine.request import AUX, Aux, Request, Result, request
from regard.spec.dropout import Dropout
from regard.spec.serialize import OperatorInputs, decoded, encoded, storable

if TYPE_CHECKING:
    from regard.engine.ring import Ring

DIFFERENTIABLE = ("out", "lse", "entropy")
ARGUMENTS = ("score", "mask", "bias", "temperature", "normalizer", "dropout", "query_start")
BACKWARD_INPUTS = ("out", "lse", "entropy", "state", "at", "native")
FUNCTIONS = (
    "attend was given something that torch.compile cannot store, such as a function in masks.Where or scores.Modified, "
    "a nested tensor or a Ring; give its values as a tensor, or leave out fullgraph=True: then this one call runs "
    "outside the graph"
)


def names_in(joined: str) -> tuple[str, ...]:
    """The names."""
    return tuple(joined.split(",")) if joined else ()


def backward_names(aux: str, saves: str) -> tuple[str, ...]:
    """The results that backward is given; none if it must compute everything again."""
    known = {"out", *names_in(aux), *names_in(saves)}
    return tuple(name for name in BACKWARD_INPUTS if name in known) if saves else ()


def empty_results(query: Tensor, key: Tensor, value: Tensor, aux: str, saves: str) -> list[Tensor]:
    """The results with their shapes and no numbers. What does not fit is refused when the operator runs."""
    inputs = (query, key, value)
    if min(tensor.ndim for tensor in inputs) < 2:
        return [torch.empty_like(query) for _ in ("out", *names_in(aux), *names_in(saves))]
    rows = widest([tensor.shape[:-3] for tensor in inputs])
    if max(tensor.ndim for tensor in inputs) > 2:
        rows.append(query.shape[-3] if query.ndim > 2 else 1)
    out = query.new_empty((*rows, query.shape[-2], value.shape[-1]))
    dtype = torch.promote_types(query.dtype, torch.float32)
    results = [out]
    for name in names_in(aux):
        last = key.shape[-2] if name == "received" else query.shape[-2]
        results.append(query.new_empty((*rows, last), dtype=torch.int64 if name == "peak_at" else dtype))
    return results + [
        query.new_empty(saved_shape(name, out), dtype=saved_dtype(name, dtype)) for name in names_in(saves)
    ]


def saved_shape(name: str, out: Tensor) -> tuple[int, ...]:
    """The shape of a saved tensor beside this output."""
    match name:
        case "native":
            return ()
        case "out":
            return tuple(out.shape)
        case "state":
            return (2, *out.shape[:-1])
    return tuple(out.shape[:-1])


def saved_dtype(name: str, dtype: torch.dtype) -> torch.dtype:
    """Its dtype, if `dtype` is what accumulates."""
    return torch.int64 if name in ("native", "at") else dtype


Inputs = tuple[Tensor, Tensor, Tensor]
Grads = list[Tensor | None]


def run_forward(inputs: Inputs, spec: dict[str, Any], aux: str, engine: str, saves: str) -> list[Tensor]:
    """The output, the statistics, and what `saves` names."""
    names = names_in(aux)
    if not saves:
        if not names:
            return [attend(*inputs, engine=engine, **spec).contiguous()]
        out, more = attend(*inputs, aux=names, engine=engine, **spec)
        return [out.contiguous(), *(getattr(more, name).contiguous() for name in names)]
    call_key = None if aux else _cache_key(inputs, spec, engine)
    if (again := _cached_forward(inputs, call_key, saves)) is not None:
        return again
    checked = request(*inputs, aux=names, **spec)
    chosen = choose(checked, engine)
    made = begun(checked) if chosen == "native" else None
    if made is None:
        result: Result = module(chosen).run(checked)
        rows: dict[str, Tensor] = {}
    else:
        result, rows = made
        if call_key is not None:
            call_cache.cache_call(call_key, checked, inputs)
    results = _unfolded(checked, result, names)
    return [*results, *_saved_rows(rows, results[0], saves, checked.dtype)]


def run_backward(
    grads: Grads,
    inputs: list[Tensor],
    results: list[Tensor],
    needed: list[bool],
    spec_of: Any,
    names: tuple[str, str, str],
) -> list[Tensor]:
    """Gradients of the inputs that are needed; `spec_of` makes the spec from all inputs behind query, key and value.

    `grads` belong to the output and the statistics; `names` are aux, engine and saves.
    """
    aux, engine, saves = names
    rows = {name: tensor.contiguous() for name, tensor in zip(backward_names(aux, saves), results, strict=True)}
    native = bool(rows.pop("native", 0))
    if native and not aux and (again := _cached_backward(grads, inputs, rows, needed, spec_of, engine)) is not None:
        return again
    differentiable = tuple(name for name in names_in(aux) if name in DIFFERENTIABLE)
    arrived = dict(zip(("out", *names_in(aux)), grads, strict=True))
    with _autograd_enabled():
        leaves = [tensor.detach().requires_grad_(need) for tensor, need in zip(inputs, needed, strict=True)]
        query, key, value, *tensors = leaves
        checked = request(query, key, value, aux=differentiable, **spec_of(tensors))
        chosen = choose(checked, engine)
        result = resumed(checked, _folded(rows, checked)) if native else module(chosen).run(checked)
        outputs = dict(zip(("out", *differentiable), _unfolded(checked, result, differentiable), strict=True))
        pairs = [(output, arrived[name]) for name, output in outputs.items() if output.requires_grad]
        pairs = [(output, grad) for output, grad in pairs if grad is not None]
        targets = [leaf for leaf in leaves if leaf.requires_grad]
        gradients: tuple[Tensor | None, ...] = (None,) * len(targets)
        if pairs:
            ends, starts = zip(*pairs, strict=True)
            gradients = torch.autograd.grad(ends, targets, starts, allow_unused=True)
    return _distinct(
        [torch.zeros_like(leaf) if grad is None else grad for leaf, grad in zip(targets, gradients, strict=True)]
    )


def _cache_key(inputs: Inputs, spec: dict[str, Any], engine: str) -> call_cache.Key | None:
    if engine_name(engine) not in ("auto", "native"):
        return None
    parts = tuple(spec[name] for name in ("score", "mask", "bias", "normalizer"))
    return call_cache.cache_key(*inputs, parts, tuple(spec[name] for name in ("temperature", "dropout", "query_start")))


def _cached_forward(inputs: Inputs, call_key: call_cache.Key | None, saves: str) -> list[Tensor] | None:
    """The results of a cached call, without checks and lowering."""
    call = None if call_key is None else call_cache.cached_call(call_key)
    if call is None:
        return None
    rows = {
        "state": torch.empty((2, *call.rows), dtype=call.dtype, device="cpu"),
        "at": torch.empty(call.rows, dtype=torch.int64, device="cpu"),
    }
    try:
        rows["out"] = call.forward(*inputs, call.addresses(rows["state"], rows["at"]))
    except NotFiniteError:
        return None
    out = rows["out"].to(inputs[0].dtype)
    return [out, *_saved_rows(rows, out, saves, call.dtype)]


def _cached_backward(
    grads: Grads, inputs: list[Tensor], rows: dict[str, Tensor], needed: list[bool], spec_of: Any, engine: str
) -> list[Tensor] | None:
    query, key, value, *tensors = inputs
    call_key = None if tensors else _cache_key((query, key, value), spec_of([]), engine)
    call = None if call_key is None else call_cache.cached_call(call_key)
    if call is None or grads[0] is None:
        return None
    gradients = call.backward((query, key, value, rows["out"]), call.addresses(rows["state"], rows["at"]), grads[0])
    return [grad for grad, need in zip(gradients, needed, strict=True) if need]


def _saved_rows(rows: dict[str, Tensor], out: Tensor, saves: str, dtype: torch.dtype) -> list[Tensor]:
    """Rows in the axes of the output; zeros if the kernels left none."""
    if not rows:
        return [
            torch.zeros(saved_shape(name, out), dtype=saved_dtype(name, dtype), device=out.device)
            for name in names_in(saves)
        ]
    rows["native"] = torch.tensor(1, device="cpu", dtype=torch.int64)
    return [rows[name].view(saved_shape(name, out)) for name in names_in(saves)]


def _folded(rows: dict[str, Tensor], checked: Request) -> dict[str, Tensor]:
    """Rows in the kernels' axes. The lse itself is not needed again; top stands in its place."""
    size = (checked.plane.batch, checked.plane.heads, checked.plane.queries)
    shapes = {"out": (*size, checked.shapes.d_value), "state": (2, *size)}
    folded = {name: tensor.detach().view(shapes.get(name, size)) for name, tensor in rows.items()}
    return {"lse": folded["state"][0], **folded}


def _unfolded(checked: Request, result: Result, names: tuple[str, ...]) -> list[Tensor]:
    tensors = [result.out, *(getattr(result.aux, name) for name in names)]
    return [checked.shapes.unfold(tensor).contiguous() for tensor in tensors]


def _distinct(tensors: list[Tensor]) -> list[Tensor]:
    """Contiguous, and none a view of another: an operator promises that of its results."""
    seen: set[int] = set()
    distinct = []
    for tensor in tensors:
        tensor = tensor.contiguous()
        place = tensor.untyped_storage().data_ptr()
        distinct.append(tensor.clone() if place in seen else tensor)
        seen.add(place)
    return distinct


@contextmanager
def _autograd_enabled() -> Iterator[None]:
    """Autograd inside an operator, where torch has switched it off."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradCPU)
    keys = keys | torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
    included, excluded = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    with torch._C._ForceDispatchKeyGuard(included, excluded - keys), torch.enable_grad():
        yield


@torch.library.custom_op("regard::attend", mutates_args=())
def attend_operator(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tensors: list[Tensor],
    integers: list[int],
    floats: list[float],
    spec: str,
    aux: str,
    engine: str,
    saves: str,
) -> list[Tensor]:
    """The output, the statistics asked for, and rows for backward."""
    return run_forward((query, key, value), _decode_spec(spec, integers, floats, tensors), aux, engine, saves)


@attend_operator.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> list[Tensor]:
    *_, aux, _, saves = rest
    return empty_results(query, key, value, aux, saves)


@torch.library.custom_op("regard::attend_backward", mutates_args=())
def attend_backward_operator(
    grads: list[Tensor | None],
    inputs: list[Tensor],
    results: list[Tensor],
    needed: list[bool],
    integers: list[int],
    floats: list[float],
    spec: str,
    aux: str,
    engine: str,
    saves: str,
) -> list[Tensor]:
    """Gradients of those inputs (query, key, value and the spec's tensors) that are needed."""
    spec_of = partial(_decode_spec, spec, integers, floats)
    return run_backward(grads, inputs, results, needed, spec_of, (aux, engine, saves))


@attend_backward_operator.register_fake
def _(grads: list[Tensor | None], inputs: list[Tensor], results: list[Tensor], needed: list[bool], *_: Any) -> Any:
    return [tensor.new_empty(tensor.shape) for tensor, need in zip(inputs, needed, strict=True) if need]


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    query, key, value, tensors, *ctx.rest = inputs
    *_, aux, _, saves = ctx.rest
    public = ("out", *names_in(aux))
    ctx.public = len(public)
    fixed = [tensor for name, tensor in zip(public, output, strict=False) if name not in DIFFERENTIABLE]
    ctx.mark_non_differentiable(*fixed, *output[ctx.public :])
    ctx.set_materialize_grads(False)
    named = dict(zip((*public, *names_in(saves)), output, strict=True))  # a saved one comes last and replaces a result
    ctx.save_for_backward(query, key, value, *tensors, *(named[name] for name in backward_names(aux, saves)))


def _autograd_backward(ctx: Any, grads: list[Tensor | None]) -> tuple[Any, ...]:
    *first, others = ctx.needs_input_grad[:4]
    needed = [*first, *others]
    inputs, results = ctx.saved_tensors[: len(needed)], ctx.saved_tensors[len(needed) :]
    gradients = iter(attend_backward_operator(grads[: ctx.public], list(inputs), list(results), needed, *ctx.rest))
    query, key, value, *tensors = [next(gradients) if need else None for need in needed]
    integers, floats = ctx.rest[:2]
    # torch takes an empty list for one of tensors
    return query, key, value, tensors, None if integers else [], None if floats else [], None, None, None, None


attend_operator.register_autograd(_autograd_backward, setup_context=_save_for_backward)


def _decode_spec(text: str, integers: list[int], floats: list[float], tensors: list[Tensor]) -> dict[str, Any]:
    """The keyword arguments of `attend`; a seed drawn in the graph comes as a tensor."""
    spec = dict(zip(ARGUMENTS, decoded(text, OperatorInputs(tensors, integers, floats)), strict=True))
    if isinstance(spec["dropout"], tuple):
        rate, seed = spec["dropout"]
        seed = 0 if torch.compiler.is_compiling() else int(seed) + 2**63  # torch.randint's range begins at −2⁶³
        spec["dropout"] = Dropout(rate, seed)
    return spec


decompose(attend_operator._opoverload, _decode_spec, empty_results)


def attend_traced(
    query: Tensor, key: Tensor, value: Tensor, spec: dict[str, Any], aux: Any, engine: "str | Ring"
) -> Tensor | tuple[Tensor, Aux]:
    """What `attend` returns, by the operator. `spec` holds the arguments in the operator's order."""
    names = (aux,) if isinstance(aux, str) else aux
    traceable = isinstance(names, (tuple, list, set, frozenset)) and storable(tuple(spec.values()))
    traceable = traceable and all(isinstance(tensor, Tensor) for tensor in (query, key, value))
    traceable = traceable and not (query.is_nested or key.is_nested or value.is_nested)
    if not isinstance(engine, str) or (not traceable and not exporting()):
        return _outside(query, key, value, spec, aux, engine)  # type: ignore[no-any-return]
    names = tuple(names)
    rate = spec["dropout"]
    if isinstance(rate, float) and 0.0 < rate < 1.0:
        seed = torch.randint(-(2**63), 2**63 - 1, (), device="cpu")  # in the graph, so that backward sees the same
        spec = {**spec, "dropout": (rate, seed)}
    given = OperatorInputs([], [], [])
    text = encoded(tuple(spec.values()), given)
    saves = ""
    tensors = (query, key, value, *given.tensors)
    if torch.is_grad_enabled() and engine in ("auto", "native") and any(t.requires_grad for t in tensors):
        saves = _saved_names(query, spec)
    joined = ",".join([str(name) for name in names])
    results: list[Tensor] = attend_operator(
        query, key, value, given.tensors, given.integers, given.floats, text, joined, engine, saves
    )
    if not names:
        return results[0]
    statistics = results[1 : 1 + len(names)]  # of equal length: dynamo of torch 2.9 does not know strict=False
    return results[0], Aux(**{name: tensor for name, tensor in zip(names, statistics, strict=False) if name in AUX})


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
