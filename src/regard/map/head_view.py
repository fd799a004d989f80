"""Head views: one head of one batch row, and the weights of any rectangle of it, times the keys that each row sees."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from regard.cached import cached_property
from regard.engine.request import Request
from regard.inspection.heads.visibility import LOWEST
from regard.inspection.matrix import AttentionMatrix
from regard.inspection.matrix.reductions import PooledGrid
from regard.inspection.matrix.source import Computed
from regard.map.tile_cache import fingerprint
from regard.spec.biases import Bias, Dense
from regard.spec.masks.count import hull, look, seen_keys
from regard.spec.serialize import storable

CELLS = 1 << 20  # weights that are held at once
ROWS = 4096  # rows whose visible keys are counted together


class HeadView(Protocol):
    """What the map needs to know of a head."""

    queries: int
    keys: int

    def fingerprint(self) -> str | None:
        """A text that changes with the weights; None if they depend on what cannot be read."""

    def visibility(self) -> str | None:
        """A text that two heads share only if they see the same pairs; None if that is not known without looking."""

    def seen(self, rows: slice) -> Tensor:
        """How many keys each of these rows sees, (row,)."""

    def hull(self, rows: slice, columns: slice) -> slice:
        """The part of the columns that any of these rows may see; fast, and empty if there is none."""

    def weights(self, rows: slice, columns: slice) -> Tensor:
        """The weights of a rectangle, (row, column); −1 where a pair is hidden."""

    def lines(self, rows: Sequence[int]) -> Tensor:
        """The weights of whole rows, (row, key); −1 where a pair is hidden."""

    def grid(self, rows: slice, columns: slice, side: int) -> PooledGrid:
        """Weights times visible keys in cells of `side`; the last row and column of cells may be smaller."""

    def sample(self, rows: Sequence[int], columns: slice, side: int) -> PooledGrid:
        """The same of single rows, each a row of cells."""


class GenericHeadView(HeadView):
    """Any matrix, by the rectangles of its source."""

    def __init__(self, matrix: AttentionMatrix) -> None:
        """`matrix` is (query, key)."""
        self._source, self._head = matrix._source, int(matrix._maps)
        self.queries, self.keys = matrix.shape
        self._seen: dict[int, Tensor] = {}

    def fingerprint(self) -> str | None:
        source, head = self._source, self._head
        if not isinstance(source, Computed):
            return fingerprint((head,), source.weights[head])  # type: ignore[attr-defined]
        request = source.request
        parts = (request.score, request.mask, request.bias, request.normalizer, request.temperature)
        if not all(storable(part) for part in parts):
            return None
        numbers = (head, request.plane.key_start, request.plane.starts.tolist())
        return fingerprint(numbers, *parts, request.query, request.key)

    def visibility(self) -> str | None:
        return None

    def seen(self, rows: slice) -> Tensor:
        blocks = range(rows.start // ROWS, -(-rows.stop // ROWS))
        for block in blocks:
            if block not in self._seen:
                self._seen[block] = self._count(slice(block * ROWS, min(self.queries, (block + 1) * ROWS)))
        first = rows.start - blocks.start * ROWS
        return torch.cat([self._seen[block] for block in blocks])[first : first + rows.stop - rows.start]

    @cached_property
    def _bias(self) -> Bias | None:
        """The bias, if it hides pairs."""
        return _hiding_bias(with_hiding_bias(self._source.request)) if isinstance(self._source, Computed) else None

    def _count(self, rows: slice) -> Tensor:
        if not isinstance(self._source, Computed):
            return torch.full((rows.stop - rows.start,), self.keys, device="cpu", dtype=torch.int64)
        request = self._source.request
        return seen_keys(request.mask, request.plane, rows, self._bias).flatten(0, 1)[self._head].clone()

    def hull(self, rows: slice, columns: slice) -> slice:
        if not isinstance(self._source, Computed):
            return columns
        return hull(self._source.request.mask, self._source.request.plane, rows, columns)

    def weights(self, rows: slice, columns: slice) -> Tensor:
        weights = self._source.tile(rows, columns)[self._head].detach().cpu()
        if not isinstance(self._source, Computed):
            return weights
        request = self._source.request
        plane = request.plane
        seen = look(request.mask, plane, rows, columns, self._bias)
        size = (plane.batch, plane.kv_heads, plane.group, *weights.shape)
        shown = seen.expand(size).reshape(-1, *weights.shape)[self._head].cpu()
        return torch.where(shown, weights, -1.0)

    def grid(self, rows: slice, columns: slice, side: int) -> PooledGrid:
        whole = blank((-(-(rows.stop - rows.start) // side), -(-(columns.stop - columns.start) // side)))
        seen = self.hull(rows, columns)
        if seen.start == seen.stop:
            return whole
        left = columns.start + (seen.start - columns.start) // side * side
        width = max(side, min(seen.stop - left, CELLS // side) // side * side)
        height = max(side, CELLS // width // side * side)
        for top in range(rows.start, rows.stop, height):
            down = slice(top, min(rows.stop, top + height))
            counts = self.seen(down).double().view(-1, 1)
            for first in range(left, seen.stop, width):
                right = slice(first, min(columns.stop, first + width))
                part = pooled(self.weights(down, right).double(), counts, side)
                put(whole, part, (top - rows.start) // side, (first - columns.start) // side)
        return whole

    def lines(self, rows: Sequence[int]) -> Tensor:
        return torch.cat([self.weights(slice(row, row + 1), slice(0, self.keys)) for row in rows])

    def sample(self, rows: Sequence[int], columns: slice, side: int) -> PooledGrid:
        return stacked([self.grid(slice(row, row + 1), columns, side) for row in rows])


def with_hiding_bias(request: Request) -> Request:
    """The same call with −inf in its bias where models write numbers as low as −10,000 to hide a pair.

    No weight changes: next to any other pair of its row such a one has none. Rows of only such pairs stay as they are.
    """
    if request.bias is None:
        return request
    terms = [_lowered(term) for term in request.bias.terms()]
    if all(new is old for new, old in zip(terms, request.bias.terms(), strict=True)):
        return request
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return replace(request, bias=total)


def _lowered(bias: Bias) -> Bias:
    if not isinstance(bias, Dense) or bias.tensor.shape[-1] == 1:
        return bias
    low = bias.tensor <= LOWEST
    low &= ~low.all(-1, keepdim=True)
    return Dense(bias.tensor.detach().masked_fill(low, -torch.inf)) if bool(low.any()) else bias


def _hiding_bias(request: Request) -> Bias | None:
    return request.bias if request.bias is not None and request.bias.hides else None


def blank(size: tuple[int, int]) -> PooledGrid:
    """Cells without a visible pair."""
    return PooledGrid(
        *(torch.zeros(size, dtype=kind, device="cpu") for kind in (torch.float64, torch.float64, torch.int64))
    )


def put(whole: PooledGrid, part: PooledGrid, row: int, column: int) -> None:
    """Write cells into a larger grid, from this row and column on."""
    high, wide = part.sum.shape
    place = (slice(row, row + high), slice(column, column + wide))
    whole.sum[place], whole.max[place], whole.pairs[place] = part.sum, part.max, part.pairs


def stacked(grids: Sequence[PooledGrid]) -> PooledGrid:
    """Grids of one width, one below the other."""
    parts = (torch.cat([getattr(grid, name) for grid in grids]) for name in ("sum", "max", "pairs"))
    return type(grids[0])(*parts)


def pooled(weights: Tensor, counts: Tensor, side: int) -> PooledGrid:
    """Weights (−1 where hidden) times the counts of their rows, in cells of `side`."""
    seen, relative = weights >= 0, weights.clamp(min=0) * counts
    if side == 1:
        return PooledGrid(relative, relative, seen.long())
    high, wide = weights.shape
    edge = (0, -wide % side, 0, -high % side)
    relative, shown = (torch.nn.functional.pad(part, edge) for part in (relative, seen))
    cells = relative.unflatten(1, (-1, side)).unflatten(0, (-1, side))
    pairs = shown.unflatten(1, (-1, side)).unflatten(0, (-1, side))
    return PooledGrid(cells.sum((1, 3)), cells.amax((1, 3)), pairs.sum((1, 3)))
