"""What the native engine knows of rows after one pass, and the second pass that starts from it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.engine.known import Known, Wanted
from regard.engine.native.engine import lowered
from regard.engine.native.function import Inputs, Native, NotFiniteError, forward_rows
from regard.engine.native.visit import tile, visited
from regard.engine.request import Request


@dataclass(frozen=True, eq=False)
class Second:
    """The call and its rows' state."""

    native: Native
    inputs: Inputs
    state: Tensor

    def part(self, request: Request, lanes: Tensor) -> "Second":
        """The same of some lanes alone, whose request this is."""
        native, inputs, _ = lowered(request, finite=False)
        size = (2, request.plane.batch, request.plane.heads, request.plane.queries)
        return Second(native, inputs, self.state.flatten(1, 2)[:, lanes].reshape(size))

    def tile(self, rows: slice, columns: slice) -> Tensor:
        """The weights of a rectangle, −1 where a pair is hidden: from the kernels that gave the rows' state."""
        return tile(self.native, self.inputs, self.state, rows, columns)

    def run(self, wanted: Wanted, distance: Tensor | None = None) -> dict[str, Tensor]:
        """Sums by key, by cell and by row."""
        return visited(self.native, self.inputs, self.state, wanted, distance)


def native_known(request: Request) -> Known | None:
    """None if the kernels cannot do it in one call, or something is not finite."""
    if not request.mask.closed:
        return None
    try:
        native, inputs, _ = lowered(request, finite=False)
        rows = forward_rows(native, inputs)
    except NotFiniteError:
        return None
    top, total = rows["state"].double()
    tau = inputs[3]
    exact = top / (1.0 if tau is None else tau.double().view(-1, 1)) + total.log()
    empty = total == 0
    if request.sink is not None:
        sink = request.sink.double().reshape(-1).expand(request.plane.heads).view(-1, 1)
        exact = torch.where(empty, sink, exact)
    lse = exact.to(rows["lse"].dtype)
    rest = torch.where(lse.isfinite(), exact - lse.double(), 0.0).to(lse.dtype)
    found = {name: rows[name] for name in request.aux}
    return Known(lse, rest, found, Second(native, inputs, rows["state"]))
