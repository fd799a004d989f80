"""Levels: how a matrix is split into tiles, and how a weight becomes one byte.

Level 0 holds everything in one tile; each further level halves the side of a cell, down to one weight per cell. A byte
stands for log2(weight × keys that the row sees): 0 is an even look at all of them, whatever their number. A byte of a
difference is the same with a sign, in larger steps.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.cached import cached_property
from regard.inspection.matrix.difference import DifferenceGrid
from regard.inspection.matrix.reductions import PooledGrid

TILE = 256  # cells of a tile, down and across
STEP = 1 / 8  # of a byte, in powers of two
SIGNED_STEP, ZERO = 1 / 4, 128  # of a byte of a difference; the byte of none
FINE = 16  # largest side of a cell that is computed on request; coarser ones come from one pass over all pairs
BASE = 2 * FINE  # side of the finest cells of that pass

Bytes = np.ndarray[tuple[int, int], np.dtype[np.uint8]]


@dataclass(frozen=True)
class Place:
    """One tile: row `y` and column `x` of tiles on level `z`."""

    z: int
    y: int
    x: int


@dataclass(frozen=True)
class Levels:
    """The levels of a matrix of this size."""

    queries: int
    keys: int

    @cached_property
    def count(self) -> int:
        """How many there are."""
        return 1 + max(0, (-(-max(self.queries, self.keys) // TILE) - 1).bit_length())

    @property
    def exact_from(self) -> int:
        """The first level that is computed when it is looked at."""
        return max(0, self.count - FINE.bit_length())

    @property
    def top(self) -> int:
        """What byte 255 stands for: no weight times visible keys is above 2 to this."""
        return max(0, (self.keys - 1).bit_length())

    @property
    def coarse_sides(self) -> list[int]:
        """Sides of the cells of all coarse levels, up to one cell for everything."""
        sides = [BASE]
        while sides[-1] < max(self.queries, self.keys):
            sides.append(sides[-1] * 2)
        return sides

    @property
    def coarse_shapes(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of cells of every coarse plane, by name: "mean.32", "max.32" and so on."""
        sizes = {side: (-(-self.queries // side), -(-self.keys // side)) for side in self.coarse_sides}
        return {f"{name}.{side}": size for side, size in sizes.items() for name in ("mean", "max")}

    def side(self, z: int) -> int:
        """Weights along one side of a cell."""
        return 1 << (self.count - 1 - z)

    def tiles(self, z: int) -> tuple[int, int]:
        """Rows and columns of tiles."""
        across = TILE * self.side(z)
        return max(1, -(-self.queries // across)), max(1, -(-self.keys // across))

    def cells(self, z: int) -> tuple[int, int]:
        """Rows and columns of cells."""
        side = self.side(z)
        return -(-self.queries // side), -(-self.keys // side)

    def holds(self, place: Place) -> bool:
        """Whether there is such a tile."""
        if not 0 <= place.z < self.count:
            return False
        down, right = self.tiles(place.z)
        return 0 <= place.y < down and 0 <= place.x < right

    def bounds(self, z: int, rows: tuple[int, int], columns: tuple[int, int]) -> tuple[slice, slice]:
        """The queries and keys under tiles from … to (not included), down and across."""
        across = TILE * self.side(z)
        return (
            slice(rows[0] * across, min(self.queries, rows[1] * across)),
            slice(columns[0] * across, min(self.keys, columns[1] * across)),
        )

    def coded(self, grid: PooledGrid) -> tuple[Bytes, Bytes]:
        """Mean and largest of every cell as bytes; 0 where nothing is visible."""
        # NumPy, because several threads do this at once: torch would have each of them wait for a team of its own
        pairs, largest = grid.pairs.numpy(), grid.max.numpy()
        byte = self._signed_byte if isinstance(grid, DifferenceGrid) else self._byte
        coded = byte(largest, pairs)
        if grid.sum is grid.max:
            return coded, coded
        return byte(grid.sum.numpy() / np.maximum(pairs, 1), pairs), coded

    def _byte(self, relative: Any, pairs: Any) -> Bytes:
        """Weights times visible keys to bytes: 255 is 2 to the `top`, each step below 1/8 of a power of two less."""
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.log2(relative, dtype=np.float32)
        steps -= self.top - 255 * STEP
        steps *= 1 / STEP
        np.fmax(np.rint(steps, out=steps), 1, out=steps)  # what is not a number becomes 1 too
        np.minimum(steps, 255, out=steps)
        steps[pairs == 0] = 0
        coded: Bytes = steps.astype(np.uint8)
        return coded

    def _signed_byte(self, relative: Any, pairs: Any) -> Bytes:
        """Differences times visible keys to bytes: 128 is 0, and 127 steps above and below it end at 2 to the `top`."""
        with np.errstate(divide="ignore"):
            steps = np.log2(np.abs(relative), dtype=np.float32)
        steps -= self.top - (255 - ZERO) * SIGNED_STEP
        steps *= 1 / SIGNED_STEP
        np.clip(np.rint(steps, out=steps), 0, 255 - ZERO, out=steps)
        coded: Bytes = (ZERO + np.sign(relative) * steps).astype(np.uint8)
        coded[pairs == 0] = 0
        return coded


def padded(cells: Bytes, size: int = TILE) -> Bytes:
    """A part of a tile, or of a square of another size, as a whole one; cells past the end are 0."""
    if cells.shape == (size, size):
        return np.ascontiguousarray(cells)
    whole: Bytes = np.zeros((size, size), np.uint8)
    whole[: cells.shape[0], : cells.shape[1]] = cells
    return whole
