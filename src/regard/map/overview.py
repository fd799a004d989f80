"""Overviews: a head as a thumbnail, and its strongest cells."""

from typing import Any, NamedTuple

import numpy as np

from regard.map.estimate import estimated
from regard.map.lane import Lane
from regard.map.levels import TILE, Bytes, Levels
from regard.map.pyramid import BASE, Planes
from regard.map.stop import Stop

SMALL = 1 << 24  # pairs of a head that are looked at without waiting for the long pass
ROWS = 8  # of each cell of a thumbnail
SIZES = (8, 16, 32, 64, 128, 256)


class Seen(NamedTuple):
    """All of a head in cells of `side`: bytes of mean and max, and whether they are exact."""

    side: int
    mean: Bytes
    max: Bytes
    exact: bool


def seen(lane: Lane, levels: Levels, size: int, planes: Planes | None, stop: Stop, rows: int = ROWS) -> Seen:
    """The square of tile 0 in size × size cells, as far as the head goes."""
    side = levels.side(0) * TILE // size
    everything = (slice(0, levels.queries), slice(0, levels.keys))
    if planes is not None and side >= BASE:
        cells = tuple(slice(0, -(-count // side)) for count in (levels.queries, levels.keys))
        mean, largest = (planes.read(f"{name}.{side}", cells[0], cells[1]) for name in ("mean", "max"))
        return Seen(side, mean, largest, True)
    if levels.queries * levels.keys <= SMALL or side <= rows:
        return Seen(side, *levels.coded(lane.grid(*everything, side)), True)
    return Seen(side, *levels.coded(estimated(lane, everything[0], side, stop, rows)), False)


def square(cells: Bytes, size: int) -> bytes:
    """Cells as size × size, 0 past their end."""
    whole: Bytes = np.zeros((size, size), np.uint8)
    whole[: cells.shape[0], : cells.shape[1]] = cells
    return whole.tobytes()


def strongest(lane: Lane, view: Seen, count: int, stop: Stop) -> list[dict[str, Any]]:
    """The largest weight times visible keys of the `count` strongest cells of an overview, the largest first."""
    order = np.argsort(view.max, axis=None, kind="stable")[::-1][:count]
    found = []
    for number in order.tolist():
        stop.check()
        y, x = divmod(number, view.max.shape[1])
        if view.max[y, x] == 0:
            break
        rows, columns = (
            slice(at * view.side, min(most, (at + 1) * view.side)) for at, most in ((y, lane.queries), (x, lane.keys))
        )
        cells = lane.grid(rows, columns, 1).max
        at, own = divmod(int(cells.argmax()), cells.shape[1])
        q, k = rows.start + at, columns.start + own
        relative, visible = float(cells[at, own]), int(lane.seen(slice(q, q + 1))[0])
        found.append((relative, {"q": q, "k": k, "weight": relative / max(1, visible), "visible": visible}))
    return [cell for _, cell in sorted(found, key=lambda pair: -pair[0])]
