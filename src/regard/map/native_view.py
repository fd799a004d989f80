"""Native head views: one head on the native engine, its row statistics block by block, then any rectangle pooled."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.engine.attend import choose
from regard.engine.native.autograd import forward_rows
from regard.engine.native.call import Inputs, NativeCall, lower_request, program
from regard.engine.native.second_pass import NativeSecondPass
from regard.engine.second_pass import PassOutputs
from regard.inspection.matrix import AttentionMatrix
from regard.inspection.matrix.reductions import PooledGrid
from regard.inspection.matrix.source import Computed
from regard.map.head_view import HeadView, blank, put, with_hiding_bias
from regard.map.tile_cache import fingerprint
from regard.spec import masks
from regard.spec.masks.count import hull, look, seen_keys
from regard.spec.plane import Axes, CannotSliceError, Selection

ROW_BLOCK = 1024  # rows whose state is computed together
MOST = 4096  # of them at once
NATIVE_CELLS = 1 << 22  # weights that are held at once

AXES: tuple[Axes, ...] = (  # of the inputs of a call: query, key, value, tau, table, dense, sink, weights
    ("batch", "head", "query", None),
    ("batch", "kv head", "key", None),
    ("batch", "kv head", "key", None),
    ("head",),
    ("head", None),
    ("batch", "head", "query", "key"),
    ("head",),
    ("head", None),
)


@dataclass(frozen=True, eq=False)
class HeadCall:
    """A call without its tensors, and these."""

    native: NativeCall
    inputs: Inputs

    def sliced(self, selection: Selection) -> "HeadCall":
        """The call of the selected batch rows, heads, queries and keys."""
        plane, mask = self.native.plane.sliced(selection), self.native.mask.sliced(selection)
        slopes = self.native.slopes
        slopes = None if slopes is None else selection.tensor(slopes, ("head",))
        native = replace(self.native, plane=plane, mask=mask, program=program(mask, plane), slopes=slopes)
        tensors = zip(self.inputs, AXES, strict=True)
        inputs: Any = tuple(None if tensor is None else selection.tensor(tensor, axes) for tensor, axes in tensors)
        return HeadCall(native, inputs)

    def rectangle(self, rows: slice, columns: slice) -> "HeadCall":
        """Some queries and some keys, at their positions."""
        return self.sliced(Selection(rows=rows, columns=columns, queries=self.native.plane.queries))

    def gathered(self, rows: list[int], seen: Tensor) -> "HeadCall":
        """Single queries, and which of the first keys each sees, (row, key); for biases that know no positions."""
        query, key, value, tau, table, dense, sink, weights = self.inputs
        assert self.native.slopes is None
        assert table is None
        keys = slice(0, seen.shape[1])
        mask = masks.Dense(seen[None, None])
        small = replace(self.native.plane, queries=len(rows), keys=seen.shape[1])
        if dense is not None:
            dense = dense if dense.shape[-2] == 1 else dense[:, :, rows]
            dense = dense if dense.shape[-1] == 1 else dense[..., keys]
        native = replace(self.native, plane=small, mask=mask, program=program(mask, small))
        inputs = (query[:, :, rows], key[:, :, keys], value[:, :, keys], tau, table, dense, sink, weights)
        return HeadCall(native, inputs)

    def weights(self, state: Tensor) -> Tensor:
        """All weights of a call of one head, (row, key); −1 where a pair is hidden."""
        everything = (slice(0, self.native.plane.queries), slice(0, self.native.plane.keys))
        return NativeSecondPass(self.native, self.inputs, state).tile(*everything)[0, 0]

    def pooled(self, state: Tensor, cells: tuple[int, int]) -> PooledGrid:
        """The weights of a call of one head in this many rows and columns of cells."""
        sums = NativeSecondPass(self.native, self.inputs, state).run(PassOutputs(grid=cells))
        return PooledGrid(*(sums[name][0, 0] for name in ("sum", "max", "pairs")))


def native_call(matrix: AttentionMatrix) -> HeadCall | None:
    """All heads of a matrix as one call of the native engine; None if its kernels cannot do it."""
    source = matrix._whole.source
    if not isinstance(source, Computed) or not source.softmax or not source.request.mask.closed:
        return None
    with torch.no_grad():
        request = with_hiding_bias(source.request)
        if choose(request) != "native":
            return None
        return HeadCall(*lower_request(request, finite=True)[:2])


def native_head_view(call: HeadCall, matrix: AttentionMatrix) -> "NativeHeadView | None":
    """One head, (query, key), of a call; None if not all of its numbers are finite, or its mask has no single head."""
    try:
        batch, head = divmod(int(matrix._lead), call.native.plane.heads)
        own = call.sliced(Selection.of(call.native.plane, slice(batch, batch + 1), head))
    except CannotSliceError:
        return None
    finite = all(bool(torch.isfinite(part.sum())) for part in own.inputs[:2])
    return NativeHeadView(own) if finite else None


class NativeHeadView(HeadView):
    """Weights are e^(x − top) / total; with total / (visible keys) instead they come times the visible keys."""

    def __init__(self, call: HeadCall) -> None:
        """`call` is of one head."""
        self._call, plane = call, call.native.plane
        self.queries, self.keys = plane.queries, plane.keys
        dtype = torch.promote_types(call.inputs[0].dtype, torch.float32)
        self._state = torch.zeros((2, 1, 1, plane.queries), dtype=dtype, device="cpu")  # top and total of each row
        self._counts = torch.zeros(plane.queries, dtype=torch.int64, device="cpu")
        self._ready_blocks = torch.zeros(-(-plane.queries // ROW_BLOCK), dtype=torch.bool, device="cpu")
        self._lock = threading.Lock()

    def fingerprint(self) -> str | None:
        native, plane = self._call.native, self._call.native.plane
        sizes = (plane.queries, plane.keys, plane.key_start, plane.starts.tolist())
        numbers = (native.scale, native.cap, native.phi, *sizes)
        return fingerprint(numbers, native.mask, native.slopes, *self._call.inputs)

    def visibility(self) -> str | None:
        native, plane = self._call.native, self._call.native.plane
        if native.bias_hides:
            return None
        return fingerprint((plane.queries, plane.keys, plane.key_start, plane.starts.tolist()), native.mask)

    def seen(self, rows: slice) -> Tensor:
        self.ready(rows)
        return self._counts[rows]

    def hull(self, rows: slice, columns: slice) -> slice:
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
                    self._compute_state(slice(first * ROW_BLOCK, min(self.queries, past * ROW_BLOCK)))
                    self._ready_blocks[first:past] = True
                first = past

    def _compute_state(self, rows: slice) -> None:
        native = self._call.native
        part = self._call.rectangle(rows, self.hull(rows, slice(0, self.keys)))
        with torch.no_grad():
            if part.native.plane.keys:
                self._state[..., rows] = forward_rows(part.native, part.inputs)["state"]
            if not native.bias_hides:
                self._counts[rows] = seen_keys(native.mask, native.plane, rows)[0, 0]
                return
            step = max(1, NATIVE_CELLS // self.keys)
            for first in range(rows.start, rows.stop, step):
                some = slice(first, min(first + step, rows.stop))
                self._counts[some] = (self._weights(some, slice(0, self.keys)) >= 0).sum(-1)

    def _weights(self, rows: slice, columns: slice) -> Tensor:
        return self._call.rectangle(rows, columns).weights(self._state[..., rows].contiguous())

    def weights(self, rows: slice, columns: slice) -> Tensor:
        self.ready(rows)
        return self._weights(rows, columns)

    def grid(self, rows: slice, columns: slice, side: int) -> PooledGrid:
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
        weights = torch.full((len(rows), self.keys), -1.0, dtype=self._state.dtype, device="cpu")
        for own, call, state, _ in self._single_rows(rows):
            weights[own, : call.native.plane.keys] = call.weights(state)
        return weights

    def sample(self, rows: Sequence[int], columns: slice, side: int) -> PooledGrid:
        whole = blank((len(rows), -(-(columns.stop - columns.start) // side)))
        for own, call, state, seen in self._single_rows(rows):
            plane = call.native.plane
            counts = (call.weights(state) >= 0 if call.native.bias_hides else seen).sum(-1)
            relative = state.clone()
            relative[1] /= counts.clamp(min=1)
            for across in _even(slice(columns.start, min(plane.keys, columns.stop)), side):
                cells = (plane.queries, max(1, (across.stop - across.start) // side))
                part = call.rectangle(slice(0, plane.queries), across).pooled(relative, cells)
                put(whole, part, own.start, (across.start - columns.start) // side)
        return whole

    def _single_rows(self, rows: Sequence[int]) -> Iterator[tuple[slice, HeadCall, Tensor, Tensor]]:
        """Calls of just these rows, several in one unless a bias looks at positions, without those that see nothing.

        Gives the places in `rows`, the call, its state, and which keys the mask lets the rows see, (row, key).
        """
        native = self._call.native
        together = native.slopes is None and self._call.inputs[4] is None
        step = max(1, NATIVE_CELLS // self.keys) if together else 1
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            seen = [look(native.mask, native.plane, slice(row, row + 1), slice(0, self.keys))[0, 0, 0] for row in some]
            table = torch.cat([row.expand(1, self.keys) for row in seen])
            places = table.any(0).nonzero()
            if len(places):
                past = int(places[-1]) + 1
                if together:
                    call = self._call.gathered(list(some), table[:, :past])
                else:
                    call = self._call.rectangle(slice(some[0], some[0] + 1), slice(0, past))
                with torch.no_grad():
                    state = forward_rows(call.native, call.inputs)["state"]
                yield slice(start, start + len(some)), call, state, table

    def _pooled(self, rows: slice, columns: slice, side: int) -> PooledGrid:
        """Of a rectangle that is a whole number of cells down and across, or less than one."""
        state = self._state[..., rows].clone(memory_format=torch.contiguous_format)
        state[1] /= self._counts[rows].clamp(min=1)  # gives weights times visible keys
        call = self._call.rectangle(rows, columns)
        if side == 1:
            weights = call.weights(state)
            seen = weights >= 0
            relative = weights.clamp_(min=0)
            return PooledGrid(relative, relative, seen)
        down, across = (max(1, (axis.stop - axis.start) // side) for axis in (rows, columns))
        return call.pooled(state, (down, across))


def _even(axis: slice, side: int) -> list[slice]:
    """The whole cells of an axis, and what is left at its end."""
    middle = axis.start + (axis.stop - axis.start) // side * side
    return [part for part in (slice(axis.start, middle), slice(middle, axis.stop)) if part.start < part.stop]
