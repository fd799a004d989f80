"""Tiles: rectangles of a head as bytes, computed as few larger rectangles; the last ones are cached in memory.

Coarse cells are estimated from a few of their rows until the pass over all pairs is done. Thumbnails of heads and their
strongest cells come from the same cells.
"""

import struct
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch

from regard.inspection.matrix.difference import DifferenceGrid, larger
from regard.inspection.matrix.reductions import PooledGrid
from regard.map.difference_view import DifferenceView
from regard.map.head_view import HeadView
from regard.map.jobs import Stop
from regard.map.levels import BASE, TILE, ZERO, Bytes, Levels, Place, padded
from regard.map.pyramid import HeadKey, Planes

EMPTY, ESTIMATE = 1, 2
CACHED = 64 << 20  # bytes of tiles
ROWS = 2  # of each cell
THUMBNAIL_ROWS = 8  # of each cell of a thumbnail
TOGETHER = 128  # rows that are computed at once: each needs all of its keys
SMALL = 1 << 24  # pairs of a head that are computed without waiting for the long pass
SIZES = (8, 16, 32, 64, 128, 256)  # of thumbnails


class TileBytes(NamedTuple):
    """What is sent: the flags, and the bytes of mean and max unless it is empty."""

    flags: int
    planes: tuple[bytes, ...] = ()


class TileRow(NamedTuple):
    """Tiles that touch in a row: their level and row, the first column and one past the last."""

    z: int
    y: int
    first: int
    past: int


class Tiles:
    """Tiles of all heads; the last that were requested are cached."""

    def __init__(self) -> None:
        self._cache: OrderedDict[tuple[HeadKey, Place, bool], TileBytes] = OrderedDict()
        self._lock, self._previewing = threading.Lock(), threading.Lock()

    def take(
        self,
        key: HeadKey,
        head_view: HeadView | DifferenceView,
        levels: Levels,
        places: Sequence[Place],
        planes: Planes | None,
        stop: Stop,
    ) -> dict[Place, TileBytes]:
        """All these tiles of a head; `planes` are its coarse levels, if they are ready."""
        tiles: dict[Place, TileBytes] = {}
        for place in dict.fromkeys(places):
            coarse = place.z < levels.exact_from
            if _empty(head_view, levels, place):
                tiles[place] = TileBytes(EMPTY)
            elif coarse and planes is not None:
                tiles[place] = _read(planes, levels, place)
            elif (cached := self._cached(key, place, coarse)) is not None:
                tiles[place] = cached
        missing = [place for place in dict.fromkeys(places) if place not in tiles]
        for band in bands(missing):
            stop.check()
            coarse = band.z < levels.exact_from
            if coarse:
                tiles |= self._preview(key, head_view, levels, band, stop)
            else:
                grid = head_view.grid(*_bounds(levels, band), levels.side(band.z))
                tiles |= _split(levels.coded(grid), band, 0)
            for x in range(band.first, band.past):
                self._keep(key, Place(band.z, band.y, x), coarse, tiles[Place(band.z, band.y, x)])
        return tiles

    def _preview(
        self, key: HeadKey, head_view: HeadView | DifferenceView, levels: Levels, band: TileRow, stop: Stop
    ) -> dict[Place, TileBytes]:
        """All tiles of a row, since every row that is computed needs all of its keys.

        One request at a time: those that wait mostly wait for the same rows.
        """
        with self._previewing:
            stop.check()
            places = [Place(band.z, band.y, x) for x in range(band.first, band.past)]
            cached = {place: tile for place in places if (tile := self._cached(key, place, True)) is not None}
            if len(cached) == len(places):
                return cached
            whole = TileRow(band.z, band.y, 0, levels.tiles(band.z)[1])
            rows, _ = _bounds(levels, whole)
            made = _split(levels.coded(preview_grid(head_view, rows, levels.side(band.z), stop)), whole, ESTIMATE)
            for place, tile in made.items():
                self._keep(key, place, True, tile)
            return made

    def forget(self) -> None:
        """Drop all cached tiles."""
        with self._lock:
            self._cache.clear()

    def _cached(self, key: HeadKey, place: Place, estimate: bool) -> TileBytes | None:
        with self._lock:
            tile = self._cache.get((key, place, estimate))
            if tile is not None:
                self._cache.move_to_end((key, place, estimate))
            return tile

    def _keep(self, key: HeadKey, place: Place, estimate: bool, tile: TileBytes) -> None:
        with self._lock:
            self._cache[key, place, estimate] = tile
            while len(self._cache) * 2 * TILE * TILE > CACHED:
                self._cache.popitem(last=False)


def packed(places: Sequence[Place], tiles: Mapping[Place, TileBytes]) -> bytes:
    """Tiles as they are sent: "RGT1", their number, then each with its place and flags."""
    parts = [b"RGT1", struct.pack("<I", len(places))]
    for place in places:
        tile = tiles[place]
        parts.append(struct.pack("<BBHII", place.z, tile.flags, 0, place.y, place.x))
        parts += tile.planes
    return b"".join(parts)


def bands(places: Sequence[Place]) -> Iterator[TileRow]:
    """Tiles that touch each other in a row, together."""
    order = sorted(places, key=lambda place: (place.z, place.y, place.x))
    start = 0
    for number, place in enumerate(order):
        if number + 1 == len(order) or order[number + 1] != Place(place.z, place.y, place.x + 1):
            yield TileRow(place.z, place.y, order[start].x, place.x + 1)
            start = number + 1


def _bounds(levels: Levels, band: TileRow) -> tuple[slice, slice]:
    return levels.bounds(band.z, (band.y, band.y + 1), (band.first, band.past))


def _split(coded: tuple[Bytes, Bytes], band: TileRow, flags: int) -> dict[Place, TileBytes]:
    """The cells of a band as its tiles."""
    tiles = {}
    for x in range(band.first, band.past):
        own = slice((x - band.first) * TILE, (x - band.first + 1) * TILE)
        tiles[Place(band.z, band.y, x)] = TileBytes(flags, tuple(padded(part[:, own]).tobytes() for part in coded))
    return tiles


def _read(planes: Planes, levels: Levels, place: Place) -> TileBytes:
    side = levels.side(place.z)
    cells = (slice(at * TILE, (at + 1) * TILE) for at in (place.y, place.x))
    rows, columns = (
        slice(part.start, min(part.stop, size)) for part, size in zip(cells, levels.cells(place.z), strict=True)
    )
    parts = (planes.read(f"{name}.{side}", rows, columns) for name in ("mean", "max"))
    return TileBytes(0, tuple(padded(part).tobytes() for part in parts))


def _empty(head_view: HeadView | DifferenceView, levels: Levels, place: Place) -> bool:
    rows, columns = levels.bounds(place.z, (place.y, place.y + 1), (place.x, place.x + 1))
    seen = head_view.hull(rows, columns)
    return bool(rows.start >= rows.stop or seen.start == seen.stop)


@cache
def sampled(first: int, past: int, count: int = ROWS) -> tuple[int, ...]:
    """Up to `count` rows of first … past − 1, spread evenly but not regularly, so that no stripe is missed."""
    if past - first <= count:
        return tuple(range(first, past))
    draw = torch.Generator().manual_seed(first * 0x9E3779B1 + past)
    parts = [first + (past - first) * part // count for part in range(count + 1)]
    shares = torch.rand(count, generator=draw, device="cpu", dtype=torch.float32).tolist()
    return tuple(low + int(share * (high - low)) for low, high, share in zip(parts, parts[1:], shares, strict=False))


def preview_grid(
    head_view: HeadView | DifferenceView, rows: slice, side: int, stop: Stop, count: int = ROWS
) -> PooledGrid:
    """Rows of cells over all keys, from `count` rows of each."""
    cells = [sampled(first, min(rows.stop, first + side), count) for first in range(rows.start, rows.stop, side)]
    chosen = [row for cell in cells for row in cell]
    owner = torch.tensor([number for number, cell in enumerate(cells) for _ in cell], device="cpu", dtype=torch.int64)
    everything = slice(0, head_view.keys)
    size = (len(cells), -(-head_view.keys // side))
    total, above, below = torch.zeros(3, *size, dtype=torch.float64, device="cpu")
    pairs = torch.zeros(size, dtype=torch.int64, device="cpu")
    for start in range(0, len(chosen), TOGETHER):
        stop.check()
        some = chosen[start : start + TOGETHER]
        own = owner[start : start + TOGETHER]
        part = head_view.sample(some, everything, side)
        total.index_add_(0, own, part.sum.double())
        pairs.index_add_(0, own, part.pairs.long())
        index, largest = own.view(-1, 1).expand(part.max.shape), part.max.double()
        above.scatter_reduce_(0, index, largest, "amax")
        if isinstance(head_view, DifferenceView):
            below.scatter_reduce_(0, index, -largest, "amax")
    if isinstance(head_view, DifferenceView):
        return DifferenceGrid(total, larger(above, below), pairs)
    return PooledGrid(total, above, pairs)


class CoarseView(NamedTuple):
    """All of a head in cells of `side`: bytes of mean and max, and whether they are exact."""

    side: int
    mean: Bytes
    max: Bytes
    exact: bool


def overview(
    head_view: HeadView | DifferenceView,
    levels: Levels,
    size: int,
    planes: Planes | None,
    stop: Stop,
    rows: int = THUMBNAIL_ROWS,
) -> CoarseView:
    """The square of tile 0 in size × size cells, as far as the head goes."""
    side = levels.side(0) * TILE // size
    everything = (slice(0, levels.queries), slice(0, levels.keys))
    if planes is not None and side >= BASE:
        cells = tuple(slice(0, -(-count // side)) for count in (levels.queries, levels.keys))
        mean, largest = (planes.read(f"{name}.{side}", cells[0], cells[1]) for name in ("mean", "max"))
        return CoarseView(side, mean, largest, True)
    if levels.queries * levels.keys <= SMALL or side <= rows:
        return CoarseView(side, *levels.coded(head_view.grid(*everything, side)), True)
    return CoarseView(side, *levels.coded(preview_grid(head_view, everything[0], side, stop, rows)), False)


def strongest(head_view: HeadView | DifferenceView, view: CoarseView, count: int, stop: Stop) -> list[dict[str, Any]]:
    """The largest weight times visible keys of the `count` strongest cells of an overview, the largest first; of
    differences those of the largest size."""
    size = view.max
    if isinstance(head_view, DifferenceView):
        size = np.where(view.max == 0, 0, np.abs(view.max.astype(np.int16) - ZERO)).astype(np.uint8)
    order = np.argsort(size, axis=None, kind="stable")[::-1][:count]
    strongest_cells = []
    for number in order.tolist():
        stop.check()
        y, x = divmod(number, view.max.shape[1])
        if size[y, x] == 0:
            break
        rows, columns = (
            slice(at * view.side, min(most, (at + 1) * view.side))
            for at, most in ((y, head_view.queries), (x, head_view.keys))
        )
        cells = head_view.grid(rows, columns, 1).max
        at, own = divmod(int(cells.abs().argmax()), cells.shape[1])
        q, k = rows.start + at, columns.start + own
        relative, visible = float(cells[at, own]), int(head_view.seen(slice(q, q + 1))[0])
        strongest_cells.append((relative, {"q": q, "k": k, "weight": relative / max(1, visible), "visible": visible}))
    return [cell for _, cell in sorted(strongest_cells, key=lambda pair: -abs(pair[0]))]
