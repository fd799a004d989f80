"""Shards: which part of a sequence each process holds, and what must move to turn one division into another."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

LAYOUTS = ("contiguous", "zigzag")


class Span(NamedTuple):
    """Rows start … stop − 1 of the whole sequence."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        """How many."""
        return self.stop - self.start

    def __and__(self, other: "Span") -> "Span":
        start = max(self.start, other.start)
        return Span(start, max(start, min(self.stop, other.stop)))

    def within(self, other: "Span") -> slice:
        """The same rows, numbered from the start of a span that holds them."""
        return slice(self.start - other.start, self.stop - other.start)


class Move(NamedTuple):
    """Rows of one process's tensor that become rows of another's."""

    taken: slice
    put: slice

    @property
    def length(self) -> int:
        """How many rows."""
        length: int = self.taken.stop - self.taken.start
        return length


@dataclass(frozen=True)
class Shards:
    """`spans[rank]` are the rows of that process, in the order in which they lie in its tensor."""

    spans: tuple[tuple[Span, ...], ...]

    @property
    def total(self) -> int:
        """The length of the whole."""
        return sum(self.lengths)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Rows of each process."""
        return tuple(sum(span.length for span in spans) for spans in self.spans)

    def placed(self, rank: int) -> Iterator[tuple[Span, slice]]:
        """The spans of a process and where they lie in its tensor."""
        spans = self.spans[rank]
        edges = accumulate((span.length for span in spans), initial=0)
        for span, (first, last) in zip(spans, pairwise(edges), strict=True):
            yield span, slice(first, last)

    def moves(self, target: "Shards", source_rank: int, target_rank: int) -> list[Move]:
        """What one process gives to another so that these shards become the target's."""
        found = []
        for old, at in self.placed(source_rank):
            for new, to in target.placed(target_rank):
                both = old & new
                if both.length:
                    taken, put = both.within(old), both.within(new)
                    found.append(Move(_moved(taken, at.start), _moved(put, to.start)))
        return found


def _moved(rows: slice, by: int) -> slice:
    return slice(rows.start + by, rows.stop + by)


def contiguous(lengths: Sequence[int]) -> Shards:
    """One stretch for each process, in the order of the ranks."""
    return Shards(tuple((Span(*edges),) for edges in pairwise(accumulate(lengths, initial=0))))


def zigzag(lengths: Sequence[int]) -> Shards:
    """Process r holds the r-th stretch from the front and the r-th from the back; the first is the longer if odd."""
    world = len(lengths)
    chunks = [(length + 1) // 2 for length in lengths] + [length // 2 for length in reversed(lengths)]
    spans = [Span(*edges) for edges in pairwise(accumulate(chunks, initial=0))]
    return Shards(tuple((spans[rank], spans[2 * world - 1 - rank]) for rank in range(world)))


def even(total: int, world: int) -> list[int]:
    """Lengths of shards that differ by one at most."""
    return [(rank + 1) * total // world - rank * total // world for rank in range(world)]


def shards_of(layout: str, lengths: Sequence[int]) -> Shards:
    """The division that a layout names, for shards of these lengths."""
    return zigzag(lengths) if layout == "zigzag" else contiguous(lengths)
