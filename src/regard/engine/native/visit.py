"""The second pass over the pairs: weights summed by key, by cell and by row, once the rows' state is known."""

from typing import Any

import torch
from torch import Tensor

from regard.engine.known import Wanted
from regard.engine.native.execute import execute, run
from regard.engine.native.function import Inputs, Native
from regard.engine.native.library import library


def tile(native: Native, inputs: Inputs, state: Tensor, rows: slice, columns: slice) -> Tensor:
    """The weights of a rectangle, (batch, head, row, column); −1 where a pair is hidden."""
    plane = native.plane
    size = (rows.stop - rows.start, columns.stop - columns.start)
    found = torch.full((plane.batch, plane.heads, *size), -1.0, dtype=state.dtype, device="cpu")
    if found.numel():
        held: list[Any] = []
        call = native.call(inputs, held)
        call.tile, call.tile_row, call.tile_column = found.data_ptr(), rows.start, columns.start
        call.tile_rows, call.tile_columns = size
        call.top, call.total = state.data_ptr(), state.data_ptr() + state.nbytes // 2
        run(library().regard_visit, call, long=False)  # type: ignore[union-attr]
    return found


def visited(
    native: Native, inputs: Inputs, state: Tensor, wanted: Wanted, distance: Tensor | None = None
) -> dict[str, Tensor]:
    """`received` (batch, head, key), `spread` and `rowsum` (batch, head, query); of the grid `sum`, `max`, `pairs`.

    `state` is what the forward pass left for backward; `spread` is Σ w·(|i − j| − distance)².
    """
    plane, dtype = native.plane, state.dtype
    held: list[Any] = []
    call = native.call(inputs, held)
    lanes = (plane.batch, plane.heads)
    found: dict[str, Tensor] = {}
    if wanted.received:
        found["received"] = torch.zeros((*lanes, plane.keys), dtype=dtype, device="cpu")
        call.received = found["received"].data_ptr()
    if wanted.spread:
        assert distance is not None
        found |= {
            name: torch.zeros((*lanes, plane.queries), dtype=dtype, device="cpu") for name in ("spread", "rowsum")
        }
        distance = distance.to(dtype).contiguous()
        call.spread, call.rowsum = found["spread"].data_ptr(), found["rowsum"].data_ptr()
        call.distance = distance.data_ptr()
    if wanted.grid is not None:
        size = (*lanes, *wanted.grid)
        found |= {name: torch.zeros(size, dtype=torch.float64, device="cpu") for name in ("sum", "max")}
        found["pairs"] = torch.zeros(size, dtype=torch.int64, device="cpu")
        call.pool_rows, call.pool_columns = wanted.grid
        call.pool_sum, call.pool_max, call.pool_pairs = (found[name].data_ptr() for name in ("sum", "max", "pairs"))
    if plane.queries and plane.keys and plane.batch and plane.heads:
        state = state.contiguous()
        call.top, call.total = state.data_ptr(), state.data_ptr() + state.nbytes // 2
        execute("regard_visit", call, held, found, state, distance)
    return found
