"""A head view on the native engine: statistics of rows come block by block, then any rectangle of them is pooled."""

import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.engine.attend import choose
from regard.engine.native.autograd import forward_rows
from regard.engine.native.call import lower_request
from regard.engine.native.second_pass import second_pass, weights_tile
from regard.engine.second_pass import PassOutputs
from regard.inspection.matrix import AttentionMatrix
from regard.inspection.matrix.reductions import PooledGrid
from regard.inspection.matrix.source import Computed
from regard.map.cut import Call
from regard.map.head_view import blank, call_fingerprint, put
from regard.spec.masks.count import hull, look, seen_keys
from regard.spec.plane import CannotSliceError

ROW_BLOCK = 1024  # rows whose state is computed together
MOST = 4096  # of them at once
CELLS = 1 << 22  # weights that are held at once


def native_call(matrix: AttentionMatrix) -> Call | None:
    """All heads of a matrix as one call of the native engine; None if its kernels cannot do it."""
    source = matrix._whole.source
    if not isinstance(source, Computed) or not source.softmax or not source.request.mask.closed:
        return None
    with torch.no_grad():
        if choose(source.request) != "native":
            return None
        return Call(*lower_request(source.request, finite=True)[:2])


def native_head_view(call: Call, matrix: AttentionMatrix) -> "NativeHeadView | None":
    """One head, (query, key), of a call; None if not all of its numbers are finite, or its mask has no single head."""
    try:
        own = call.lane(*divmod(int(matrix._lead), call.native.plane.heads))
    except CannotSliceError:
        return None
    finite = all(bool(torch.isfinite(part.sum())) for part in own.inputs[:2])
    return NativeHeadView(own) if finite else None


class NativeHeadView:
    """Weights are e^(x − top) / total; with total / (visible keys) instead they come times the visible keys."""

    def __init__(self, call: Call) -> None:
        """`call` is of one head_view."""
        self._call, plane = call, call.native.plane
        self.queries, self.keys = plane.queries, plane.keys
        dtype = torch.promote_types(call.inputs[0].dtype, torch.float32)
        self._state = torch.zeros((2, 1, 1, plane.queries), dtype=dtype, device="cpu")  # top and total of each row
        self._counts = torch.zeros(plane.queries, dtype=torch.int64, device="cpu")
        self._ready_blocks = torch.zeros(-(-plane.queries // ROW_BLOCK), dtype=torch.bool, device="cpu")
        self._lock = threading.Lock()

    def fingerprint(self) -> str | None:
        """A text that changes with the weights."""
        return call_fingerprint(self._call)

    def seen(self, rows: slice) -> Tensor:
        """How many keys each of these rows sees, (row,)."""
        self.ready(rows)
        return self._counts[rows]

    def hull(self, rows: slice, columns: slice) -> slice:
        """The part of the columns that any of these rows may see."""
        return hull(self._call.native.mask, self._call.native.plane, rows, columns)

    def ready(self, rows: slice) -> None:
        """Compute the state of these rows, if it is not there yet; a pass over all their keys."""
        blocks = slice(rows.start // ROW_BLOCK, -(-rows.stop // ROW_BLOCK))
        if bool(self._ready_blocks[blocks].all()):
            return
        with self._lock:
            first = blocks.start
            while first < blocks.stop:
                past = first + 1
                if not self._ready_blocks[first]:
                    while past < min(blocks.stop, first + MOST // ROW_BLOCK) and not self._ready_blocks[past]:
                        past += 1
                    self._find(slice(first * ROW_BLOCK, min(self.queries, past * ROW_BLOCK)))
                    self._ready_blocks[first:past] = True
                first = past

    def _find(self, rows: slice) -> None:
        part = self._call.rectangle(rows, self.hull(rows, slice(0, self.keys)))
        with torch.no_grad():
            if part.native.plane.keys:
                self._state[..., rows] = forward_rows(part.native, part.inputs)["state"]
            if part.native.bias_hides:
                self._counts[rows] = self._counted(rows)
            else:
                self._counts[rows] = seen_keys(self._call.native.mask, self._call.native.plane, rows)[0, 0]

    def _counted(self, rows: slice) -> Tensor:
        """Keys that a bias of −inf does not hide."""
        step = max(1, CELLS // self.keys)
        parts = (slice(first, min(first + step, rows.stop)) for first in range(rows.start, rows.stop, step))
        everything = slice(0, self.keys)
        return torch.cat([(self._tile(part, everything, self._rows(part)) >= 0).sum(-1) for part in parts])

    def _rows(self, rows: slice) -> Tensor:
        return self._state[..., rows].contiguous()

    def _relative(self, rows: slice) -> Tensor:
        """The state that gives weights times visible keys."""
        state = self._rows(rows).clone()
        state[1] /= self._counts[rows].clamp(min=1)
        return state

    def _tile(self, rows: slice, columns: slice, state: Tensor) -> Tensor:
        part = self._call.rectangle(rows, columns)
        size = (slice(0, rows.stop - rows.start), slice(0, columns.stop - columns.start))
        return weights_tile(part.native, part.inputs, state, *size)[0, 0]

    def weights(self, rows: slice, columns: slice) -> Tensor:
        """The weights of a rectangle, (row, column); −1 where a pair is hidden."""
        self.ready(rows)
        return self._tile(rows, columns, self._rows(rows))

    def grid(self, rows: slice, columns: slice, side: int) -> PooledGrid:
        """Weights times visible keys in cells of `side`; the last row and column of cells may be smaller."""
        size = (-(-(rows.stop - rows.start) // side), -(-(columns.stop - columns.start) // side))
        seen = self.hull(rows, columns)
        if seen.start == seen.stop:
            return blank(size)
        self.ready(rows)
        left = columns.start + (seen.start - columns.start) // side * side
        right = min(columns.stop, left + -(-(seen.stop - left) // side) * side)
        whole = None
        for down in _even(rows, side):
            for across in _even(slice(left, right), side):
                part = self._pooled(down, across, side)
                if part.sum.shape == size:
                    return part
                whole = blank(size) if whole is None else whole
                put(whole, part, (down.start - rows.start) // side, (across.start - columns.start) // side)
        assert whole is not None
        return whole

    def lines(self, rows: Sequence[int]) -> Tensor:
        """The weights of whole rows, (row, key), −1 where a pair is hidden; the result is not cached."""
        weights = torch.full((len(rows), self.keys), -1.0, dtype=self._state.dtype, device="cpu")
        for own, alone in self._alone(rows):
            plane = alone.call.native.plane
            size = (slice(0, plane.queries), slice(0, plane.keys))
            weights[own, : plane.keys] = weights_tile(alone.call.native, alone.call.inputs, alone.state, *size)[0, 0]
        return weights

    def sample(self, rows: Sequence[int], columns: slice, side: int) -> PooledGrid:
        """The same of single rows, each a row of cells; the result is not cached."""
        whole = blank((len(rows), -(-(columns.stop - columns.start) // side)))
        for own, alone in self._alone(rows):
            state = alone.state.clone()
            state[1] /= alone.counts().clamp(min=1)
            plane = alone.call.native.plane
            for across in _even(slice(columns.start, min(plane.keys, columns.stop)), side):
                part = alone.call.rectangle(slice(0, plane.queries), across)
                cells = (plane.queries, max(1, (across.stop - across.start) // side))
                given = second_pass(part.native, part.inputs, state, PassOutputs(grid=cells))
                cells_of_part = PooledGrid(*(given[name][0, 0] for name in ("sum", "max", "pairs")))
                put(whole, cells_of_part, own.start, (across.start - columns.start) // side)
        return whole

    def _alone(self, rows: Sequence[int]) -> Iterator[tuple[slice, "_Alone"]]:
        """Calls of just these rows, several in one unless a bias looks at positions; rows that see nothing are none."""
        native = self._call.native
        together = native.slopes is None and self._call.inputs[4] is None
        step = max(1, CELLS // self.keys) if together else 1
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            seen = [look(native.mask, native.plane, slice(row, row + 1), slice(0, self.keys))[0, 0, 0] for row in some]
            table = torch.cat([row.expand(1, self.keys) for row in seen])
            last = _last(table)
            if last:
                call = self._call.gathered(list(some), table[:, :last]) if together else self._one(some[0], last)
                with torch.no_grad():
                    state = forward_rows(call.native, call.inputs)["state"]
                yield slice(start, start + len(some)), _Alone(call, state, table)

    def _one(self, row: int, last: int) -> Call:
        return self._call.rectangle(slice(row, row + 1), slice(0, last))

    def _pooled(self, rows: slice, columns: slice, side: int) -> PooledGrid:
        """Of a rectangle that is a whole number of cells down and across, or less than one."""
        state = self._relative(rows)
        if side == 1:
            weights = self._tile(rows, columns, state)
            seen = weights >= 0
            relative = weights.clamp_(min=0)
            return PooledGrid(relative, relative, seen)
        part = self._call.rectangle(rows, columns)
        cells = tuple(max(1, (axis.stop - axis.start) // side) for axis in (rows, columns))
        given = second_pass(part.native, part.inputs, state, PassOutputs(grid=(cells[0], cells[1])))
        return PooledGrid(*(given[name][0, 0] for name in ("sum", "max", "pairs")))


def _even(axis: slice, side: int) -> list[slice]:
    """The whole cells of an axis, and what is left at its end."""
    middle = axis.start + (axis.stop - axis.start) // side * side
    return [part for part in (slice(axis.start, middle), slice(middle, axis.stop)) if part.start < part.stop]


class _Alone(NamedTuple):
    """Some rows on their own: the call, their state, and which keys the mask lets them see."""

    call: Call
    state: Tensor
    seen: Tensor

    def counts(self) -> Tensor:
        """How many keys each row sees."""
        if not self.call.native.bias_hides:
            return self.seen.sum(-1)
        plane = self.call.native.plane
        size = (slice(0, plane.queries), slice(0, plane.keys))
        return (weights_tile(self.call.native, self.call.inputs, self.state, *size)[0, 0] >= 0).sum(-1)


def _last(seen: Tensor) -> int:
    """One past the last key that any row sees."""
    places = seen.any(0).nonzero()
    return int(places[-1]) + 1 if len(places) else 0
