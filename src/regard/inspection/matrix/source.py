"""Sources of weights: computed from queries and keys, or stored.

A map is the (query, key) matrix of one batch row and head. Sources number their maps.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from regard.cached import cached_property
from regard.engine.request import Request
from regard.engine.second_pass import RowStates, row_states, some_row_states
from regard.engine.tiled.engine import lower_tiled
from regard.engine.tiled.full_row import column_span, full_row_weights, row_block_logits
from regard.engine.tiled.tiles import Tensors, Tile, TiledCall
from regard.spec.masks.count import hull
from regard.spec.normalizers import Softmax

HEIGHT = 64  # rows of stored weights at a time
CELLS, WIDTH = 1 << 20, 512  # numbers of a block over all maps, and its least width
QUERY_BLOCK = 48  # rows that the native kernels compute together
PASSING, PASSING_ROWS, PASSING_COLUMNS = 1 << 20, 240, 512  # numbers of a block that is overwritten by the next
FEW = 16  # a part of the rows this small is computed alone


@dataclass(frozen=True, eq=False)
class WeightBlock:
    """A rectangle of weights, (map, row, column). `visible` broadcasts to it, None if all are; `away` is |i − j|."""

    rows: slice
    columns: slice
    weights: Tensor
    visible: Tensor | None
    away: Tensor


class Source(Protocol):
    """The weights that reductions read."""

    maps: int
    heads: int  # maps of a batch row
    queries: int
    keys: int
    dtype: torch.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""

    def blocks(self) -> Iterator[WeightBlock]:
        """Rectangles that together hold every visible pair, by blocks of rows, left to right."""

    def tile(self, rows: slice, columns: slice) -> Tensor:
        """The weights of one rectangle, (map, row, column)."""

    def visible_tile(self, rows: slice, columns: slice) -> tuple[Tensor, Tensor | None]:
        """The same with what is visible of it, None if all pairs are."""

    def before_use(self, check: Callable[[], None]) -> None:
        """Call `check` once, before the tensors are used for the first time."""


class _Checked:
    """A source that may have to be checked before the first use of its tensors."""

    _check: Callable[[], None] | None = None

    def before_use(self, check: Callable[[], None]) -> None:
        """Call `check` once, before the first use. While it raises, the source cannot be used."""
        self._check = check

    def _run_check(self) -> None:
        if self._check is not None:
            self._check()
            self._check = None


class Computed(_Checked):
    """Weights that are computed from queries and keys at every use."""

    def __init__(self, request: Request, whole: "Computed | None" = None, maps: Tensor | None = None) -> None:
        """`whole` and `maps`: the source that this is a part of, whose row statistics may be cached."""
        plane = request.plane
        self._request, self._whole, self._own = request, whole, maps
        self.maps, self.queries, self.keys = plane.batch * plane.heads, plane.queries, plane.keys
        self.heads, self.dtype = plane.heads, request.dtype
        self._inputs = tuple(t for t in (request.query, request.key, *request.buffers) if not t.is_inference())
        self._versions = [tensor._version for tensor in self._inputs]
        self._known: RowStates | None = None
        self._states: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}  # of the last rows

    @property
    def request(self) -> Request:
        """Queries, keys and the spec."""
        if self._check is not None:
            self._run_check()
        return self._request

    @property
    def device(self) -> torch.device:
        return self._request.query.device

    @property
    def softmax(self) -> bool:
        """Whether a weight depends on the lse of its row only."""
        return isinstance(self._request.normalizer, Softmax)

    def __getstate__(self) -> dict[str, Any]:
        """A copy has its own tensors, whose versions start at 0."""
        return {name: value for name, value in vars(self).items() if name != "_versions"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._versions = [tensor._version for tensor in self._inputs]

    def unchanged(self) -> None:
        """Refuse to mix results from before and after an input was changed in place."""
        if [tensor._version for tensor in self._inputs] != self._versions:
            raise RuntimeError(
                "query, key or a tensor of the spec was changed in place after the matrix was made; "
                "make the matrix anew, or of a copy: regard.matrix(query.clone(), ...)"
            )

    def known(self, statistics: tuple[str, ...] = ()) -> RowStates:
        """The rows' state and these statistics; a pass over the pairs unless they are cached."""
        self.unchanged()
        if not self.knows(statistics) and self._whole is not None and self._whole.knows(statistics):
            self._known = self._borrowed(self._whole.known(statistics))
        if not self.knows(statistics):
            before = {} if self._known is None else self._known.statistics
            new = row_states(self.request, statistics)
            self._known = RowStates(new.state, new.rest, before | new.statistics, new.kernel)
        assert self._known is not None
        return self._known

    def knows(self, statistics: tuple[str, ...]) -> bool:
        """Whether these are cached."""
        return self._known is not None and not set(statistics) - set(self._known.statistics)

    def _borrowed(self, whole: RowStates) -> RowStates:
        assert self._own is not None

        def part(tensor: Tensor) -> Tensor:
            own: Tensor = tensor.flatten(0, 1)[self._own]
            return own.view(self.request.plane.batch, self.heads, -1)

        kernel = None if whole.kernel is None else whole.kernel.part(self.request, self._own)
        statistics = {name: part(x) for name, x in whole.statistics.items()}
        return RowStates(part(whole.state), part(whole.rest), statistics, kernel)

    @cached_property
    def _kernel(self) -> tuple[TiledCall, Tensors]:
        kernel, _, operands = lower_tiled(self.request)
        return kernel, operands

    def blocks(self) -> Iterator[WeightBlock]:
        self.unchanged()
        kernel, operands = self._kernel
        second = self.known().kernel if self.softmax else None
        for rows, tiles in kernel.schedule.row_blocks:
            if not tiles:
                continue
            if second is not None:
                for columns in joined(tiles, max(WIDTH, CELLS // max(1, self.maps * (rows.stop - rows.start)))):
                    weights = second.tile(rows, columns).flatten(0, 1)  # −1 where hidden
                    yield WeightBlock(rows, columns, weights.clamp(min=0.0), weights >= 0.0, self._away(rows, columns))
            elif self.softmax:
                for tile in tiles:
                    x = self._logits(tile)
                    yield self._block(rows, tile.columns, self._weights(x, rows), x)
            else:
                x = row_block_logits(kernel, rows, tiles, operands)[0]
                yield self._block(rows, column_span(tiles), full_row_weights(kernel, x)[0], x)

    def passing_blocks(self) -> Iterator[tuple[slice, slice, Tensor]]:
        """Rows, columns and weights of rectangles that together hold every visible pair; −1 where a pair is hidden.

        The weights are valid until the next rectangle, which overwrites them. Softmax only.
        """
        second, plane = self.known().kernel, self.request.plane
        if second is None:
            for block in self.blocks():
                hidden = (
                    torch.zeros((), dtype=torch.bool, device=self.device) if block.visible is None else ~block.visible
                )
                yield block.rows, block.columns, torch.where(hidden, -1.0, block.weights)
            return
        height = max(
            QUERY_BLOCK, min(PASSING_ROWS, PASSING // max(1, self.maps * PASSING_COLUMNS) // QUERY_BLOCK * QUERY_BLOCK)
        )
        buffer = torch.empty(self.maps * height * PASSING_COLUMNS, dtype=self.known().state.dtype, device="cpu")
        for first in range(0, self.queries, height):
            rows = slice(first, min(self.queries, first + height))
            seen = hull(self.request.mask, plane, rows, slice(0, self.keys))
            for start in range(seen.start, seen.stop, PASSING_COLUMNS):
                columns = slice(start, min(seen.stop, start + PASSING_COLUMNS))
                yield rows, columns, second.tile(rows, columns, buffer).flatten(0, 1)

    def tile(self, rows: slice, columns: slice) -> Tensor:
        return self._marked_tile(rows, columns).clamp(min=0.0)

    def visible_tile(self, rows: slice, columns: slice) -> tuple[Tensor, Tensor | None]:
        tile = self._marked_tile(rows, columns)
        return tile.clamp(min=0.0), ~(tile < 0.0)  # not-a-number is visible

    def _marked_tile(self, rows: slice, columns: slice) -> Tensor:
        """The weights of one rectangle, −1 where a pair is hidden."""
        self.unchanged()
        with torch.no_grad():
            plane = self.request.plane
            # the second pass uses the kernels that gave the rows' state, so that both round alike
            second = self.known().kernel if self.softmax and not self._few(rows) else None
            if second is not None:
                marked: Tensor = second.tile(rows, columns).flatten(0, 1)
                return marked
            if self.softmax:
                x = self._logits(Tile(plane, rows, columns, mixed=True))
                return self._flat(torch.where(x == -torch.inf, -1.0, self._weights(x, rows)), rows, columns)
            kernel, _ = self._kernel
            everything = slice(0, plane.keys)
            parts = []
            for first in range(rows.start, rows.stop, kernel.schedule.height):
                some = slice(first, min(rows.stop, first + kernel.schedule.height))
                x = self._logits(Tile(plane, some, everything, mixed=True))
                whole = torch.where(x == -torch.inf, -1.0, full_row_weights(kernel, x)[0])
                parts.append(self._flat(whole, some, everything)[..., columns])
            return torch.cat(parts, 1)

    def _logits(self, tile: Tile) -> Tensor:
        kernel, operands = self._kernel
        return kernel.logits.tile(tile, kernel.logits.cut(operands, tile))[0]

    def _weights(self, x: Tensor, rows: slice) -> Tensor:
        plane = self.request.plane
        state, rest = (part.unflatten(1, (plane.kv_heads, plane.group)).unsqueeze(-1) for part in self._row_state(rows))
        weights = (x - torch.where(state == -torch.inf, 0.0, state)).sub_(rest).exp_()
        return torch.where(x == -torch.inf, 0.0, weights)

    def _few(self, rows: slice) -> bool:
        """Whether to compute the state of these rows alone."""
        known = self.knows(()) or (self._whole is not None and self._whole.knows(()))
        return not known and (rows.stop - rows.start) * FEW <= self.queries

    def _row_state(self, rows: slice) -> tuple[Tensor, Tensor]:
        """The lse of some rows and what rounding took from it."""
        if self._few(rows):
            key = (rows.start, rows.stop)
            if key not in self._states:
                self._states.clear()
                self._states[key] = some_row_states(self.request, *self._kernel, rows)
            return self._states[key]
        all_rows = self.known()
        return all_rows.state[..., rows], all_rows.rest[..., rows]

    def _flat(self, tensor: Tensor, rows: slice, columns: slice) -> Tensor:
        size = (rows.stop - rows.start, columns.stop - columns.start)
        plane = self.request.plane
        return tensor.expand(plane.batch, plane.kv_heads, plane.group, *size).reshape(self.maps, *size)

    def _block(self, rows: slice, columns: slice, weights: Tensor, x: Tensor) -> WeightBlock:
        flat = self._flat(weights, rows, columns)
        return WeightBlock(rows, columns, flat, self._flat(x != -torch.inf, rows, columns), self._away(rows, columns))

    def _away(self, rows: slice, columns: slice) -> Tensor:
        pairs = self.request.plane.pairs(rows, columns)
        away = (pairs.i - pairs.j).abs().to(self.dtype)
        return self._flat(away, rows, columns) if away.ndim > 2 else away


def joined(tiles: list[Tile], width: int) -> Iterator[slice]:
    """The columns of adjacent tiles, at most about `width` at a time."""
    start = tiles[0].columns.start
    for tile, after in zip(tiles, [*tiles[1:], None], strict=True):
        stop = tile.columns.stop
        if after is None or after.columns.start != stop or stop - start >= width:
            yield slice(start, stop)
            start = stop if after is None else after.columns.start


class Stored(_Checked):
    """Given weights, (…, head, query, key) or (query, key); `visible`, of the same shape, if some pairs are hidden."""

    def __init__(self, weights: Tensor, visible: Tensor | None = None) -> None:
        self.heads = weights.shape[-3] if weights.ndim > 2 else 1
        self._weights = weights.reshape(weights.shape[:-2].numel(), *weights.shape[-2:])
        self.maps, self.queries, self.keys = self._weights.shape
        self._visible = None if visible is None else visible.reshape(self._weights.shape)
        self.dtype = torch.promote_types(weights.dtype, torch.float32)  # half precision is converted where it is used

    @property
    def weights(self) -> Tensor:
        """All of them, (map, query, key)."""
        return self._given.to(self.dtype)

    @property
    def _given(self) -> Tensor:
        if self._check is not None:
            self._run_check()
        return self._weights

    @property
    def device(self) -> torch.device:
        return self._weights.device

    def blocks(self) -> Iterator[WeightBlock]:
        j = torch.arange(self.keys, device=self.device)
        for first in range(0, self.queries, HEIGHT):
            rows = slice(first, min(self.queries, first + HEIGHT))
            i = torch.arange(rows.start, rows.stop, device=self.device) + max(self.keys - self.queries, 0)
            away = (i.view(-1, 1) - j).abs().to(self.dtype)
            seen = None if self._visible is None else self._visible[:, rows]
            yield WeightBlock(rows, slice(0, self.keys), self._given[:, rows].to(self.dtype), seen, away)

    def tile(self, rows: slice, columns: slice) -> Tensor:
        return self._given[:, rows, columns].to(self.dtype)

    def visible_tile(self, rows: slice, columns: slice) -> tuple[Tensor, Tensor | None]:
        seen = None if self._visible is None else self._visible[:, rows, columns]
        return self.tile(rows, columns), seen

    def one_map(self, number: int) -> Tensor:
        """The weights of one map as they were given, (query, key)."""
        return self._given[number]


def taken(tensor: Tensor, maps: Tensor) -> Tensor:
    """(map, …) to the axes of `maps`; a copy, so that cached results cannot be changed."""
    return tensor[maps.reshape(-1).to(tensor.device)].view(*maps.shape, *tensor.shape[1:])
