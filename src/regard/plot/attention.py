"""An AttentionMatrix as records: one head is a Grid, several are a Panel of Grids that share their colors.

Rows are queries, columns keys, hidden pairs None. What is longer than the room for it is pooled: by default a cell is
the largest of its weights, so that a single strong one stays visible, and the note says so.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.inspection.matrix.grid import edges
from regard.inspection.matrix.handle import AttentionMatrix
from regard.inspection.number import short
from regard.inspection.records import Grid, Panel
from regard.plot import grids
from regard.plot.tokens import token_label

HOWS = ("max", "mean")
MOST_HEADS = 1024
FIGURE_SIDE = 256  # cells of one head in a figure: about four dots each


@dataclass(frozen=True, eq=False)
class Pooled:
    """All heads in cells of up to `down` × `right` pairs; arrays are (head, row, column), hidden cells not visible."""

    names: Sequence[str]
    max: np.ndarray[Any, Any]
    mean: np.ndarray[Any, Any]
    visible: np.ndarray[Any, Any]
    down: int
    right: int
    sizes: tuple[int, int]
    average: float  # over all visible pairs

    @property
    def exact(self) -> bool:
        """Whether every cell is one pair."""
        return self.down == self.right == 1

    @property
    def starts(self) -> tuple[list[int], list[int]]:
        """The first query of each row of cells, and the first key of each column."""
        rows, columns = self.max.shape[1:]
        return _starts(self.sizes[0], rows), _starts(self.sizes[1], columns)

    def by(self, how: str) -> np.ndarray[Any, Any]:
        """One of max and mean."""
        return self.max if how == "max" else self.mean

    def note(self, how: str) -> str:
        """How large the matrix is, and what a cell means."""
        queries, keys = self.sizes
        text = (
            f"{queries:,} {_word(queries, 'query', 'queries')} (rows) × {keys:,} {_word(keys, 'key', 'keys')} (columns)"
        )
        if self.exact:
            return text
        pairs = f"up to {self.down:,} × {self.right:,} weights"
        if how == "max":
            return f"{text}; each cell: the largest of {pairs}; the mean of all is {short(self.average)}"
        largest = float(self.max[self.visible].max(initial=0.0))
        return f"{text}; each cell: the mean of {pairs}; the largest of all is {short(largest)}"


def picture(
    matrix: AttentionMatrix, rows: int = FIGURE_SIDE, columns: int = FIGURE_SIDE, *, how: str = "max", title: str = ""
) -> Grid | Panel:
    """The picture of one head, or of several, each in at most `rows` × `columns` cells."""
    found = pooled(matrix, rows, columns, how=how)
    labels = axis_labels(matrix, found)
    cells = cells_of(found, how)
    note = found.note(how)
    if len(cells) == 1:
        return Grid(cells[0], *labels, title=title, note=note)
    scale = grids.limits(Grid([]), [row for head in cells for row in head])
    shared = (scale.low, scale.high)
    heads = zip(cells, found.names, strict=True)
    return Panel([Grid(head, *labels, title=name, note=note, limits=shared) for head, name in heads], title)


def pooled(matrix: AttentionMatrix, rows: int, columns: int, *, how: str = "max") -> Pooled:
    """Every head in at most `rows` × `columns` cells, in one pass over the pairs."""
    if how not in HOWS:
        raise ValueError(f"how says what a cell of several weights shows, max or mean; got {how!r}")
    *lead, queries, keys = matrix.shape
    heads = math.prod(lead)
    if not heads:
        raise ValueError(f"a matrix of shape {tuple(matrix.shape)} has no head to show")
    if heads > MOST_HEADS:
        raise ValueError(
            f"a picture holds at most {MOST_HEADS:,} heads, this matrix has {heads:,}; choose some, as in A[0].show()"
        )
    names = [_name(index) for index in np.ndindex(*lead)]
    down, right = _factors(queries, keys, rows, columns)
    if not queries or not keys:
        empty = np.zeros((heads, queries, keys))
        return Pooled(names, empty, empty, empty > 0, 1, 1, (queries, keys), math.nan)
    high, wide = math.ceil(queries / down), math.ceil(keys / right)
    grid = matrix.survey("pool", rows=high, cols=wide)["pool"]
    total, largest, pairs = (
        part.detach().cpu().reshape(heads, high, wide).numpy() for part in (grid.sum, grid.max, grid.pairs)
    )
    average = float(total.sum(dtype=np.float64) / max(pairs.sum(dtype=np.float64), 1.0))
    mean = total / np.maximum(pairs, 1)
    return Pooled(names, largest, mean, pairs > 0, down, right, (queries, keys), average)


def axis_labels(matrix: AttentionMatrix, found: Pooled) -> tuple[list[str], list[str]]:
    """Tokens where a cell is one of them, else the number of the first."""
    rows, columns = found.starts
    return (
        _labels(matrix.query_tokens, rows, found.down),
        _labels(matrix.key_tokens, columns, found.right),
    )


def _labels(tokens: Sequence[str] | None, starts: Sequence[int], each: int) -> list[str]:
    if tokens is None or each > 1:
        return [str(start) for start in starts]
    return [token_label(token) for token in tokens]


def cells_of(found: Pooled, how: str) -> list[list[list[float | None]]]:
    """The cells of every head, None where all pairs are hidden."""
    return [
        [
            [value if seen else None for value, seen in zip(row, shown, strict=True)]
            for row, shown in zip(head, visible, strict=True)
        ]
        for head, visible in zip(found.by(how).tolist(), found.visible.tolist(), strict=True)
    ]


def _factors(queries: int, keys: int, rows: int, columns: int) -> tuple[int, int]:
    """Pairs of a cell, down and across: alike if both axes are too long, so that a diagonal stays one."""
    down, right = max(math.ceil(queries / rows), 1), max(math.ceil(keys / columns), 1)
    return (max(down, right),) * 2 if down > 1 and right > 1 else (down, right)


def _starts(count: int, cells: int) -> list[int]:
    return edges(count, cells)[:-1].tolist() if cells else []


def _name(index: tuple[int, ...]) -> str:
    """What to write behind the matrix to get this head."""
    return f"[{', '.join(map(str, index))}]"


def _word(count: int, one: str, more: str) -> str:
    return one if count == 1 else more
