"""The native engine's row states and its second pass: weights summed by key, by cell and by row."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.engine.arguments import FULL
from regard.engine.native.autograd import forward_rows
from regard.engine.native.call import Inputs, NativeCall, NotFiniteError, lower_request
from regard.engine.native.library import LONG, HeadSums, KindStruct, address, library, run_entry, run_kernel, work_of
from regard.engine.request import Request
from regard.engine.second_pass import KeyKind, PassOutputs, RowStates


@dataclass(frozen=True, eq=False)
class NativeSecondPass:
    """The call, and its rows' state as the forward pass left it for backward."""

    native: NativeCall
    inputs: Inputs
    state: Tensor

    def part(self, request: Request, batch_heads: Tensor) -> "NativeSecondPass":
        """The same of some heads alone, whose request this is."""
        native, inputs, _ = lower_request(request, finite=False)
        size = (2, request.plane.batch, request.plane.heads, request.plane.queries)
        return NativeSecondPass(native, inputs, self.state.flatten(1, 2)[:, batch_heads].reshape(size))

    def tile(self, rows: slice, columns: slice, buffer: Tensor | None = None) -> Tensor:
        """The weights of a rectangle, (batch, head, row, column), −1 where a pair is hidden: from the kernels that gave
        the rows' state."""
        plane, state = self.native.plane, self.state
        size = (rows.stop - rows.start, columns.stop - columns.start)
        shape = (plane.batch, plane.heads, *size)
        if buffer is None:
            weights = torch.full(shape, -1.0, dtype=state.dtype, device="cpu")
        else:
            weights = buffer[: math.prod(shape)].view(shape).fill_(-1.0)
        if weights.numel():
            owners: list[Any] = []
            call = self.native.call(self.inputs, owners)
            call.tile, call.tile_row, call.tile_column = weights.data_ptr(), rows.start, columns.start
            call.tile_rows, call.tile_columns = size
            call.row_max, call.row_sum = state.data_ptr(), state.data_ptr() + state.nbytes // 2
            run_entry(library().regard_second_pass, call, long=False)  # type: ignore[union-attr]
        return weights

    def run(self, outputs: PassOutputs, distance: Tensor | None = None) -> dict[str, Tensor]:
        """`received` (batch, head, key), `spread` and `rowsum` (batch, head, query); of the grid `sum`, `max`, `pairs`.

        `spread` is Σ w·(|i − j| − distance)².
        """
        plane, state, dtype = self.native.plane, self.state, self.state.dtype
        owners: list[Any] = []
        call = self.native.call(self.inputs, owners)
        batch_heads = (plane.batch, plane.heads)
        sums: dict[str, Tensor] = {}
        if outputs.received:
            sums["received"] = torch.zeros((*batch_heads, plane.keys), dtype=dtype, device="cpu")
            call.received = sums["received"].data_ptr()
        if outputs.spread:
            assert distance is not None
            rows = (*batch_heads, plane.queries)
            sums |= {name: torch.zeros(rows, dtype=dtype, device="cpu") for name in ("spread", "rowsum")}
            distance = distance.to(dtype).contiguous()
            call.spread, call.weight_sum = sums["spread"].data_ptr(), sums["rowsum"].data_ptr()
            call.distance = distance.data_ptr()
        if outputs.grid is not None:
            size = (*batch_heads, *outputs.grid)
            sums |= {name: torch.zeros(size, dtype=torch.float64, device="cpu") for name in ("sum", "max")}
            sums["pairs"] = torch.zeros(size, dtype=torch.int64, device="cpu")
            call.pool_rows, call.pool_columns = outputs.grid
            call.pool_sum, call.pool_max, call.pool_pairs = (sums[name].data_ptr() for name in ("sum", "max", "pairs"))
        if plane.queries and plane.keys and plane.batch and plane.heads:
            state = state.contiguous()
            call.row_max, call.row_sum = state.data_ptr(), state.data_ptr() + state.nbytes // 2
            run_kernel("regard_second_pass", call, owners, sums, state, distance)
        return sums

    def compares_heads(self) -> bool:
        """False if the library was built from sources that did not have the head pass yet."""
        return hasattr(library(), "regard_head_pass")

    def head_sums(self, kinds: Sequence[KeyKind], counted: Tensor, products: bool) -> tuple[Tensor, Tensor]:
        """Shares of the kinds, and products of any two heads."""
        plane = self.native.plane
        batch, heads = plane.batch, plane.heads
        shares = torch.zeros((len(kinds), batch, heads, plane.queries), dtype=torch.float64, device="cpu")
        gram = torch.zeros((batch, heads, heads), dtype=torch.float64, device="cpu")
        owners: list[Any] = [kinds]
        structs = (KindStruct * len(kinds))(*(_kind(kind, owners) for kind in kinds if plane.keys and plane.queries))
        sums = HeadSums(gram.data_ptr() if products else None, structs, len(kinds), shares.data_ptr())
        self._head_pass(sums, counted, owners, structs, shares, gram)
        return shares, gram

    def some_rows(self, rows: Tensor, columns: slice, counted: Tensor, to: Tensor) -> None:
        """Write the weights of rows in ascending order."""
        size = (len(rows), columns.stop - columns.start)
        rows = rows.contiguous()
        sums = HeadSums(weights=to.data_ptr(), weights_batch=to.stride(0), rows=rows.data_ptr())
        sums.row_count, sums.column, sums.columns = len(rows), columns.start, size[1]
        if to.numel():
            self._head_pass(sums, counted, rows, to)

    def _head_pass(self, sums: HeadSums, counted: Tensor, *owners: object) -> None:
        plane, state = self.native.plane, self.state.contiguous()
        if not (plane.queries and plane.keys and plane.batch and plane.heads):
            return
        if not bool(counted.all()):  # a row whose sum is 0 sees nothing
            state = torch.stack([state[0], torch.where(counted, state[1], 0.0)])
        memory: list[Any] = [sums, state, *owners]
        call = self.native.call(self.inputs, memory)
        call.row_max, call.row_sum = state.data_ptr(), state.data_ptr() + state.nbytes // 2
        entry = library().regard_head_pass  # type: ignore[union-attr]
        long = sums.weights is None and work_of(call) > LONG
        run_entry(lambda call: entry(call, sums), call, long, memory)


def _kind(kind: KeyKind, owners: list[Any]) -> KindStruct:
    keys, queries = kind.keys.contiguous(), kind.queries.contiguous()
    owners += [keys, queries]
    strides = (each.shape[1] if len(each) > 1 else 0 for each in (keys, queries))
    count = max(int(keys.max()), int(queries.max()), -1) + 1
    excluded = (0, 0) if kind.excluded is None else (1, kind.excluded)
    return KindStruct(address(keys), address(queries), *strides, count, *excluded)


def native_row_states(request: Request) -> RowStates | None:
    """None if the kernels cannot do it in one call, or something is not finite."""
    if request.mask is not FULL and not request.mask.closed:
        return None
    try:
        native, inputs, _ = lower_request(request, finite=False)
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
    statistics = {name: rows[name] for name in request.aux}
    return RowStates(lse, rest, statistics, NativeSecondPass(native, inputs, rows["state"]))
