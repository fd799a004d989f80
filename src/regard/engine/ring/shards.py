"""Shards and routes: which rows each process of a ring holds, and which keys it needs of the others."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch

from regard.cached import cached_property
from regard.spec.masks import Mask
from regard.spec.masks.runs import FULL, MIXED
from regard.spec.plane import Plane, Selection

LAYOUTS = ("contiguous", "zigzag")


class RowRange(NamedTuple):
    """Rows start … stop − 1 of the whole sequence."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        """Number of rows."""
        return self.stop - self.start

    def __and__(self, other: "RowRange") -> "RowRange":
        start = max(self.start, other.start)
        return RowRange(start, max(start, min(self.stop, other.stop)))

    def within(self, other: "RowRange", offset: int = 0) -> slice:
        """The same rows, counted from the start of a span that contains them, which lies at `offset`."""
        return slice(offset + self.start - other.start, offset + self.stop - other.start)


class Move(NamedTuple):
    """Rows of one process's tensor that become rows of another's."""

    taken: slice
    put: slice

    @property
    def length(self) -> int:
        """Number of rows."""
        length: int = self.taken.stop - self.taken.start
        return length


@dataclass(frozen=True)
class Shards:
    """`spans[rank]` are the rows of that process, in the order in which they lie in its tensor."""

    spans: tuple[tuple[RowRange, ...], ...]

    @property
    def total(self) -> int:
        """The length of the whole sequence."""
        return sum(self.lengths)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Rows of each process."""
        return tuple(sum(span.length for span in spans) for spans in self.spans)

    def placed(self, rank: int) -> Iterator[tuple[RowRange, slice]]:
        """The spans of a process and where they lie in its tensor."""
        spans = self.spans[rank]
        edges = accumulate((span.length for span in spans), initial=0)
        for span, (first, last) in zip(spans, pairwise(edges), strict=True):
            yield span, slice(first, last)

    def at(self, rank: int, rows: RowRange) -> slice:
        """Where some rows of one span of a process lie in its tensor."""
        for span, place in self.placed(rank):
            if span.start <= rows.start and rows.stop <= span.stop:
                return rows.within(span, place.start)
        raise KeyError(rows)

    def moves(self, target: "Shards", source_rank: int, target_rank: int) -> list[Move]:
        """The rows that one process sends to another so that these shards become the target's."""
        common = [old & new for old in self.spans[source_rank] for new in target.spans[target_rank]]
        return [Move(self.at(source_rank, rows), target.at(target_rank, rows)) for rows in common if rows.length]


def contiguous(lengths: Sequence[int]) -> Shards:
    """One span for each process, in the order of the ranks."""
    return Shards(tuple((RowRange(*edges),) for edges in pairwise(accumulate(lengths, initial=0))))


def zigzag(lengths: Sequence[int]) -> Shards:
    """Process r holds the r-th span from the front and the r-th from the back; the first is the longer if odd."""
    world = len(lengths)
    chunks = [(length + 1) // 2 for length in lengths] + [length // 2 for length in reversed(lengths)]
    spans = [RowRange(*edges) for edges in pairwise(accumulate(chunks, initial=0))]
    return Shards(tuple((spans[rank], spans[2 * world - 1 - rank]) for rank in range(world)))


def even(total: int, world: int) -> list[int]:
    """Lengths of shards that differ by one at most."""
    return [(rank + 1) * total // world - rank * total // world for rank in range(world)]


def shards_of(layout: str, lengths: Sequence[int]) -> Shards:
    """Shards of these lengths in a layout."""
    return zigzag(lengths) if layout == "zigzag" else contiguous(lengths)


ROW_BLOCKS = 4096  # about so many row blocks of a mask are looked at, over all processes
CACHED = 64  # routes that are cached
UNEVEN = 1.05  # the largest share of the work over the mean, above which halves are exchanged


@dataclass(frozen=True)
class Rectangle:
    """Rows and columns of the whole; `pairs` is about how many of its pairs are visible, for one batch row and head."""

    rows: RowRange
    columns: RowRange
    pairs: int


@dataclass(frozen=True)
class Route:
    """Where rows and keys are while they are computed. `rectangles[rank][source]` is what a process computes with the
    keys of another."""

    queries: Shards
    keys: Shards
    rectangles: tuple[tuple[tuple[Rectangle, ...], ...], ...]

    @property
    def world(self) -> int:
        """Number of processes."""
        return len(self.rectangles)

    @cached_property
    def pairs(self) -> tuple[int, ...]:
        """About how many visible pairs each process computes, for one batch row and head."""
        return tuple(sum(part.pairs for source in own for part in source) for own in self.rectangles)

    @cached_property
    def columns(self) -> tuple[tuple[tuple[RowRange, ...], ...], ...]:
        """`columns[rank][source]`: the keys of `source` that `rank` needs, at most one span for each of its spans."""
        return tuple(
            tuple(_needed_spans(parts, spans) for parts, spans in zip(own, self.keys.spans, strict=True))
            for own in self.rectangles
        )

    @property
    def uneven(self) -> float:
        """The largest share of the work over the mean."""
        return uneven(self.pairs)


def uneven(pairs: Sequence[int]) -> float:
    """The largest of some numbers over their mean; 1 if all are 0."""
    return max(pairs) * len(pairs) / sum(pairs) if sum(pairs) else 1.0


def _needed_spans(parts: Sequence[Rectangle], spans: Sequence[RowRange]) -> tuple[RowRange, ...]:
    """The part of each span that the rectangles need, if any."""
    needed = [[part.columns for part in parts if (part.columns & span).length] for span in spans]
    return tuple(RowRange(min(one.start for one in some), max(one.stop for one in some)) for some in needed if some)


_routes: dict[tuple[object, ...], Route] = {}


def route(mask: Mask, plane: Plane, layout: str, queries: Sequence[int], keys: Sequence[int]) -> Route:
    """The route of a call whose shards have these lengths; halves are exchanged if that evens out the work.

    Routes of masks that are made of numbers alone are cached.
    """
    any_heads = plane.batch * plane.heads > 0
    starts = tuple(plane.starts.tolist())
    cache_key = (mask.contents, starts, plane.key_start, any_heads, layout, tuple(queries), tuple(keys))
    cached = None if mask.contents is None else _routes.get(cache_key)
    if cached is not None:
        return cached
    best = between(mask, plane, shards_of(layout, queries), shards_of(layout, keys))
    if layout != "zigzag" and best.uneven > UNEVEN:
        halves = [zigzag(even(sum(lengths), len(lengths))) for lengths in (queries, keys)]
        best = min(best, between(mask, plane, *halves), key=lambda candidate: candidate.uneven)
    if mask.contents is not None:
        for oldest in list(_routes)[: len(_routes) - CACHED + 1]:
            _routes.pop(oldest, None)  # another thread may have removed it
        _routes[cache_key] = best
    return best


def between(mask: Mask, plane: Plane, queries: Shards, keys: Shards) -> Route:
    """The route from these shards of keys to those of queries."""
    spans = [(source, span) for source, spans in enumerate(keys.spans) for span in spans if span.length]
    rectangles = []
    for own in queries.spans:
        sources: list[list[Rectangle]] = [[] for _ in keys.spans]
        for rows in own:
            parts = _visible_rectangles(mask, plane, rows, [span for _, span in spans])
            for (source, _), part in zip(spans, parts, strict=True):
                if part is not None:
                    sources[source].append(part)
        rectangles.append(tuple(map(tuple, sources)))
    return Route(queries, keys, tuple(rectangles))


def _visible_rectangles(mask: Mask, plane: Plane, rows: RowRange, spans: list[RowRange]) -> list[Rectangle | None]:
    """For each span of keys the smallest rectangle that holds what the rows see of it, in closed form."""
    if rows.length == 0 or not spans or plane.batch * plane.heads == 0:
        return [None] * len(spans)
    selection = Selection(rows=slice(*rows), columns=slice(0, plane.keys), queries=plane.queries)
    piece = plane.sliced(selection)
    row_blocks = piece.row_blocks(-(-plane.queries // ROW_BLOCKS))
    lists = mask.sliced(selection).runs(row_blocks).lists(piece.key_start)
    table = torch.tensor(
        [(*run, at.start, at.stop) for runs, at in zip(lists, row_blocks, strict=True) for run in runs],
        dtype=torch.int64,
        device="cpu",
    ).view(-1, 5)
    if len(table) == 0:
        return [None] * len(spans)
    first, last = (torch.tensor(edges, device="cpu", dtype=torch.int64) for edges in zip(*spans, strict=True))
    start, stop = table[:, 0:1].clamp(min=first), table[:, 1:2].clamp(max=last)
    met = stop > start
    shares = torch.where(table[:, 2:3] == FULL, FULL, MIXED) * (stop - start) * (table[:, 4:5] - table[:, 3:4])
    most = plane.queries + plane.keys
    edges = torch.stack(
        [
            rows.start + torch.where(met, table[:, 3:4], most).amin(0),
            rows.start + torch.where(met, table[:, 4:5], 0).amax(0),
            torch.where(met, start, most).amin(0),
            torch.where(met, stop, 0).amax(0),
            torch.where(met, shares, 0).sum(0) // FULL,
        ],
        1,
    )
    return [
        Rectangle(RowRange(top, bottom), RowRange(left, right), pairs) if right > left else None
        for top, bottom, left, right, pairs in edges.tolist()
    ]
