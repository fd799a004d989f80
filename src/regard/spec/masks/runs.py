"""Runs: which keys each strip of queries sees, as a short list of intervals, never pair by pair.

Every strip's keys are cut at `edges`; between two edges all pairs are hidden (EMPTY), all are
visible (FULL), or it must be looked at (MIXED). EMPTY and FULL are promises, MIXED may be cautious.
With EMPTY < MIXED < FULL, "and" is the minimum, "or" the maximum and "not" the mirror.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from regard.spec.plane import Strips

EMPTY, MIXED, FULL = 0, 1, 2


class Run(NamedTuple):
    """Key columns start…stop−1 of one strip, and what they are."""

    start: int
    stop: int
    kind: int


@dataclass(frozen=True, eq=False)
class Runs:
    """`edges` (batch or 1, head or 1, strips, k + 1) rise from the first key position to one past the last;
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
        if self.edges.shape[:2] == self.kinds.shape[:2] == (1, 1):
            return self
        strips = self.edges.shape[2]
        every = torch.movedim(self.edges, 2, 0)
        edges = every.reshape(strips, -1).sort(-1).values[None, None]
        kinds = _kinds_at(self, edges[..., :-1])
        low, high = kinds.amin((0, 1), keepdim=True), kinds.amax((0, 1), keepdim=True)
        return Runs(edges, torch.where(low == high, low, torch.full_like(low, MIXED)))

    def lists(self, key_start: int) -> list[list[Run]]:
        """For each strip (batch rows and heads merged) its visible runs in key columns, EMPTY left out."""
        whole = self.merged()
        edges = (whole.edges[0, 0] - key_start).tolist()
        kinds = whole.kinds[0, 0].tolist()
        return [_tidy(row, kind) for row, kind in zip(edges, kinds, strict=True)]


def cut(strips: Strips, kinds: Sequence[int | Tensor], *edges: Tensor | int) -> Runs:
    """Runs from the inner edges (clipped to the keys, made to rise) and the kinds between them."""
    low, high = strips.key_span
    rows = [torch.as_tensor(edge) for edge in (low, *edges, high)]
    sizes = torch.broadcast_shapes((1, 1, strips.count), *(row.shape for row in rows))
    stacked = torch.stack([row.expand(sizes) for row in rows], -1).clamp(low, high)
    between = [torch.as_tensor(kind, dtype=torch.int8) for kind in kinds]
    sizes = torch.broadcast_shapes(sizes, *(kind.shape for kind in between))
    inner = torch.stack([kind.expand(sizes) for kind in between], -1)
    return Runs(stacked.cummax(-1).values, inner)


def _combine(left: Runs, right: Runs, choose: Callable[[Tensor, Tensor], Tensor]) -> Runs:
    sizes = torch.broadcast_shapes(left.edges.shape[:-1], right.edges.shape[:-1])
    sizes = torch.broadcast_shapes(sizes, left.kinds.shape[:-1], right.kinds.shape[:-1])
    both = [part.edges.expand(*sizes, -1) for part in (left, right)]
    edges = torch.cat([both[0], both[1][..., 1:-1]], -1).sort(-1).values
    used = (edges.diff(dim=-1) > 0).flatten(0, -2).any(0)  # an interval that no strip uses is dropped
    starts = edges[..., :-1][..., used]
    edges = torch.cat([starts, edges[..., -1:]], -1)
    return Runs(edges, choose(_kinds_at(left, starts), _kinds_at(right, starts)))


def _kinds_at(runs: Runs, positions: Tensor) -> Tensor:
    """The kind of the interval that each position falls into."""
    sizes = torch.broadcast_shapes(runs.edges.shape[:-1], runs.kinds.shape[:-1], positions.shape[:-1])
    inner = runs.edges[..., 1:-1].expand(*sizes, -1).contiguous()
    index = torch.searchsorted(inner, positions.expand(*sizes, -1).contiguous(), right=True)
    return runs.kinds.expand(*sizes, -1).gather(-1, index)


def _tidy(edges: list[int], kinds: list[int]) -> list[Run]:
    """Drop what is empty, join neighbors of one kind."""
    found: list[Run] = []
    for start, stop, kind in zip(edges[:-1], edges[1:], kinds, strict=True):
        if start == stop or kind == EMPTY:
            continue
        if found and found[-1].kind == kind and found[-1].stop == start:
            found[-1] = Run(found[-1].start, stop, kind)
        else:
            found.append(Run(start, stop, kind))
    return found
