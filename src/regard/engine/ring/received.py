"""What each key of one rectangle receives from its rows, whose lse over all keys is known."""

from dataclasses import replace

import torch
from torch import Tensor

from regard.engine.attend import choose
from regard.engine.known import Wanted
from regard.engine.native.engine import lowered
from regard.engine.native.function import NotFiniteError
from regard.engine.native.visit import visited
from regard.engine.request import Request
from regard.engine.strip import empty_rows
from regard.engine.tiled import ready, received


def received_in(request: Request, lse: Tensor, engine: str) -> Tensor:
    """Σ over the rows of the weights, (batch, kv head, group, key); `lse` is float64, (batch, kv head, group, row)."""
    with torch.no_grad():
        if choose(replace(request, aux=("lse",)), engine) == "native" and request.mask.closed:
            finite = bool(lse.isnan().logical_not().all())
            found = _native(request, lse) if finite else None
            if found is not None:
                return found
        kernel, _, operands = ready(request)
        state = lse.to(request.dtype)
        rest = torch.where(state.isfinite(), lse - state.double(), 0.0).to(request.dtype)
        blank = empty_rows(kernel, slice(0, request.plane.queries))
        return received(kernel, replace(blank, state=state, rest=rest), operands, None)


def _native(request: Request, lse: Tensor) -> Tensor | None:
    """By the kernels' second pass; None if something is not finite."""
    if not all(bool(torch.isfinite(part.sum())) for part in (request.query, request.key)):
        return None
    try:
        native, inputs, _ = lowered(request, finite=False)
    except NotFiniteError:
        return None
    plane = request.plane
    rows = lse.flatten(1, 2)
    tau = 1.0 if inputs[3] is None else inputs[3].double().view(-1, 1)
    sound = torch.where(rows == -torch.inf, 0.0, rows)
    top = (sound * tau).to(request.dtype)
    total = (sound - top.double() / tau).exp().to(request.dtype)  # what rounding took from the lse
    found = visited(native, inputs, torch.stack([top, total]), Wanted(received=True))["received"]
    shaped: Tensor = found.unflatten(1, (plane.kv_heads, plane.group))
    return shaped
