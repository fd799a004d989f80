"""Tiles: rectangles of a head as bytes, computed as few larger rectangles; the last ones are cached in memory."""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from regard.map.head_view import HeadView
from regard.map.jobs import Stop
from regard.map.levels import TILE, Bytes, Levels, Place, padded
from regard.map.preview import preview_grid
from regard.map.pyramid import HeadKey, Planes

EMPTY, ESTIMATE = 1, 2
CACHED = 64 << 20  # bytes of tiles


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
        head_view: HeadView,
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
        self, key: HeadKey, head_view: HeadView, levels: Levels, band: TileRow, stop: Stop
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


def _empty(head_view: HeadView, levels: Levels, place: Place) -> bool:
    rows, columns = levels.bounds(place.z, (place.y, place.y + 1), (place.x, place.x + 1))
    seen = head_view.hull(rows, columns)
    return bool(rows.start >= rows.stop or seen.start == seen.stop)
