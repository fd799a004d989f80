"""Pyramid: all coarse levels of a head, as bytes, from one pass over its pairs, strip by strip.

Sums, maxima and numbers of visible pairs of four cells give those of the cell above exactly, so that only the bytes
are kept: about 26 MB for 100,000 × 100,000.
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from regard.inspection.matrix.reductions import PooledGrid
from regard.map.lane import Lane, stacked
from regard.map.levels import FINE, Bytes, Levels

BASE = 2 * FINE  # side of the finest cells that are kept
STRIP = 2048  # rows of one step, a power of two times BASE


class Planes(Protocol):
    """Bytes by name, "mean.32" and so on, of which any part can be read."""

    def read(self, name: str, rows: slice, columns: slice) -> Bytes:
        """Some cells."""


class Held:
    """Planes in memory."""

    def __init__(self, planes: Mapping[str, Bytes]) -> None:
        self.planes = dict(planes)

    def read(self, name: str, rows: slice, columns: slice) -> Bytes:
        """Some cells."""
        return self.planes[name][rows, columns]


def sides(levels: Levels) -> list[int]:
    """Of the cells of every coarse level, up to one cell for everything."""
    found = [BASE]
    while found[-1] < max(levels.queries, levels.keys):
        found.append(found[-1] * 2)
    return found


def shapes(levels: Levels) -> dict[str, tuple[int, int]]:
    """Rows and columns of cells of every plane."""
    sizes = {side: (-(-levels.queries // side), -(-levels.keys // side)) for side in sides(levels)}
    return {f"{name}.{side}": size for side, size in sizes.items() for name in ("mean", "max")}


class Build:
    """The pass: `step` until `done` is `total`, then `planes`."""

    def __init__(self, lane: Lane, levels: Levels, name: str | None = None) -> None:
        """`name`: under which it will be kept."""
        self._lane, self.levels, self.name = lane, levels, name
        self.done, self.total = 0, -(-levels.queries // STRIP)
        self.planes: dict[str, Bytes] = {name: np.zeros(size, np.uint8) for name, size in shapes(levels).items()}
        self._tops: list[PooledGrid] = []  # of each strip, in cells as high as the strip

    def step(self) -> None:
        """One more strip."""
        first = self.done * STRIP
        rows = slice(first, min(self.levels.queries, first + STRIP))
        grid = self._lane.grid(rows, slice(0, self.levels.keys), BASE)
        for side in sides(self.levels):
            if side > BASE:
                grid = grid.halved()
            self._write(side, first // side, grid)
            if side == STRIP:
                break
        self._tops.append(grid)
        self.done += 1
        if self.done == self.total and sides(self.levels)[-1] > STRIP:
            self._finish()

    def _finish(self) -> None:
        grid = stacked(self._tops)
        for side in sides(self.levels):
            if side > STRIP:
                grid = grid.halved()
                self._write(side, 0, grid)

    def _write(self, side: int, row: int, grid: PooledGrid) -> None:
        high, wide = grid.sum.shape
        for name, part in zip(("mean", "max"), self.levels.coded(grid), strict=True):
            self.planes[f"{name}.{side}"][row : row + high, :wide] = part
