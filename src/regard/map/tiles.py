"""Tiles: the pictures of rectangles of a head, computed as few larger rectangles, and kept for a while."""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from regard.map.lane import Lane
from regard.map.levels import TILE, Levels, Place, padded
from regard.map.stop import Stop

EMPTY, ESTIMATE = 1, 2
KEPT = 64 << 20  # bytes of tiles


class Tile(NamedTuple):
    """What is sent: the flags, and the bytes of mean and max unless it is empty."""

    flags: int
    planes: tuple[bytes, ...] = ()


class Tiles:
    """Tiles of all heads, the last that were looked at kept."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[tuple[int, int, int], Place], Tile] = OrderedDict()
        self._lock = threading.Lock()

    def take(
        self, key: tuple[int, int, int], lane: Lane, levels: Levels, places: Sequence[Place], stop: Stop
    ) -> dict[Place, Tile]:
        """All these tiles of a head; those that touch in a row are computed at once."""
        found: dict[Place, Tile] = {}
        missing: list[Place] = []
        for place in dict.fromkeys(places):
            tile = self._known(key, place)
            if tile is None and _empty(lane, levels, place):
                tile = Tile(EMPTY)
            if tile is None:
                missing.append(place)
            else:
                found[place] = tile
        for z, y, first, past in bands(missing):
            stop.check()
            rows, columns = levels.bounds(z, (y, y + 1), (first, past))
            mean, largest = levels.coded(lane.grid(rows, columns, levels.side(z)))
            for x in range(first, past):
                own = slice((x - first) * TILE, (x - first + 1) * TILE)
                tile = Tile(0, tuple(padded(part[:, own]).tobytes() for part in (mean, largest)))
                found[Place(z, y, x)] = tile
                self._keep(key, Place(z, y, x), tile)
        return found

    def _known(self, key: tuple[int, int, int], place: Place) -> Tile | None:
        with self._lock:
            tile = self._kept.get((key, place))
            if tile is not None:
                self._kept.move_to_end((key, place))
            return tile

    def _keep(self, key: tuple[int, int, int], place: Place, tile: Tile) -> None:
        with self._lock:
            self._kept[key, place] = tile
            while len(self._kept) * 2 * TILE * TILE > KEPT:
                self._kept.popitem(last=False)


def bands(places: Sequence[Place]) -> Iterator[tuple[int, int, int, int]]:
    """Level, row, first column and one past the last of tiles that touch each other."""
    order = sorted(places, key=lambda place: (place.z, place.y, place.x))
    start = 0
    for number, (place, after) in enumerate(zip(order, [*order[1:], None], strict=True)):
        if after is None or after != Place(place.z, place.y, place.x + 1):
            yield place.z, place.y, order[start].x, place.x + 1
            start = number + 1


def _empty(lane: Lane, levels: Levels, place: Place) -> bool:
    rows, columns = levels.bounds(place.z, (place.y, place.y + 1), (place.x, place.x + 1))
    seen = lane.hull(rows, columns)
    return bool(rows.start >= rows.stop or seen.start == seen.stop)
