"""Memory of a call: a counter of bytes held, and estimates of the peak from a small part that is run."""

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from regard.engine import reference
from regard.engine.request import Request
from regard.engine.tiled.engine import row_block, with_sink
from regard.engine.tiled.tiles import Logits, Schedule, Tensors, Tile, TiledCall, TileSpan, empty_rows
from regard.spec.normalizers import Softmax
from regard.spec.plane import Pairs, Plane


class MemoryCounter(TorchDispatchMode):
    """Counts storages from the operation that makes them to the moment they are freed.

    What exists before the block is not counted, and a view costs nothing. Tensors on the device "meta" count with the
    size they would have, so memory can be measured without being allocated.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held: int = 0
        self.peak: int = 0
        self._alive: set[int] = set()

    def __enter__(self) -> Self:
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = [tensor for tensor in tree_iter((args, kwargs)) if isinstance(tensor, Tensor)]
        result = func(*args, **(kwargs or {}))
        made = [tensor for tensor in tree_iter(result) if isinstance(tensor, Tensor)]
        known = {tensor.untyped_storage()._cdata for tensor in given} | self._alive
        for tensor in made:
            storage = tensor.untyped_storage()
            if storage._cdata not in known:
                known.add(storage._cdata)
                self._alive.add(storage._cdata)
                weakref.finalize(storage, self._drop, storage._cdata, storage.nbytes()).atexit = False
                self.held += storage.nbytes()
        self.peak = max(self.peak, self.held + _casts(func, given, made))
        return result

    def _drop(self, identity: int, size: int) -> None:
        self._alive.discard(identity)
        self.held -= size


def _casts(func: Any, given: list[Tensor], made: list[Tensor]) -> int:
    """Bytes of the copies in another type that torch makes unseen: of mixed operands, of bools to be summed."""
    kind, aten = func.overloadpacket, torch.ops.aten
    if not (torch.Tag.pointwise in func.tags or kind in (aten.sum, aten.cumsum)) or not given or not made:
        return 0
    wanted = made[0].dtype
    if wanted == torch.bool:  # a comparison: its operands are cast to what all of them fit in
        wanted = reduce(torch.promote_types, (tensor.dtype for tensor in given))
    operands = given[1:] if kind is aten.where else given  # a condition stays what it is
    return sum(tensor.numel() * wanted.itemsize for tensor in operands if tensor.dtype != wanted)


ROWS = 64  # rows that stand for all where every row costs the same
CELLS = 1 << 19  # pairs that stand for all in the dense engine


def output_bytes(checked: Request) -> int:
    """Bytes of what the call returns."""
    plane, item = checked.plane, checked.dtype.itemsize
    row = checked.value.shape[-1] * checked.query.dtype.itemsize
    row += sum(8 if name == "peak_at" else item for name in checked.aux if name != "received")
    received = plane.keys * item if "received" in checked.aux else 0
    return plane.batch * plane.heads * (plane.queries * row + received)


def tiled_bytes(checked: Request, kernel: TiledCall, value: Tensor, operands: Tensors, lowering: MemoryCounter) -> int:
    """Most bytes that the tiled engine's forward pass holds at once, outputs included."""
    plane = checked.plane
    with MemoryCounter() as planning:
        blocks = kernel.schedule.row_blocks
        next(blocks, None)
    peak = _softmax_peak if isinstance(kernel.normalizer, Softmax) else _full_row_peak
    tile = planning.held + peak(kernel, value, operands)
    trained = any(tensor.requires_grad for tensor in (value, *operands))
    made, results, sink, merged = (-(-plane.queries * size // ROWS) for size in _row_bytes(checked, kernel, trained))
    held = lowering.held
    phases = [lowering.peak, held + made, held + results + max(planning.peak, tile), held + sink, held + merged]
    if "received" in checked.aux:
        batch_heads = plane.batch * plane.heads
        held += batch_heads * plane.keys * checked.dtype.itemsize
        if checked.sink is not None:  # the state without it
            held += 2 * batch_heads * plane.queries * checked.dtype.itemsize
        phases.append(held + merged + tile)
    if checked.query.dtype != checked.dtype:
        rounded = plane.batch * plane.heads * plane.queries * kernel.d_value * checked.query.dtype.itemsize
        phases.append(held + merged + rounded)
    return max(phases)


def dense_bytes(checked: Request, lowering: MemoryCounter) -> int:
    """The same for the reference engine, extrapolated from two small numbers of rows."""
    plane = checked.plane
    some = max(1, CELLS // max(1, plane.batch * plane.heads * plane.keys))
    if 2 * some >= plane.queries:
        return lowering.held + _dense_peak(checked, plane.queries)
    less, more = _dense_peak(checked, some), _dense_peak(checked, 2 * some)
    return lowering.held + less - (less - more) * (plane.queries - some) // some


def _softmax_peak(kernel: TiledCall, value: Tensor, operands: Tensors) -> int:
    """A tile of the online softmax, computed twice, so that the second finds the sums of the first."""
    blocks = [(tile.rows, [tile, tile]) for tile in _largest(kernel.schedule)]
    nothing = slice(0, min(kernel.schedule.height, kernel.schedule.plane.queries)), list[Tile]()
    return max(_row_block_peak(kernel, *row_block, value, operands) for row_block in blocks or [nothing])


def _full_row_peak(kernel: TiledCall, value: Tensor, operands: Tensors) -> int:
    """The peak of a full-row normalizer: the widest row block on meta tensors, and the tiles that it is made of."""

    def area(row_block: tuple[slice, list[TileSpan]]) -> int:
        rows, spans = row_block
        return (rows.stop - rows.start) * (spans[-1].stop - spans[0].start) if spans else 0

    rows, spans = max(kernel.schedule.outline, key=area, default=(slice(0, 0), list[TileSpan]()))
    with MemoryCounter() as before:
        blank = empty_rows(kernel, rows)
        made, first = 0, before.held  # what a row block holds before its first tile
    del blank
    for tile in _largest(kernel.schedule):
        with torch.no_grad(), MemoryCounter() as memory:
            pair = kernel.logits.tile(tile, kernel.logits.cut(operands, tile))
        made = max(made, first + memory.peak + (sum(span.times for span in spans) - 1) * memory.held)
        del pair
    schedule = replace(kernel.schedule, plane=replace(kernel.schedule.plane, device=torch.device("meta")))
    bare = replace(
        kernel,
        logits=_EmptyLogits(**{field.name: getattr(kernel.logits, field.name) for field in fields(Logits)}),
        schedule=schedule,
        raw_value=None if kernel.raw_value is None else kernel.raw_value.to("meta"),
    )
    tiles = [tile for span in spans for tile in schedule.tiles(rows, span)]
    return max(made, _row_block_peak(bare, rows, tiles, value.to("meta"), ()))


def _row_block_peak(kernel: TiledCall, rows: slice, tiles: list[Tile], value: Tensor, operands: Tensors) -> int:
    with torch.no_grad(), MemoryCounter() as memory:
        row_block(kernel, rows, tiles, value, operands)
    return memory.peak


def _largest(schedule: Schedule) -> Iterator[Tile]:
    """The largest full tile and the largest mixed one."""
    largest: dict[bool, tuple[int, slice, TileSpan]] = {}
    for rows, spans in schedule.outline:
        for span in spans:
            area = (rows.stop - rows.start) * span.width
            if span.mixed not in largest or area > largest[span.mixed][0]:
                largest[span.mixed] = area, rows, span
    for _, rows, span in largest.values():
        yield next(schedule.tiles(rows, span))


def _row_bytes(checked: Request, kernel: TiledCall, trained: bool) -> tuple[int, int, int, int]:
    """Peak and remaining bytes of making `ROWS` rows of results; both again for merging the sink into them."""
    with MemoryCounter() as memory:
        rows = empty_rows(kernel, slice(0, ROWS))
        made, results = memory.peak, memory.held
        saved = []
        if torch.is_grad_enabled() and trained and checked.sink is not None:
            rows.out.requires_grad_()  # merging keeps what its gradient needs
            rows.state.requires_grad_()
            saved.append(rows)  # all results are saved for the gradient
        memory.peak = memory.held
        rows = with_sink(rows, checked.sink, checked.aux)
    return made, results, memory.peak, memory.held


def _dense_peak(checked: Request, rows: int) -> int:
    top = _TopRows(**{field.name: getattr(checked.plane, field.name) for field in fields(Plane)}, rows=rows)
    with MemoryCounter() as memory:
        reference.run(replace(checked, query=checked.query[..., :rows, :], plane=top))
    return memory.peak


@dataclass(frozen=True, eq=False)
class _TopRows(Plane):
    """A plane of which only the first rows are computed."""

    rows: int = 0

    @property
    def all(self) -> Pairs:
        return self.pairs(slice(0, self.rows), slice(0, self.keys))


@dataclass(frozen=True, eq=False)
class _EmptyLogits(Logits):
    """Logits that have a size and nothing else."""

    def cut(self, tensors: Tensors, tile: Tile) -> Tensors:
        return ()

    def tile(self, tile: Tile, cut: Tensors) -> tuple[Tensor, Tensor]:
        plane, rows, columns = tile.plane, tile.rows, tile.columns
        size = plane.batch, plane.kv_heads, plane.group, rows.stop - rows.start, columns.stop - columns.start
        x, logits = (torch.empty(size, dtype=self.dtype, device=plane.device) for _ in range(2))
        return x, logits
