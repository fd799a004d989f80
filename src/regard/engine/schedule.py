"""Schedule: which rectangles of the plane are computed, in which order."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from regard.spec.masks import Mask
from regard.spec.masks.runs import FULL, Run
from regard.spec.plane import Pairs, Plane

CELLS = 1 << 20  # pairs × numbers per pair that one rectangle may hold, over all batch rows and heads
SEGMENT = 512  # keys are cut at absolute multiples of this
HEIGHT = 256  # most queries at a time


@dataclass(frozen=True)
class Tile:
    """A rectangle to compute; `mixed` if some of its pairs may be hidden."""

    pairs: Pairs
    mixed: bool


@dataclass(frozen=True, eq=False)
class Schedule:
    """Strips of `height` queries, each with its tiles from left to right; empty tiles do not occur."""

    plane: Plane
    mask: Mask
    height: int
    segment: int

    @classmethod
    def of(cls, plane: Plane, mask: Mask, tile_width: int, whole_rows: bool) -> "Schedule":
        """Tiles whose size depends on the number of heads and on the score, never on the length."""
        lanes = max(1, plane.batch * plane.heads * tile_width)
        segment = SEGMENT
        while segment > 64 and lanes * segment * 64 > CELLS:
            segment //= 2
        height = min(HEIGHT, max(16, CELLS // (lanes * segment)))
        return cls(plane, mask, min(height, 32) if whole_rows else height, segment)

    @cached_property
    def strips(self) -> list[tuple[slice, list[Tile]]]:
        """The rows of each strip and its tiles."""
        strips = self.plane.strips(self.height)
        if self.plane.queries == 0:
            return []
        lists = self.mask.runs(strips).lists(self.plane.key_start)
        return [(rows, list(self._tiles(rows, runs))) for rows, runs in zip(strips, lists, strict=True)]

    def _tiles(self, rows: slice, runs: list[Run]) -> Iterator[Tile]:
        """Cut the runs at multiples of the segment and join what falls into one segment."""
        open_: list[Run] = []
        for piece in self._pieces(runs):
            if open_ and self._segment(open_[0].start) != self._segment(piece.start):
                yield self._tile(rows, open_)
                open_ = []
            open_.append(piece)
        if open_:
            yield self._tile(rows, open_)

    def _pieces(self, runs: list[Run]) -> Iterator[Run]:
        for run in runs:
            start = run.start
            while start < run.stop:
                stop = min(run.stop, (self._segment(start) + 1) * self.segment - self.plane.key_start)
                yield Run(start, stop, run.kind)
                start = stop

    def _segment(self, column: int) -> int:
        return (column + self.plane.key_start) // self.segment

    def _tile(self, rows: slice, pieces: list[Run]) -> Tile:
        mixed = len(pieces) > 1 or pieces[0].kind != FULL
        return Tile(self.plane.pairs(rows, slice(pieces[0].start, pieces[-1].stop)), mixed)
