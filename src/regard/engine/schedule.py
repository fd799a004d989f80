"""Schedule: which rectangles of the plane are computed, in which order."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from regard.cached import cached_property
from regard.spec.masks import Mask
from regard.spec.masks.runs import FULL, Run
from regard.spec.plane import Pairs, Plane

CELLS = 1 << 20  # pairs × numbers per pair that one rectangle may hold, over all batch rows and heads
SEGMENT = 512  # keys are cut at absolute multiples of this
HEIGHT = 256  # most queries at a time


@dataclass(frozen=True)
class Tile:
    """A rectangle to compute; `mixed` if some of its pairs may be hidden."""

    plane: Plane
    rows: slice
    columns: slice
    mixed: bool

    @property
    def pairs(self) -> Pairs:
        """The rectangle itself; made anew, so that a list of tiles does not hold the positions of all their pairs."""
        return self.plane.pairs(self.rows, self.columns)


class Span(NamedTuple):
    """Where tiles of one strip lie: `times` tiles of `width` columns, the first at `start`, a segment apart."""

    start: int
    width: int
    mixed: bool
    times: int = 1

    @property
    def stop(self) -> int:
        """One past the last column."""
        return self.start + self.times * self.width


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

    @property
    def strips(self) -> Iterator[tuple[slice, list[Tile]]]:
        """The rows of each strip and its tiles, made anew on every pass: all tiles of a call would be a number that
        grows with the square of the length."""
        for rows, spans in self.outline:
            yield rows, [tile for span in spans for tile in self.tiles(rows, span)]

    @property
    def outline(self) -> Iterator[tuple[slice, list[Span]]]:
        """The rows of each strip and where its tiles lie."""
        for rows, runs in zip(self.plane.strips(self.height), self._runs, strict=True):
            yield rows, list(self._spans(runs))

    def tiles(self, rows: slice, span: Span) -> Iterator[Tile]:
        """The tiles of a span."""
        for first in range(span.start, span.start + span.times * self.segment, self.segment):
            yield Tile(self.plane, rows, slice(first, first + span.width), span.mixed)

    @cached_property
    def _runs(self) -> list[list[Run]]:
        if self.plane.queries == 0:
            return []
        return self.mask.runs(self.plane.strips(self.height)).lists(self.plane.key_start)

    def _spans(self, runs: list[Run]) -> Iterator[Span]:
        """Cut the runs at multiples of the segment and join what falls into one segment."""
        open_: list[Span] = []
        for piece in self._pieces(runs):
            if open_ and self._segment(open_[0].start) != self._segment(piece.start):
                yield _joined(open_)
                open_ = []
            open_.append(piece)
        if open_:
            yield _joined(open_)

    def _pieces(self, runs: list[Run]) -> Iterator[Span]:
        """Of each run what lies before the first cut, the whole segments, and the rest."""
        for run in runs:
            mixed, start = run.kind != FULL, run.start
            to_cut = -(start + self.plane.key_start) % self.segment
            if to_cut:
                yield Span(start, min(to_cut, run.stop - start), mixed)
                start += to_cut
            whole, rest = divmod(max(0, run.stop - start), self.segment)
            if whole:
                yield Span(start, self.segment, mixed, whole)
            if rest:
                yield Span(start + whole * self.segment, rest, mixed)

    def _segment(self, column: int) -> int:
        return (column + self.plane.key_start) // self.segment


def _joined(pieces: list[Span]) -> Span:
    """One span over pieces of the same segment; between two of them something is hidden."""
    first, last = pieces[0], pieces[-1]
    width = last.start + last.width - first.start
    return Span(first.start, width, first.mixed or len(pieces) > 1, first.times)
