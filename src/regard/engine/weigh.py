"""What a call holds at most: a small part of it is run and weighed, the rest is arithmetic.

All that an engine holds is one of three: what lowering makes once, what grows with the rows, and what one tile (one
strip, where whole rows are needed) takes while it is computed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from regard.engine import reference
from regard.engine.logits import Logits, Tensors
from regard.engine.memory import Memory
from regard.engine.request import Request
from regard.engine.schedule import Schedule, Span, Tile
from regard.engine.strip import Kernel, empty_rows
from regard.engine.tiled import strip, with_sink
from regard.spec.normalizers import Softmax
from regard.spec.plane import Pairs, Plane

ROWS = 64  # rows that stand for all where every row costs the same
CELLS = 1 << 19  # pairs that stand for all in the dense engine


def output_bytes(asked: Request) -> int:
    """Bytes of what the call returns."""
    plane, item = asked.plane, asked.dtype.itemsize
    row = asked.value.shape[-1] * asked.query.dtype.itemsize
    row += sum(8 if name == "peak_at" else item for name in asked.aux if name != "received")
    received = plane.keys * item if "received" in asked.aux else 0
    return plane.batch * plane.heads * (plane.queries * row + received)


def tiled_bytes(asked: Request, kernel: Kernel, value: Tensor, operands: Tensors, lowering: Memory) -> int:
    """Most bytes that the tiled engine's forward pass holds at once, outputs included."""
    plane = asked.plane
    with Memory() as planning:
        strips = kernel.schedule.strips
        next(strips, None)
    weigh = _running_peak if isinstance(kernel.normalizer, Softmax) else _whole_peak
    tile = planning.held + weigh(kernel, value, operands)
    trained = any(tensor.requires_grad for tensor in (value, *operands))
    results, sink, merged = (-(-plane.queries * size // ROWS) for size in _row_bytes(asked, kernel, trained))
    held = lowering.held
    phases = [lowering.peak, held + results + planning.peak, held + results + tile, held + sink, held + merged]
    if "received" in asked.aux:
        lanes = plane.batch * plane.heads
        held += lanes * plane.keys * asked.dtype.itemsize
        if asked.sink is not None:  # the state without it
            held += 2 * lanes * plane.queries * asked.dtype.itemsize
        phases.append(held + merged + tile)
    if asked.query.dtype != asked.dtype:
        rounded = plane.batch * plane.heads * plane.queries * kernel.d_value * asked.query.dtype.itemsize
        phases.append(held + merged + rounded)
    return max(phases)


def dense_bytes(asked: Request, lowering: Memory) -> int:
    """The same for the reference: some rows are weighed, twice as many again, and a line is drawn through both."""
    plane = asked.plane
    some = max(1, CELLS // max(1, plane.batch * plane.heads * plane.keys))
    if 2 * some >= plane.queries:
        return lowering.held + _dense_peak(asked, plane.queries)
    less, more = _dense_peak(asked, some), _dense_peak(asked, 2 * some)
    return lowering.held + less - (less - more) * (plane.queries - some) // some


def _running_peak(kernel: Kernel, value: Tensor, operands: Tensors) -> int:
    """A tile of the running softmax, taken twice, so that it meets the sums of a tile before it."""
    strips = [(tile.rows, [tile, tile]) for tile in _largest(kernel.schedule)]
    nothing = slice(0, min(kernel.schedule.height, kernel.schedule.plane.queries)), list[Tile]()
    return max(_strip_peak(kernel, *strip, value, operands) for strip in strips or [nothing])


def _whole_peak(kernel: Kernel, value: Tensor, operands: Tensors) -> int:
    """Where rows are needed whole: the widest strip on tensors without content, and the tiles that it is made of."""
    rows, spans = max(kernel.schedule.outline, key=_width, default=(slice(0, 0), list[Span]()))
    made, blank = 0, _blank_bytes(kernel, rows)
    for tile in _largest(kernel.schedule):
        with torch.no_grad(), Memory() as memory:
            pair = kernel.logits.tile(tile, kernel.logits.cut(operands, tile))
        made = max(made, blank + memory.peak + (sum(span.times for span in spans) - 1) * memory.held)
        del pair
    schedule = replace(kernel.schedule, plane=replace(kernel.schedule.plane, device=torch.device("meta")))
    bare = replace(
        kernel,
        logits=_Bare(**{field.name: getattr(kernel.logits, field.name) for field in fields(Logits)}),
        schedule=schedule,
        raw_value=None if kernel.raw_value is None else kernel.raw_value.to("meta"),
    )
    tiles = [tile for span in spans for tile in schedule.tiles(rows, span)]
    return max(made, _strip_peak(bare, rows, tiles, value.to("meta"), ()))


def _blank_bytes(kernel: Kernel, rows: slice) -> int:
    """What a strip holds before its first tile."""
    with Memory() as memory:
        blank = empty_rows(kernel, rows)
    found = memory.held
    del blank
    return found


def _strip_peak(kernel: Kernel, rows: slice, tiles: list[Tile], value: Tensor, operands: Tensors) -> int:
    with torch.no_grad(), Memory() as memory:
        strip(kernel, rows, tiles, value, operands)
    return memory.peak


def _largest(schedule: Schedule) -> Iterator[Tile]:
    """The largest full tile and the largest mixed one."""
    found: dict[bool, tuple[int, slice, Span]] = {}
    for rows, spans in schedule.outline:
        for span in spans:
            area = (rows.stop - rows.start) * span.width
            if span.mixed not in found or area > found[span.mixed][0]:
                found[span.mixed] = area, rows, span
    for _, rows, span in found.values():
        yield next(schedule.tiles(rows, span))


def _width(strip: tuple[slice, list[Span]]) -> int:
    rows, spans = strip
    return (rows.stop - rows.start) * (spans[-1].stop - spans[0].start) if spans else 0


def _row_bytes(asked: Request, kernel: Kernel, trained: bool) -> tuple[int, int, int]:
    """What `ROWS` rows of results hold, what merging the sink into them holds at most, and what is left of both."""
    with Memory() as memory:
        rows = empty_rows(kernel, slice(0, ROWS))
        results = memory.held
        if torch.is_grad_enabled() and trained and asked.sink is not None:  # merging keeps what its gradient needs
            rows.out.requires_grad_()
            rows.state.requires_grad_()
        memory.peak = memory.held
        rows = with_sink(rows, asked.sink, asked.aux)
    return results, memory.peak, memory.held


def _dense_peak(asked: Request, rows: int) -> int:
    top = _Top(**{field.name: getattr(asked.plane, field.name) for field in fields(Plane)}, rows=rows)
    with Memory() as memory:
        reference.run(replace(asked, query=asked.query[..., :rows, :], plane=top))
    return memory.peak


@dataclass(frozen=True, eq=False)
class _Top(Plane):
    """A plane of which only the first rows are computed."""

    rows: int = 0

    @property
    def all(self) -> Pairs:
        return self.pairs(slice(0, self.rows), slice(0, self.keys))


@dataclass(frozen=True, eq=False)
class _Bare(Logits):
    """Logits that have a size and nothing else."""

    def cut(self, tensors: Tensors, tile: Tile) -> Tensors:
        return ()

    def tile(self, tile: Tile, cut: Tensors) -> tuple[Tensor, Tensor]:
        plane, rows, columns = tile.plane, tile.rows, tile.columns
        size = plane.batch, plane.kv_heads, plane.group, rows.stop - rows.start, columns.stop - columns.start
        x, logits = (torch.empty(size, dtype=self.dtype, device=plane.device) for _ in range(2))
        return x, logits
