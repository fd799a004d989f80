"""Known: the state of all rows of a call and their statistics, so that any weight can be computed again."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.engine.attend import choose
from regard.engine.request import Request
from regard.engine.strip import Rows
from regard.engine.tiled import all_rows, ready, with_sink
from regard.spec.normalizers import Softmax

STATISTICS = ("entropy", "peak", "peak_at", "distance", "max_logit")


@dataclass(frozen=True, eq=False)
class Known:
    """Of every row, (batch, head, query): the row state, what rounding took from it, and the statistics asked for.

    `kernel` is what a second pass of the native engine starts from; None if another engine ran.
    """

    state: Tensor
    rest: Tensor
    statistics: dict[str, Tensor]
    kernel: object | None = None


def known(request: Request, statistics: tuple[str, ...] = ()) -> Known:
    """One pass over the pairs, without values, on the engine that `attend` would choose."""
    request = replace(request, aux=statistics)
    with torch.no_grad():
        if choose(request) == "native":
            from regard.engine.native.second import native_known

            found = native_known(request)
            if found is not None:
                return found
        return _tiled_known(request)


def _tiled_known(request: Request) -> Known:
    kernel, value, operands = ready(request)
    alone = all_rows(kernel, value, operands)
    rows: Rows = with_sink(alone, request.sink, request.aux)
    state, rest = rows.state, alone.rest
    if isinstance(request.normalizer, Softmax) and request.sink is not None:
        exact = torch.logaddexp(alone.state.double() + rest.double(), request.sink.double())
        state = exact.to(rest.dtype)
        rest = torch.where(state.isfinite(), exact - state.double(), 0.0).to(rest.dtype)
    found = {name: getattr(rows, name).flatten(1, 2) for name in request.aux}
    return Known(state.flatten(1, 2), rest.flatten(1, 2), found)
