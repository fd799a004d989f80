"""Difference views: one head less another, times the keys that either sees, rectangle by rectangle; `A - B` of the map.

A pair is hidden where both hide it; where one does, its weight there is 0.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.inspection.matrix.difference import DifferenceGrid, larger
from regard.map.head_view import HeadView, put
from regard.map.tile_cache import fingerprint

CELLS = 1 << 22  # differences that are held at once
COUNTED = 256  # rows whose visible keys are counted together
LINES = 32  # whole rows that are held at once


class DifferenceView:
    """Two heads of one size."""

    def __init__(self, first: HeadView, second: HeadView) -> None:
        self.first, self.second = first, second
        self.queries, self.keys = first.queries, first.keys
        visibility = first.visibility()
        self._alike = visibility is not None and visibility == second.visibility()
        self._seen: dict[int, Tensor] = {}

    def fingerprint(self) -> str | None:
        """A text that changes with the weights of either head; None if they depend on what cannot be read."""
        both = (self.first.fingerprint(), self.second.fingerprint())
        return None if None in both else fingerprint("difference", *both)

    def seen(self, rows: slice) -> Tensor:
        """How many keys each of these rows sees in either head, (row,)."""
        if self._alike:
            return self.first.seen(rows)
        blocks = range(rows.start // COUNTED, -(-rows.stop // COUNTED))
        for block in blocks:
            if block not in self._seen:
                some = slice(block * COUNTED, min(self.queries, (block + 1) * COUNTED))
                step = max(1, CELLS // self.keys)
                parts = (slice(at, min(some.stop, at + step)) for at in range(some.start, some.stop, step))
                self._seen[block] = torch.cat(
                    [self.differences(part, slice(0, self.keys))[1].sum(-1) for part in parts]
                )
        first = rows.start - blocks.start * COUNTED
        return torch.cat([self._seen[block] for block in blocks])[first : first + rows.stop - rows.start]

    def hull(self, rows: slice, columns: slice) -> slice:
        """The part of the columns that any of these rows may see in either head; fast, and empty if there is none."""
        seen = [part for view in self.pair if (part := view.hull(rows, columns)).start < part.stop]
        if not seen:
            return slice(columns.start, columns.start)
        return slice(min(part.start for part in seen), max(part.stop for part in seen))

    def differences(self, rows: slice, columns: slice) -> tuple[Tensor, Tensor]:
        """The differences of a rectangle, (row, column), 0 where a pair is hidden; and which pairs are visible."""
        return subtracted(*(view.weights(rows, columns) for view in self.pair))

    def lines(self, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The same of whole rows, (row, key)."""
        return subtracted(*(view.lines(rows) for view in self.pair))

    def grid(self, rows: slice, columns: slice, side: int) -> DifferenceGrid:
        """Differences times visible keys in cells of `side`; the last row and column of cells may be smaller."""
        whole = _blank((-(-(rows.stop - rows.start) // side), -(-(columns.stop - columns.start) // side)))
        seen = self.hull(rows, columns)
        if seen.start == seen.stop:
            return whole
        left = columns.start + (seen.start - columns.start) // side * side
        height = max(side, min(1024, rows.stop - rows.start) // side * side)
        width = max(side, CELLS // height // side * side)
        for top in range(rows.start, rows.stop, height):
            down = slice(top, min(rows.stop, top + height))
            counts = self.seen(down).view(-1, 1)
            for first in range(left, seen.stop, width):
                right = slice(first, min(columns.stop, first + width))
                within = self.hull(down, right)
                if within.start == within.stop:
                    continue
                difference, visible = self.differences(down, right)
                part = _pooled(difference.mul_(counts), visible, (side, side))
                put(whole, part, (top - rows.start) // side, (first - columns.start) // side)
        return whole

    def sample(self, rows: Sequence[int], columns: slice, side: int) -> DifferenceGrid:
        """The same of single rows, each a row of cells."""
        whole = _blank((len(rows), -(-(columns.stop - columns.start) // side)))
        for start in range(0, len(rows), LINES):
            difference, visible = self.lines(rows[start : start + LINES])
            difference.mul_(visible.sum(-1, keepdim=True))
            put(whole, _pooled(difference[:, columns], visible[:, columns], (1, side)), start, 0)
        return whole

    @property
    def pair(self) -> tuple[HeadView, HeadView]:
        """Both heads."""
        return self.first, self.second


def subtracted(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """One less the other, both −1 where hidden; and where either is visible."""
    visible = (first >= 0) | (second >= 0)
    return first.clamp(min=0) - second.clamp(min=0), visible


def _blank(size: tuple[int, int]) -> DifferenceGrid:
    """Cells without a visible pair."""
    kinds = (torch.float64, torch.float64, torch.int64)
    return DifferenceGrid(*(torch.zeros(size, dtype=kind, device="cpu") for kind in kinds))


def _pooled(relative: Tensor, visible: Tensor, side: tuple[int, int]) -> DifferenceGrid:
    """Differences times visible keys, 0 where hidden, in cells of `side`, down and across."""
    if side == (1, 1):
        return DifferenceGrid(relative, relative, visible)
    high, wide = relative.shape
    edge = (0, -wide % side[1], 0, -high % side[0])
    if any(edge):
        relative, visible = (torch.nn.functional.pad(part, edge) for part in (relative, visible))
    across, seen = (part.unflatten(1, (-1, side[1])) for part in (relative, visible))
    down = (-1, side[0])
    above, below = across.amax(-1).unflatten(0, down).amax(1), across.amin(-1).unflatten(0, down).amin(1)
    return DifferenceGrid(
        across.sum(-1, dtype=torch.float64).unflatten(0, down).sum(1),
        larger(above.clamp_(min=0), below.clamp_(max=0).neg_()),
        seen.sum(-1).unflatten(0, down).sum(1),
    )
