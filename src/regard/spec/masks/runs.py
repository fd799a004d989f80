"""Runs: which keys each block of query rows sees, as a short list of intervals, never pair by pair.

The keys of each row block are cut at `edges`; between two edges all pairs are hidden (EMPTY), all are
visible (FULL), or each pair must be tested (MIXED). EMPTY and FULL are exact; MIXED is always allowed.
With EMPTY < MIXED < FULL, "and" is the minimum, "or" the maximum and "not" the mirror.

Several lists become one by their changes: sort all edges together, give each the step by which its list's
kind changes there, and running sums tell what every list says between any two edges.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from regard.spec.plane import RowBlocks

EMPTY, MIXED, FULL = 0, 1, 2


class Run(NamedTuple):
    """Key columns start…stop−1 of one row block, and what they are."""

    start: int
    stop: int
    kind: int


@dataclass(frozen=True, eq=False)
class Runs:
    """`edges` (batch or 1, head or 1, row blocks, k + 1) rise from the first key position to one past the last;
    `kinds` (…, k) says what lies between. Positions are absolute. Empty intervals are allowed."""

    edges: Tensor
    kinds: Tensor

    def __and__(self, other: "Runs") -> "Runs":
        return _combine(self, other, torch.minimum)

    def __or__(self, other: "Runs") -> "Runs":
        return _combine(self, other, torch.maximum)

    def __invert__(self) -> "Runs":
        return Runs(self.edges, FULL - self.kinds)

    def merged(self) -> "Runs":
        """One list for all batch rows and heads: EMPTY and FULL only where all agree."""
        shape = _shape(self.edges, self.kinds)
        batch, heads, row_blocks = shape
        if batch * heads == 1:
            return self
        if batch * heads == 0:
            return Runs(self.edges.new_zeros(1, 1, row_blocks, 2), self.kinds.new_full((1, 1, row_blocks, 1), EMPTY))
        kinds = self.kinds.to(torch.int32)
        if self.edges.shape[:2] == (1, 1):
            return Runs(self.edges, _unanimous(kinds.sum((0, 1), keepdim=True), batch * heads))
        inner, changes = (
            part.expand(*shape, -1).movedim(2, 0).flatten(1)[None, None]
            for part in (self.edges[..., 1:-1], kinds.diff(dim=-1))
        )
        first = kinds[..., :1].expand(*shape, -1).sum((0, 1), keepdim=True)
        edges, totals = _in_order(self.edges[:1, :1], inner, first, changes)
        return Runs(edges, _unanimous(totals, batch * heads))

    def lists(self, key_start: int) -> list[list[Run]]:
        """For each row block (batch rows and heads merged) its visible runs in key columns, EMPTY left out."""
        whole = self.merged()
        edges, kinds = whole.edges[0, 0] - key_start, whole.kinds[0, 0]
        block, place = ((edges.diff(dim=-1) > 0) & (kinds != EMPTY)).nonzero(as_tuple=True)
        start, stop, kind = edges[block, place], edges[block, place + 1], kinds[block, place]
        breaks = (start[1:] != stop[:-1]) | (kind[1:] != kind[:-1]) | (block[1:] != block[:-1])
        edge = breaks.new_ones(min(len(start), 1))
        first, last = torch.cat([edge, breaks]), torch.cat([breaks, edge])
        runs = list(map(Run._make, zip(start[first].tolist(), stop[last].tolist(), kind[first].tolist(), strict=True)))
        ends = torch.bincount(block[first], minlength=len(edges)).cumsum(0).tolist()
        return [runs[begin:end] for begin, end in pairwise([0, *ends])]


def cut(row_blocks: RowBlocks, kinds: Sequence[int | Tensor], *edges: Tensor) -> Runs:
    """Runs from inner edges that rise (clipped to the keys here) and the kinds between them.

    Edges and kinds broadcast to (batch, head, row blocks).
    """
    low, high = row_blocks.key_span
    rows = [torch.as_tensor(edge, device="cpu").clamp(low, high) for edge in (low, *edges, high)]
    used = _used(rows)
    shape = row_blocks.first_row.view(1, 1, -1)
    rows = [rows[interval] for interval in (*used, -1)]
    between = [torch.as_tensor(kinds[interval], dtype=torch.int8, device="cpu") for interval in used]
    stacked = [torch.stack(torch.broadcast_tensors(shape, *parts)[1:], -1) for parts in (rows, between)]
    return Runs(stacked[0], stacked[1])


def tabled(row_blocks: RowBlocks, kinds: Tensor, edges: Tensor, which: Tensor | None = None) -> Runs:
    """Runs from a table: `kinds` (batch or 1, head or 1, rows, k) between the same rising inner edges (k − 1,) for all.

    The table has one row, or one per row block, or `which` (batch or 1, row blocks) tells the row of each.
    """
    low, high = row_blocks.key_span
    edges = torch.cat(
        [
            torch.tensor([low], device="cpu", dtype=torch.int64),
            edges.clamp(low, high),
            torch.tensor([high], device="cpu", dtype=torch.int64),
        ]
    )
    edges, kinds = _joined(edges.expand(*kinds.shape[:3], -1), kinds.to(torch.int8))
    if which is None:
        parts = [part.expand(-1, -1, row_blocks.count, -1) for part in (edges, kinds)]
    elif len(which) == 1:
        parts = [part[:, :, which[0]] for part in (edges, kinds)]
    else:
        row = torch.arange(len(which), device="cpu").unsqueeze(-1)
        parts = [
            part.expand(len(which), -1, -1, -1).transpose(1, 2)[row, which].transpose(1, 2) for part in (edges, kinds)
        ]
    return Runs(parts[0], parts[1])


def _joined(edges: Tensor, kinds: Tensor) -> tuple[Tensor, Tensor]:
    """Neighbors of one kind become one interval; rows that then have fewer than others end in empty ones."""
    changes = kinds[..., 1:] != kinds[..., :-1]
    if changes.numel() == 0:
        return edges, kinds
    place = changes.cumsum(-1)
    last = int(place[..., -1].max()) + 1
    place = torch.where(changes, place, last)  # no change: a place that is overwritten or cut off
    new_edges = edges[..., -1:].repeat(1, 1, 1, last + 1).scatter_(-1, place, edges[..., 1:-1])
    new_kinds = kinds.new_zeros((*kinds.shape[:-1], last + 1)).scatter_(-1, place, kinds[..., 1:])
    new_edges[..., 0], new_edges[..., -1] = edges[..., 0], edges[..., -1]
    new_kinds[..., 0] = kinds[..., 0]
    return new_edges, new_kinds[..., :last]


def _combine(left: Runs, right: Runs, choose: Callable[[Tensor, Tensor], Tensor]) -> Runs:
    shape = _shape(left.edges, left.kinds, right.edges, right.kinds)
    inner = [part.edges[..., 1:-1].expand(*shape, -1) for part in (left, right)]
    codes = [left.kinds << 2, right.kinds]  # their sum holds both kinds, two bits each
    changes = [code.diff(dim=-1).expand(*shape, -1) for code in codes]
    first = (codes[0][..., :1] + codes[1][..., :1]).expand(*shape, -1)
    edges, both = _in_order(left.edges.expand(*shape, -1), torch.cat(inner, -1), first, torch.cat(changes, -1))
    used = _used(edges.unbind(-1))
    if len(used) < both.shape[-1]:
        index = torch.tensor([*used, both.shape[-1]], device="cpu", dtype=torch.int64)
        edges, both = edges.index_select(-1, index), both.index_select(-1, index[:-1])
    # among equal edges the order is open, so what an empty interval holds may be out of range
    return Runs(edges, choose(both >> 2, both & 3).clamp(EMPTY, FULL))


def _in_order(ends: Tensor, inner: Tensor, first: Tensor, changes: Tensor) -> tuple[Tensor, Tensor]:
    """All edges in order (those of `ends` outside), and between them `first` plus the changes so far."""
    inner, index = inner.sort(-1)
    steps = torch.cat([first, changes.gather(-1, index)], -1)
    return torch.cat([ends[..., :1], inner, ends[..., -1:]], -1), steps.cumsum(-1, dtype=steps.dtype)


def _used(edges: Sequence[Tensor]) -> list[int]:
    """The intervals that are not empty in every row block, and the last in any case."""
    unequal = [c for c, (left, right) in enumerate(pairwise(edges[:-1])) if not torch.equal(left, right)]
    return [*unequal, len(edges) - 2]


def _shape(*parts: Tensor) -> torch.Size:
    """(batch, head, row blocks) of edges and kinds together."""
    first: Tensor = torch.broadcast_tensors(*(part[..., 0] for part in parts))[0]
    return first.shape


def _unanimous(total: Tensor, count: int) -> Tensor:
    """The kind that `count` kinds with this sum share, or MIXED."""
    return (total > 0).to(torch.int8) + (total == FULL * count).to(torch.int8)
