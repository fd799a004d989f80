"""Tiles: the rectangles of a call and their order, the logits of one, and the rows that they give."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor

from regard.cached import cached_property
from regard.engine.nonfinite import NonFinite, divide_by_temperature
from regard.spec.dropout import Dropout
from regard.spec.forms import Form, Operand
from regard.spec.masks import Mask
from regard.spec.masks.runs import FULL, Run
from regard.spec.normalizers import Normalizer, Softmax
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


class TileSpan(NamedTuple):
    """Where tiles of one row block lie: `times` tiles of `width` columns, the first at `start`, a segment apart."""

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
    """Row blocks of `height` queries, each with its tiles from left to right; empty tiles do not occur."""

    plane: Plane
    mask: Mask
    height: int
    segment: int

    @classmethod
    def of(cls, plane: Plane, mask: Mask, tile_width: int, whole_rows: bool) -> "Schedule":
        """Tiles whose size depends on the number of heads and on the score, never on the length."""
        batch_heads = max(1, plane.batch * plane.heads * tile_width)
        segment = SEGMENT
        while segment > 64 and batch_heads * segment * 64 > CELLS:
            segment //= 2
        height = min(HEIGHT, max(16, CELLS // (batch_heads * segment)))
        return cls(plane, mask, min(height, 32) if whole_rows else height, segment)

    @property
    def row_blocks(self) -> Iterator[tuple[slice, list[Tile]]]:
        """The rows of each row block and its tiles, made anew on every pass: all tiles of a call would be a number that
        grows with the square of the length."""
        for rows, spans in self.outline:
            yield rows, [tile for span in spans for tile in self.tiles(rows, span)]

    @property
    def outline(self) -> Iterator[tuple[slice, list[TileSpan]]]:
        """The rows of each row block and where its tiles lie."""
        for rows, runs in zip(self.plane.row_blocks(self.height), self._runs, strict=True):
            yield rows, list(self._spans(runs))

    def tiles(self, rows: slice, span: TileSpan) -> Iterator[Tile]:
        """The tiles of a span."""
        for first in range(span.start, span.start + span.times * self.segment, self.segment):
            yield Tile(self.plane, rows, slice(first, first + span.width), span.mixed)

    @cached_property
    def _runs(self) -> list[list[Run]]:
        if self.plane.queries == 0:
            return []
        return self.mask.runs(self.plane.row_blocks(self.height)).lists(self.plane.key_start)

    def _spans(self, runs: list[Run]) -> Iterator[TileSpan]:
        """Cut the runs at multiples of the segment and join what falls into one segment."""
        open_: list[TileSpan] = []
        for piece in self._pieces(runs):
            if open_ and self._segment(open_[0].start) != self._segment(piece.start):
                yield _joined_span(open_)
                open_ = []
            open_.append(piece)
        if open_:
            yield _joined_span(open_)

    def _pieces(self, runs: list[Run]) -> Iterator[TileSpan]:
        """Of each run what lies before the first cut, the whole segments, and the rest."""
        for run in runs:
            mixed, start = run.kind != FULL, run.start
            to_cut = -(start + self.plane.key_start) % self.segment
            if to_cut:
                yield TileSpan(start, min(to_cut, run.stop - start), mixed)
                start += to_cut
            whole, rest = divmod(max(0, run.stop - start), self.segment)
            if whole:
                yield TileSpan(start, self.segment, mixed, whole)
            if rest:
                yield TileSpan(start + whole * self.segment, rest, mixed)

    def _segment(self, column: int) -> int:
        return (column + self.plane.key_start) // self.segment


def _joined_span(pieces: list[TileSpan]) -> TileSpan:
    """One span over pieces of the same segment; between two of them something is hidden."""
    first, last = pieces[0], pieces[-1]
    width = last.start + last.width - first.start
    return TileSpan(first.start, width, first.mixed or len(pieces) > 1, first.times)


Tensors = tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class Logits:
    """The terms of the logits as forms. `temperature` is a float, or the last operand if None."""

    score: Form
    biases: tuple[Form, ...]
    bias_hides: bool
    mask: Mask
    temperature: float | None
    temperatures: Tensor | None
    nonfinite: NonFinite | None
    dtype: torch.dtype

    @property
    def operands(self) -> tuple[Operand, ...]:
        """All tensors that get a gradient."""
        found = list(self.score.operands)
        for form in self.biases:
            found += form.operands
        if self.temperatures is not None:
            found.append(Operand(self.temperatures, "whole"))
        return tuple(found)

    @property
    def tile_width(self) -> int:
        """Numbers per pair that a rectangle holds."""
        return self.score.tile_width + len(self.biases)

    def cut(self, tensors: Tensors, tile: Tile) -> Tensors:
        """The operands as the tile needs them, in the accumulating precision."""
        return tuple(
            tensor if operand.axis == "captured" else operand.cut(tensor, tile.pairs).to(self.dtype)
            for operand, tensor in zip(self.operands, tensors, strict=True)
        )

    def tile(self, tile: Tile, cut: Tensors) -> tuple[Tensor, Tensor]:
        """(logits / τ with −inf where hidden, logits before τ). Non-finite inputs are put back in."""
        pairs = tile.pairs
        bias, visible = self._bias(tile, cut)
        logits = self.score.evaluate(pairs, visible, cut[: len(self.score.operands)])
        if self.nonfinite is not None:
            logits = self._with_nonfinite(tile, visible, logits)
        if self.score.hides:
            visible = _and(visible, logits != -torch.inf)
        if bias is not None:
            logits = logits + bias
        x = divide_by_temperature(logits, cut[-1] if self.temperature is None else self.temperature)
        if visible is None:
            return x, logits
        return torch.where(visible, x, -torch.inf), torch.where(visible, logits, -torch.inf)

    def _bias(self, tile: Tile, cut: Tensors) -> tuple[Tensor | None, Tensor | None]:
        """The sum of the biases, and which pairs neither the mask nor a bias hides; None for nothing and for all."""
        visible = self.mask.visible(tile.pairs) if tile.mixed else None
        bias, at = None, len(self.score.operands)
        for form in self.biases:
            stop = at + len(form.operands)
            term = form.evaluate(tile.pairs, None, cut[at:stop])
            if self.bias_hides:
                visible = _and(visible, term != -torch.inf)
            bias = term if bias is None else bias + term
            at = stop
        return bias, visible

    def _with_nonfinite(self, tile: Tile, visible: Tensor | None, logits: Tensor) -> Tensor:
        assert self.nonfinite is not None
        raw = self.nonfinite.raw
        cut = tuple(
            operand.tensor if operand.axis == "captured" else operand.cut(operand.tensor, tile.pairs)
            for operand in raw.operands
        )
        with torch.no_grad():
            scores = raw.evaluate(tile.pairs, visible, cut)
        return torch.where(self.nonfinite.pairs(tile.pairs), scores, logits)


def _and(visible: Tensor | None, shown: Tensor) -> Tensor:
    return shown if visible is None else visible & shown


@dataclass(frozen=True, eq=False)
class TiledCall:
    """Everything about a call that is not a differentiable tensor."""

    logits: Logits
    schedule: Schedule
    normalizer: Normalizer
    dropout: Dropout | None
    aux: frozenset[str]
    raw_value: Tensor | None
    d_value: int
    buffers: tuple[Tensor, ...] = ()

    @property
    def batch_heads(self) -> tuple[int, int, int]:
        """(batch, kv head, group)."""
        plane = self.schedule.plane
        return plane.batch, plane.kv_heads, plane.group


@dataclass(frozen=True, eq=False)
class Rows:
    """Results of some queries, (batch, kv head, group, query) each; `out` has d_v behind.

    `rest` is what rounding took from the lse: of a large lse so much that it would show in the gradients. Backward
    needs it and `peak`, which are there whether or not they were asked for.
    """

    out: Tensor
    state: Tensor
    entropy: Tensor
    peak: Tensor
    peak_at: Tensor
    distance: Tensor
    max_logit: Tensor
    rest: Tensor


def empty_rows(kernel: TiledCall, rows: slice) -> Rows:
    """Queries that see no key. Statistics that nobody asked for take no memory."""
    size = (*kernel.batch_heads, rows.stop - rows.start)
    device, dtype = kernel.schedule.plane.device, kernel.logits.dtype

    def filled(name: str, number: float, kind: torch.dtype = dtype) -> Tensor:
        if name in kernel.aux:
            return torch.full(size, number, dtype=kind, device=device)
        return torch.full((), number, dtype=kind, device=device).expand(size)

    state = torch.full(size, -torch.inf, dtype=dtype, device=device)
    rest = torch.zeros_like(state)
    if not isinstance(kernel.normalizer, Softmax):
        state = kernel.normalizer.rows(state.unsqueeze(-1)[..., :0])[1]
    return Rows(
        out=torch.zeros((*size, kernel.d_value), dtype=dtype, device=device),
        state=state,
        entropy=filled("entropy", 0.0),
        peak=torch.zeros_like(rest),
        peak_at=filled("peak_at", -1, torch.int64),
        distance=filled("distance", 0.0),
        max_logit=filled("max_logit", -torch.inf),
        rest=rest,
    )


def concatenated_rows(kernel: TiledCall, blocks: list[Rows]) -> Rows:
    """The row blocks one after another, as a graph."""
    if not blocks:
        return empty_rows(kernel, slice(0, 0))
    return Rows(**{f.name: torch.cat([getattr(rows, f.name) for rows in blocks], 3) for f in fields(Rows)})


def collected_rows(kernel: TiledCall, blocks: Iterable[tuple[slice, Rows]]) -> Rows:
    """The same without a graph, each row block written to its place, so that none is held twice."""
    whole = empty_rows(kernel, slice(0, kernel.schedule.plane.queries))
    for place, rows in blocks:
        whole.out[..., place, :] = rows.out
        whole.state[..., place] = rows.state
        whole.rest[..., place] = rows.rest
        whole.peak[..., place] = rows.peak
        for name in kernel.aux - {"lse", "received", "peak"}:
            getattr(whole, name)[..., place] = getattr(rows, name)
        del rows  # or it would be held while the next block is computed
    return whole
