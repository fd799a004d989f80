"""Attention in two calls: a forward that keeps rows, and a backward, without a graph between them.

Where the native kernels made the rows, backward goes on from them: only the lowering is computed again, under
autograd. Everything else is computed again as a whole.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from regard.engine.attend import asked_engine, attend, choose, module
from regard.engine.native import quick
from regard.engine.native.engine import begun, resumed
from regard.engine.native.function import NotFiniteError
from regard.engine.outputs import DIFFERENTIABLE, kept_dtype, kept_shape, names_in, resumed_names
from regard.engine.request import Request, Result, request

Inputs = tuple[Tensor, Tensor, Tensor]
Grads = list[Tensor | None]


def forward(inputs: Inputs, spec: dict[str, Any], aux: str, engine: str, keeps: str) -> list[Tensor]:
    """The output, the statistics, and what `keeps` names."""
    names = names_in(aux)
    if not keeps:
        if not names:
            return [attend(*inputs, engine=engine, **spec).contiguous()]
        out, more = attend(*inputs, aux=names, engine=engine, **spec)
        return [out.contiguous(), *(getattr(more, name).contiguous() for name in names)]
    seen = None if aux else _key(inputs, spec, engine)
    if (again := _again(inputs, seen, keeps)) is not None:
        return again
    asked = request(*inputs, aux=names, **spec)
    chosen = choose(asked, engine)
    made = begun(asked) if chosen == "native" else None
    if made is None:
        result: Result = module(chosen).run(asked)
        rows: dict[str, Tensor] = {}
    else:
        result, rows = made
        if seen is not None:
            quick.remember(seen, asked, inputs)
    found = _unfolded(asked, result, names)
    return [*found, *_kept(rows, found[0], keeps, asked.dtype)]


def backward(
    grads: Grads,
    inputs: list[Tensor],
    results: list[Tensor],
    needed: list[bool],
    spec_of: Any,
    names: tuple[str, str, str],
) -> list[Tensor]:
    """Gradients of the inputs that are needed; `spec_of` makes the spec from all inputs behind query, key and value.

    `grads` belong to the output and the statistics; `names` are aux, engine and keeps.
    """
    aux, engine, keeps = names
    rows = {name: tensor.contiguous() for name, tensor in zip(resumed_names(aux, keeps), results, strict=True)}
    native = bool(rows.pop("native", 0))
    if native and not aux and (found := _again_backward(grads, inputs, rows, needed, spec_of, engine)) is not None:
        return found
    wanted = tuple(name for name in names_in(aux) if name in DIFFERENTIABLE)
    arrived = dict(zip(("out", *names_in(aux)), grads, strict=True))
    with _recording():
        leaves = [tensor.detach().requires_grad_(need) for tensor, need in zip(inputs, needed, strict=True)]
        query, key, value, *tensors = leaves
        asked = request(query, key, value, aux=wanted, **spec_of(tensors))
        chosen = choose(asked, engine)
        result = resumed(asked, _folded(rows, asked)) if native else module(chosen).run(asked)
        outputs = dict(zip(("out", *wanted), _unfolded(asked, result, wanted), strict=True))
        pairs = [(output, arrived[name]) for name, output in outputs.items() if output.requires_grad]
        pairs = [(output, grad) for output, grad in pairs if grad is not None]
        targets = [leaf for leaf in leaves if leaf.requires_grad]
        gradients: tuple[Tensor | None, ...] = (None,) * len(targets)
        if pairs:
            ends, starts = zip(*pairs, strict=True)
            gradients = torch.autograd.grad(ends, targets, starts, allow_unused=True)
    return _own(
        [torch.zeros_like(leaf) if grad is None else grad for leaf, grad in zip(targets, gradients, strict=True)]
    )


def _key(inputs: Inputs, spec: dict[str, Any], engine: str) -> quick.Key | None:
    if asked_engine(engine) not in ("auto", "native"):
        return None
    parts = tuple(spec[name] for name in ("score", "mask", "bias", "normalizer"))
    return quick.key_of(*inputs, parts, tuple(spec[name] for name in ("temperature", "dropout", "query_start")))


def _again(inputs: Inputs, seen: quick.Key | None, keeps: str) -> list[Tensor] | None:
    """The results of a call that was seen before, checks and lowering left out."""
    call = None if seen is None else quick.known(seen)
    if call is None:
        return None
    rows = {
        "state": torch.empty((2, *call.rows), dtype=call.dtype, device="cpu"),
        "at": torch.empty(call.rows, dtype=torch.int64, device="cpu"),
    }
    try:
        rows["out"] = call.forward(*inputs, call.places(rows["state"], rows["at"]))
    except NotFiniteError:
        return None
    out = rows["out"].to(inputs[0].dtype)
    return [out, *_kept(rows, out, keeps, call.dtype)]


def _again_backward(
    grads: Grads, inputs: list[Tensor], rows: dict[str, Tensor], needed: list[bool], spec_of: Any, engine: str
) -> list[Tensor] | None:
    query, key, value, *tensors = inputs
    seen = None if tensors else _key((query, key, value), spec_of([]), engine)
    call = None if seen is None else quick.known(seen)
    if call is None or grads[0] is None:
        return None
    found = call.backward((query, key, value, rows["out"]), call.places(rows["state"], rows["at"]), grads[0])
    return [grad for grad, need in zip(found, needed, strict=True) if need]


def _kept(rows: dict[str, Tensor], out: Tensor, keeps: str, dtype: torch.dtype) -> list[Tensor]:
    """Rows in the axes of the output; zeros if the kernels left none."""
    if not rows:
        return [
            torch.zeros(kept_shape(name, out), dtype=kept_dtype(name, dtype), device=out.device)
            for name in names_in(keeps)
        ]
    rows["native"] = torch.tensor(1, device="cpu", dtype=torch.int64)
    return [rows[name].view(kept_shape(name, out)) for name in names_in(keeps)]


def _folded(rows: dict[str, Tensor], asked: Request) -> dict[str, Tensor]:
    """Rows in the kernels' axes. The lse itself is not needed again; top stands in its place."""
    size = (asked.plane.batch, asked.plane.heads, asked.plane.queries)
    shapes = {"out": (*size, asked.shapes.d_value), "state": (2, *size)}
    found = {name: tensor.detach().view(shapes.get(name, size)) for name, tensor in rows.items()}
    return {"lse": found["state"][0], **found}


def _unfolded(asked: Request, result: Result, names: tuple[str, ...]) -> list[Tensor]:
    found = [result.out, *(getattr(result.aux, name) for name in names)]
    return [asked.shapes.unfold(tensor).contiguous() for tensor in found]


def _own(tensors: list[Tensor]) -> list[Tensor]:
    """Contiguous, and none a view of another: an operator promises that of its results."""
    seen: set[int] = set()
    found = []
    for tensor in tensors:
        tensor = tensor.contiguous()
        place = tensor.untyped_storage().data_ptr()
        found.append(tensor.clone() if place in seen else tensor)
        seen.add(place)
    return found


@contextmanager
def _recording() -> Iterator[None]:
    """Autograd inside an operator, where torch has switched it off."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradCPU)
    keys = keys | torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
    included, excluded = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    with torch._C._ForceDispatchKeyGuard(included, excluded - keys), torch.enable_grad():
        yield
