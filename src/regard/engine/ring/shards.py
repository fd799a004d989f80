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
                    found.append(Move(_shifted(taken, at.start), _shifted(put, to.start)))
        return found


def _shifted(rows: slice, by: int) -> slice:
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


STRIPS = 4096  # in about how many strips of rows a mask is looked at, over all processes
CACHED = 64  # ways of calls that are remembered
UNEVEN = 1.05  # the largest share of the work over the mean, from which halves are exchanged


@dataclass(frozen=True)
class Rectangle:
    """Rows and columns of the whole; `pairs` is about how many of its pairs are visible, for one batch row and head."""

    rows: Span
    columns: Span
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
        """Processes."""
        return len(self.rectangles)

    @cached_property
    def pairs(self) -> tuple[int, ...]:
        """About how many visible pairs each process computes, for one batch row and head."""
        return tuple(sum(part.pairs for source in own for part in source) for own in self.rectangles)

    def columns(self, rank: int, source: int) -> tuple[Span, ...]:
        """The keys of `source` that `rank` needs: one span at most for each of those that source holds."""
        return self._columns[rank][source]

    @cached_property
    def _columns(self) -> tuple[tuple[tuple[Span, ...], ...], ...]:
        return tuple(
            tuple(_needed_spans(parts, held) for parts, held in zip(own, self.keys.spans, strict=True))
            for own in self.rectangles
        )

    @property
    def uneven(self) -> float:
        """The largest share of the work over the mean."""
        total = sum(self.pairs)
        return max(self.pairs) * self.world / total if total else 1.0


def route(mask: Mask, plane: Plane, layout: str, queries: Sequence[int], keys: Sequence[int]) -> Route:
    """The way of a call whose shards have these lengths; halves change places if that evens out the work."""
    given = between(mask, plane, shards_of(layout, queries), shards_of(layout, keys))
    if layout == "zigzag" or given.uneven <= UNEVEN:
        return given
    world = len(queries)
    halves = between(mask, plane, *(zigzag(even(sum(lengths), world)) for lengths in (queries, keys)))
    return halves if halves.uneven < given.uneven else given


def cached_route(mask: Mask, plane: Plane, layout: str, queries: Sequence[int], keys: Sequence[int]) -> Route:
    """The same, kept for the next call if the mask is made of numbers alone."""
    if mask.contents is None:
        return route(mask, plane, layout, queries, keys)
    starts, lanes = tuple(plane.starts.tolist()), plane.batch * plane.heads > 0
    key = (mask.contents, starts, plane.key_start, lanes, layout, tuple(queries), tuple(keys))
    if key not in _routes:
        if len(_routes) >= CACHED:
            _routes.pop(next(iter(_routes)))
        _routes[key] = route(mask, plane, layout, queries, keys)
    return _routes[key]


_routes: dict[tuple[object, ...], Route] = {}


def between(mask: Mask, plane: Plane, queries: Shards, keys: Shards) -> Route:
    """The way from these shards of keys to those of queries."""
    spans = [(source, span) for source, spans in enumerate(keys.spans) for span in spans if span.length]
    found = []
    for own in queries.spans:
        sources: list[list[Rectangle]] = [[] for _ in keys.spans]
        for rows in own:
            for (source, _), part in zip(
                spans, _visible_rectangles(mask, plane, rows, [span for _, span in spans]), strict=True
            ):
                if part is not None:
                    sources[source].append(part)
        found.append(tuple(map(tuple, sources)))
    return Route(queries, keys, tuple(found))


def _visible_rectangles(mask: Mask, plane: Plane, rows: Span, spans: list[Span]) -> list[Rectangle | None]:
    """Of each span of keys what some of the rows see, in closed form."""
    if rows.length == 0 or not spans or plane.batch * plane.heads == 0:
        return [None] * len(spans)
    whole = Span(0, plane.keys)
    selection = Selection(rows=slice(*rows), columns=slice(*whole), queries=plane.queries)
    piece = plane.sliced(selection)
    strips = piece.strips(-(-plane.queries // STRIPS))
    lists = mask.sliced(selection).runs(strips).lists(piece.key_start)
    bounds = list(strips)
    table = torch.tensor(
        [(*run, at.start, at.stop) for runs, at in zip(lists, bounds, strict=True) for run in runs],
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
    found = torch.stack(
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
        Rectangle(Span(top, bottom), Span(left, right), pairs) if right > left else None
        for top, bottom, left, right, pairs in found.tolist()
    ]


def _needed_spans(parts: Sequence[Rectangle], held: Sequence[Span]) -> tuple[Span, ...]:
    """Of each span that is held what the parts need, if anything."""
    found = []
    for span in held:
        needed = [part.columns for part in parts if (part.columns & span).length]
        if needed:
            found.append(Span(min(one.start for one in needed), max(one.stop for one in needed)))
    return tuple(found)
