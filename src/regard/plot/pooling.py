"""An AttentionMatrix as records to draw: one head is a Grid, several are a Panel of Grids that share their colors.

Rows are queries, columns keys, hidden pairs None. A matrix that is longer than the picture is pooled: by default a cell
is the largest of its weights, so that a single strong one stays visible, and the note says so.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.inspection.matrix.difference import MatrixDifference
from regard.inspection.matrix.handle import AttentionMatrix
from regard.inspection.number import short
from regard.inspection.records import Grid, Panel, SignedGrid
from regard.inspection.tokens import token_labels
from regard.plot import grids
from regard.plot.captions import remark_of

NAMES = ("query", "key", "attention weight")  # of rows, columns and values
SIGNED_NAMES = ("query", "key", "difference of attention weights")
HOWS = ("max", "mean")
MOST_HEADS = 1024
Matrix = AttentionMatrix | MatrixDifference
FIGURE_SIDE = 256  # cells of one head in a figure: about four dots each


@dataclass(frozen=True, eq=False)
class PooledHeads:
    """All heads in cells of up to `down` × `right` pairs; arrays are (head, row, column), hidden cells not visible."""

    names: Sequence[str]
    max: np.ndarray[Any, Any]
    mean: np.ndarray[Any, Any]
    visible: np.ndarray[Any, Any]
    down: int
    right: int
    sizes: tuple[int, int]
    average: float  # over all visible pairs
    starts: tuple[list[int], list[int]]  # the first query of each row of cells, and the first key of each column
    remark: str = ""  # what a caption adds
    signed: bool = False  # differences; max is the one of the largest size

    @property
    def exact(self) -> bool:
        """Whether every cell is one pair."""
        return self.down == self.right == 1

    def by(self, how: str) -> np.ndarray[Any, Any]:
        """One of max and mean."""
        return self.max if how == "max" else self.mean

    def cells(self, how: str) -> list[list[list[float | None]]]:
        """The cells of every head, None where all pairs are hidden."""
        cells = self.by(how).astype(object)
        cells[~self.visible] = None
        return cells.tolist()  # type: ignore[no-any-return]

    def note(self, how: str) -> str:
        """How large the matrix is, and what a cell means."""
        queries, keys = self.sizes
        rows, columns = "query" if queries == 1 else "queries", "key" if keys == 1 else "keys"
        text = f"{queries:,} {rows} (rows) × {keys:,} {columns} (columns)"
        if self.signed:
            text += "; first less second: above zero where the first gives more"
        if self.exact:
            return "; ".join([text, self.remark]) if self.remark else text
        text = "; ".join([text, self.remark]) if self.remark else text
        pairs = f"up to {self.down:,} × {self.right:,} {'differences' if self.signed else 'weights'}"
        if how == "max":
            return f"{text}; each cell: the largest of {pairs}; the mean of all is {short(self.average)}"
        largest = max(self.max[self.visible].tolist(), key=abs, default=0.0)
        return f"{text}; each cell: the mean of {pairs}; the largest of all is {short(largest)}"

    def labels(self, matrix: Matrix) -> tuple[list[str], list[str]]:
        """Of rows and columns: tokens where a cell is one of them, else the number of the first."""
        rows, columns = (
            [str(start) for start in starts] if tokens is None or each > 1 else token_labels(tokens)
            for tokens, starts, each in zip(
                (matrix.query_tokens, matrix.key_tokens), self.starts, (self.down, self.right), strict=True
            )
        )
        return rows, columns


def check_how(how: str) -> None:
    """Raise unless `how` is one of `HOWS`."""
    if how not in HOWS:
        raise ValueError(f"how says what a cell of several weights shows, max or mean; got {how!r}")


def pool(matrix: Matrix, rows: int, columns: int, *, how: str = "max") -> PooledHeads:
    """Every head in at most `rows` × `columns` cells, in one pass over the pairs."""
    check_how(how)
    *lead, queries, keys = matrix.shape
    heads = math.prod(lead)
    if not heads:
        raise ValueError(f"a matrix of shape {tuple(matrix.shape)} has no head to show")
    if heads > MOST_HEADS:
        raise ValueError(
            f"a picture holds at most {MOST_HEADS:,} heads, this matrix has {heads:,}; choose some, as in A[0].show()"
        )
    signed = isinstance(matrix, MatrixDifference)
    names = [f"[{', '.join(map(str, index))}]" for index in np.ndindex(*lead)]  # write it behind the matrix
    if matrix.origin.layer is not None and len({row for row, _ in matrix.places}) == 1:
        names = [str(head) for _, head in matrix.places]
    if not queries or not keys:
        empty = np.zeros((heads, queries, keys))
        starts = (list(range(queries)), list(range(keys)))
        return PooledHeads(
            names, empty, empty, empty > 0, 1, 1, (queries, keys), math.nan, starts, remark_of(matrix), signed
        )
    down, right = math.ceil(queries / rows), math.ceil(keys / columns)
    if down > 1 and right > 1:
        down = right = max(down, right)  # both axes alike, so that a diagonal stays one
    high, wide = math.ceil(queries / down), math.ceil(keys / right)
    grid = matrix._pooled(high, wide)
    total, largest, pairs = (
        part.detach().cpu().reshape(heads, high, wide).numpy() for part in (grid.sum, grid.max, grid.pairs)
    )
    average = float(total.sum(dtype=np.float64) / max(pairs.sum(dtype=np.float64), 1.0))
    mean = total / np.maximum(pairs, 1)
    starts = ([row * queries // high for row in range(high)], [column * keys // wide for column in range(wide)])
    return PooledHeads(
        names, largest, mean, pairs > 0, down, right, (queries, keys), average, starts, remark_of(matrix), signed
    )


def picture(
    matrix: Matrix, rows: int = FIGURE_SIDE, columns: int = FIGURE_SIDE, *, how: str = "max", title: str = ""
) -> Grid | Panel:
    """The picture of one head, or of several, each in at most `rows` × `columns` cells."""
    pooled = pool(matrix, rows, columns, how=how)
    labels, cells, note = pooled.labels(matrix), pooled.cells(how), pooled.note(how)
    kind, names = (SignedGrid, SIGNED_NAMES) if pooled.signed else (Grid, NAMES)
    if len(cells) == 1:
        return kind(cells[0], *labels, title=title, note=note, names=names)
    scale = grids.limits([row for head in cells for row in head], signed=pooled.signed)
    heads = zip(cells, pooled.names, strict=True)
    limits = scale.low, scale.high
    return Panel(
        [kind(head, *labels, title=name, note=note, limits=limits, names=names) for head, name in heads], title
    )
