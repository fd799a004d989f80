"""MatrixDifference: one attention matrix less another of the same shape, as a handle; the difference is never built."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import torch
from torch import Tensor

from regard import checks
from regard.inspection.matrix.handle import AttentionMatrix, ViewOptions
from regard.inspection.matrix.indexing import HEIGHT, LIMIT, WIDTH, Buildable, Origin
from regard.inspection.matrix.reductions import HOWS, PooledGrid, Pooling
from regard.inspection.matrix.source import CELLS, Computed, WeightBlock
from regard.inspection.tokens import PLAIN, TokenList, token_labels
from regard.progress import display, report

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class MatrixDifference(Buildable):
    """`A - B`: what A attends to more (positive) and less (negative) than B, pair by pair.

    It is indexed as A is: leading axes give smaller handles, rows and columns numbers. A pair is hidden where both hide
    it; where one does, its weight there is 0. Tokens that differ are written as both, "cat / dog".

    >>> import torch, regard
    >>> A = regard.matrix(*torch.randn(2, 1, 8, 64, 16), mask="causal")
    >>> D = A[0, 3] - A[0, 5]
    >>> D.shape, D[10:20, :4].shape, D.pool(8, 8).shape
    ((64, 64), torch.Size([10, 4]), torch.Size([8, 8]))
    """

    def __init__(self, first: AttentionMatrix, second: AttentionMatrix) -> None:
        if first.shape != second.shape:
            raise ValueError(
                f"a difference is of two matrices of one shape, got {first.shape} and {second.shape}; take heads of "
                "texts of the same length, or draw them side by side: regard.plot.compare(A, B)"
            )
        self.first, self.second = first, second
        self.query_tokens = _both(first.query_tokens, second.query_tokens)
        self.key_tokens = _both(first.key_tokens, second.key_tokens)
        self.origin = first.origin if first.origin == second.origin else Origin(remark=first.origin.remark)
        self._grids: dict[tuple[int, int], PooledGrid] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        """(…, query, key)."""
        return self.first.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.first.ndim

    @property
    def places(self) -> list[tuple[int, int]]:
        """The batch row and the number of the head of each map of the first matrix."""
        return self.first.places

    @property
    def dtype(self) -> torch.dtype:
        """The type of the numbers: the wider of the two."""
        return torch.promote_types(self.first.dtype, self.second.dtype)

    @property
    def device(self) -> torch.device:
        """Where numbers are computed: that of the first matrix."""
        return self.first.device

    def __len__(self) -> int:
        return len(self.first)

    def __iter__(self) -> Iterator[Any]:
        return (self[n] for n in range(len(self)))

    def __repr__(self) -> str:
        return f"MatrixDifference({' × '.join(f'{size:,}' for size in self.shape)}: {self.first!r} - {self.second!r})"

    def __neg__(self) -> "MatrixDifference":
        return MatrixDifference(self.second, self.first)

    def __getitem__(self, index: Any) -> Any:
        """A smaller handle if only leading axes are subscripted, else the differences."""
        first, second = self.first[index], self.second[index]
        if isinstance(first, AttentionMatrix):
            return MatrixDifference(first, second)
        return first.to(self.dtype) - second.to(self.device, self.dtype)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(AttentionMatrix, name):
            raise AttributeError(
                f"{name} has no meaning for a signed difference, whose numbers are not weights; take it of each "
                f"matrix, D.first.{name} and D.second.{name}"
            )
        raise AttributeError(f"'MatrixDifference' object has no attribute {name!r}")

    def dense(self, limit: int | None = LIMIT) -> Tensor:
        """All differences as a tensor. Refused above `limit` numbers; None is any number."""
        return self.first.dense(limit).to(self.dtype) - self.second.dense(limit).to(self.device, self.dtype)

    def received(self) -> Tensor:
        """Σ over queries of the differences, (…, key)."""
        return self.first.received().to(self.dtype) - self.second.received().to(self.device, self.dtype)

    def variation(self) -> Tensor:
        """½ Σ over keys of |difference|, (…, query): the share of a row's weight that lies elsewhere, 0 to 1."""
        source = DifferenceBlocks(self.first, self.second)
        total = torch.zeros((source.maps, source.queries), dtype=torch.float64, device=self.device)
        with torch.no_grad(), display():
            for block in source.blocks() if source.keys else ():
                total[:, block.rows] += block.weights.abs().sum(-1, dtype=torch.float64) / 2
                report("reading the weights", block.rows.stop, source.queries, "rows")
        return total.view(self.shape[:-1]).to(self.dtype)

    def pool(self, rows: int, cols: int, how: Literal["mean", "max", "sum"] = "mean") -> Tensor:
        """A grid of rows × cols cells over all pairs, as `AttentionMatrix.pool` gives it.

        "max" is the difference of the largest size, with its sign. "mean" is over the pairs that either matrix shows.
        """
        if how not in HOWS:
            raise ValueError(f"how must be one of {', '.join(HOWS)}, got {how!r}")
        rows, cols = checks.whole("rows", rows, 1), checks.whole("cols", cols, 1)
        self.first._has_room(f"a grid of {rows} × {cols} cells", rows * cols)
        return self._pooled(rows, cols).stretched(rows, cols).by(how).to(self.dtype)

    def show(self, *, color: str = "auto", **view: Unpack[ViewOptions]) -> None:
        """Print a picture that fits the terminal, in colors that diverge from zero."""
        from regard.plot.attention import AttentionPicture, print_attention

        print_attention(self, AttentionPicture.of(**view), color=color)

    def save(self, path: str | os.PathLike[str], **view: Unpack[ViewOptions]) -> Path:
        """Write a picture or the numbers in the format the suffix names: png, svg, pdf, html, npz or csv. Returns the
        path."""
        from regard.plot.attention import AttentionPicture, save_attention

        save_attention(self, path, AttentionPicture.of(**view))
        return Path(path)

    def figure(self, **view: Unpack[ViewOptions]) -> "Figure":
        """The picture that `save` writes, as a matplotlib figure of its own."""
        from regard.plot.attention import AttentionPicture, figure_of
        from regard.plot.figure import finished

        return finished(figure_of(self, AttentionPicture.of(**view)))

    def _repr_html_(self) -> str:
        from regard.plot.page import notebook

        return notebook(self)

    def _pooled(self, rows: int, cols: int) -> PooledGrid:
        """No larger than the matrix; leading axes first."""
        queries, keys = self.shape[-2:]
        if not queries or not keys:
            raise ValueError(f"a difference of shape {self.shape} has no cells to pool")
        size = (min(rows, queries), min(cols, keys))
        if size not in self._grids:
            source = DifferenceBlocks(self.first, self.second)
            grid = SignedPooling(source, *size)
            with torch.no_grad(), display():
                for block in source.blocks():
                    grid.take(block)
                    report("reading the weights", block.rows.stop, queries, "rows")
            self._grids[size] = PooledGrid(*(part.view(*self.shape[:-2], *part.shape[1:]) for part in grid.result))
        return self._grids[size]


class DifferenceBlocks:
    """The differences of two matrices, rectangle by rectangle."""

    def __init__(self, first: AttentionMatrix, second: AttentionMatrix) -> None:
        self.pair = (first, second)
        self.maps = self.heads = first._maps.numel()
        self.queries, self.keys = first.shape[-2:]
        self.dtype, self.device = torch.promote_types(first.dtype, second.dtype), first.device

    def blocks(self) -> Iterator[WeightBlock]:
        """Rectangles that together hold every pair, by blocks of rows, left to right."""
        sources = [matrix._source for matrix in self.pair]
        whole_rows = False
        for source in sources:
            if isinstance(source, Computed):
                whole_rows = whole_rows or not source.softmax
                source.known()  # the states of all rows in one pass, instead of those of a few rows at a time
        width = self.keys if whole_rows else WIDTH
        held = max(source.maps for source in sources)
        height = max(1, min(HEIGHT, CELLS // max(held * min(width, self.keys), 1)))
        for top in range(0, self.queries, height):
            rows = slice(top, min(top + height, self.queries))
            for start in range(0, self.keys, width):
                yield self._block(rows, slice(start, min(start + width, self.keys)))

    def _block(self, rows: slice, columns: slice) -> WeightBlock:
        weights, seen = [], []
        for matrix in self.pair:
            tile, visible = matrix._source.visible_tile(rows, columns)
            maps = matrix._maps.reshape(-1).to(tile.device)
            weights.append(tile[maps].to(self.device, self.dtype))
            seen.append(None if visible is None else visible.expand_as(tile)[maps].to(self.device))
        either = None if seen[0] is None or seen[1] is None else seen[0] | seen[1]
        size = (rows.stop - rows.start, columns.stop - columns.start)
        away = torch.zeros(size, dtype=self.dtype, device=self.device)  # no reduction of a difference reads distances
        return WeightBlock(rows, columns, weights[0] - weights[1], either, away)


class SignedPooling(Pooling):
    """A PooledGrid whose `max` is the number of the largest size in each cell, with its sign."""

    def __init__(self, source: Any, rows: int, columns: int) -> None:
        super().__init__(source, rows, columns)
        self.negated = Pooling(source, rows, columns)

    def take(self, block: WeightBlock) -> None:
        super().take(block)
        self.negated.take(replace(block, weights=-block.weights))

    @property
    def result(self) -> PooledGrid:
        return DifferenceGrid(self.sum, larger(self.max, self.negated.max), self.pairs)


class DifferenceGrid(PooledGrid):
    """A PooledGrid of differences: `max` is the one of the largest size in each cell, with its sign."""

    def halved(self) -> "DifferenceGrid":
        """Two by two cells in one; an odd last row or column stays alone."""
        above = PooledGrid(self.sum, self.max.clamp(min=0), self.pairs).halved()
        below = PooledGrid(self.sum, (-self.max).clamp(min=0), self.pairs).halved()
        return DifferenceGrid(above.sum, larger(above.max, below.max), above.pairs)


def larger(positive: Tensor, negative: Tensor) -> Tensor:
    """The largest difference above 0, or the largest below 0 (given as its size) where that is larger."""
    return torch.where(negative > positive, -negative, positive)


def _both(first: Sequence[str] | None, second: Sequence[str] | None) -> tuple[str, ...] | None:
    """The tokens of both matrices, those that differ as "one / other"."""
    if first is None or second is None or tuple(first) == tuple(second):
        return first if second is None else second  # type: ignore[return-value]
    pairs = zip(token_labels(first), token_labels(second), strict=True)
    return TokenList([one if one == other else f"{one} / {other}" for one, other in pairs], PLAIN)
