"""Attention of one rectangle on this process, by the engine for one process, with the lse in double."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.engine.attend import choose, module
from regard.engine.native.engine import lowered
from regard.engine.native.function import Inputs, Native, NotFiniteError, attention, forward_rows
from regard.engine.native.poison import cleaned
from regard.engine.request import Request, Result
from regard.engine.strip import Rows
from regard.engine.tiled import ready, rows_of

STATISTICS = ("entropy", "peak", "peak_at", "distance", "max_logit")


@dataclass(frozen=True, eq=False)
class Local:
    """Rows of one rectangle, with a graph where autograd records; `lse` is float64 and keeps what rounding would take.

    Shares of parts that are merged are e^(lse − lse): in single precision they would be worse than the parts.
    """

    rows: Rows
    lse: Tensor


def computed(request: Request, engine: str) -> Local:
    """The rows of a rectangle; `engine` is a name or auto."""
    asked = replace(request, aux=tuple({*request.aux, "lse"}))
    name = choose(asked, engine)
    if name == "native" and request.mask.closed:
        return _native(request)
    return _tiled(request) if name == "tiled" else _any(module(name).run(asked), request)


def _native(request: Request) -> Local:
    """By the kernels; numbers that are not finite are taken out, and put back where they are seen."""
    try:
        return _kernels(*lowered(request, finite=False)[:2])
    except NotFiniteError:
        found = cleaned(request)
    clean, score, poison = (request, None, None) if found is None else found
    native, inputs, biases = lowered(clean, finite=True, score=score)
    local = _kernels(native, inputs)
    if poison is None:
        return local
    rows = poison.restored(native, local.rows, biases)
    return Local(rows, torch.where(rows.state.isnan(), torch.nan, local.lse))


def _kernels(native: Native, inputs: Inputs) -> Local:
    done = forward_rows(native, inputs)
    rows = attention(native, *inputs, done=done)
    top, total = done["state"].double()
    tau = inputs[3]
    lse = top / (1.0 if tau is None else tau.detach().double().view(-1, 1)) + total.log()
    return Local(rows, torch.where(total == 0, -torch.inf, lse).view(rows.state.shape))


def _tiled(request: Request) -> Local:
    rows = rows_of(*ready(request))
    return Local(rows, rows.state.detach().double() + rows.rest.double())


def _any(result: Result, request: Request) -> Local:
    """Of an engine that tells an lse in its own precision."""
    lse = result.aux.lse
    assert lse is not None
    blank = lse.new_zeros(()).expand(lse.shape)
    found = {name: getattr(result.aux, name) for name in STATISTICS}
    found = {name: blank if tensor is None else tensor for name, tensor in found.items()}
    rows = Rows(out=result.out.to(request.dtype), state=lse, rest=blank, **found)
    return Local(rows, lse.detach().double())
