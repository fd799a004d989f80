"""Second pass: row states of a call and their statistics, from which any weight can be computed again."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from regard.engine.attend import choose
from regard.engine.request import Request
from regard.engine.tiled.engine import all_rows, lower_tiled, with_sink
from regard.engine.tiled.online_softmax import softmax_rows
from regard.engine.tiled.tiles import Rows, Tensors, Tile, TiledCall
from regard.spec.normalizers import Softmax


@dataclass(frozen=True)
class PassOutputs:
    """What a second pass gives: sums by key, the spread of |i − j|, a grid of (rows, columns)."""

    received: bool = False
    spread: bool = False
    grid: tuple[int, int] | None = None


class KeyKind(NamedTuple):
    """A kind of keys: those that have the number of the query, but for the key at j = i + `excluded`.

    Numbers are (1 or batch, key) and (1 or batch, query), in int64; a negative one equals no other.
    """

    keys: Tensor
    queries: Tensor
    excluded: int | None = None


class SecondPass(Protocol):
    """The engine's own second pass, from the rows' state as it computed it."""

    def part(self, request: Request, batch_heads: Tensor) -> "SecondPass":
        """The same of some heads alone, whose request this is."""

    def tile(self, rows: slice, columns: slice, buffer: Tensor | None = None) -> Tensor:
        """The weights of a rectangle, (batch, head, row, column); −1 where a pair is hidden. They are written to the
        buffer, a flat tensor that has room for them, if there is one: new memory costs as much as the weights."""

    def run(self, outputs: PassOutputs, distance: Tensor | None = None) -> dict[str, Tensor]:
        """Sums by key, by cell and by row; `distance` is what `spread` is taken around."""

    def compares_heads(self) -> bool:
        """Whether it has the next two."""

    def head_sums(self, kinds: Sequence[KeyKind], counted: Tensor, products: bool) -> tuple[Tensor, Tensor]:
        """Of the queries that count, (batch, 1 or head, query), in double: the weight of each row on the keys of each
        kind, (kind, batch, head, query), and Σ w·w′ of any two heads, (batch, head, head)."""

    def some_rows(self, rows: Tensor, columns: slice, counted: Tensor, to: Tensor) -> None:
        """Write the weights of rows in ascending order, (batch, head, row, column); 0 where a pair is hidden or the
        query does not count. Only the batch axis of `to` may have a stride of its own."""


@dataclass(frozen=True, eq=False)
class RowStates:
    """Of every row, (batch, head, query): the row state, what rounding took from it, and the statistics asked for.

    `kernel` is what a second pass of the native engine starts from; None if another engine ran.
    """

    state: Tensor
    rest: Tensor
    statistics: dict[str, Tensor]
    kernel: SecondPass | None = None


def row_states(request: Request, statistics: tuple[str, ...] = ()) -> RowStates:
    """One pass over the pairs, without values, on the engine that `attend` would choose."""
    request = replace(request, aux=statistics)
    with torch.no_grad():
        if choose(request) == "native":
            from regard.engine.native.second_pass import native_row_states

            native = native_row_states(request)
            if native is not None:
                return native
        alone = all_rows(*lower_tiled(request))
        rows: Rows = with_sink(alone, request.sink, request.aux)
        by_name = {name: getattr(rows, name).flatten(1, 2) for name in request.aux}
        return RowStates(*_with_sink(request, alone, rows.state), by_name)


def _with_sink(request: Request, alone: Rows, state: Tensor) -> tuple[Tensor, Tensor]:
    """The row state and what rounding took from it; the sink's share of an lse is added in double."""
    rest = alone.rest
    if isinstance(request.normalizer, Softmax) and request.sink is not None:
        exact = torch.logaddexp(alone.state.double() + rest.double(), request.sink.double())
        state = exact.to(rest.dtype)
        rest = torch.where(state.isfinite(), exact - state.double(), 0.0).to(rest.dtype)
    return state.flatten(1, 2), rest.flatten(1, 2)


def some_row_states(request: Request, kernel: TiledCall, operands: Tensors, rows: slice) -> tuple[Tensor, Tensor]:
    """The same of some rows alone, (batch, head, row)."""
    plane, step = request.plane, kernel.schedule.segment
    tiles = [Tile(plane, rows, slice(j, min(plane.keys, j + step)), mixed=True) for j in range(0, plane.keys, step)]
    plain = replace(kernel, aux=frozenset(), raw_value=None, d_value=0)
    value = request.value[..., :0].to(request.dtype)
    with torch.no_grad():
        alone = softmax_rows(plain, rows, tiles, value, operands)
        return _with_sink(request, alone, alone.state)
