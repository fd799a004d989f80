"""An AttentionMatrix as an alignment of two texts: which word of one each word of the other reads most.

Rows are targets (queries), columns sources (keys). The strongest key of each row is marked; several heads are averaged.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from regard.inspection.matrix.handle import AttentionMatrix
from regard.inspection.records import Grid
from regard.plot.captions import index_of_head
from regard.plot.pooling import FIGURE_SIDE, NAMES, pool


@dataclass(frozen=True)
class Alignment:
    """The map, and for each row of the map that has one, the place of its strongest key: (row, column) of cells."""

    grid: Grid
    marks: Sequence[tuple[float, float]]


def alignment(matrix: AttentionMatrix, side: int = FIGURE_SIDE, *, how: str = "max", title: str = "") -> Alignment:
    """The alignment in at most `side` × `side` cells; the marks are exact where cells hold several pairs."""
    *lead, queries, keys = matrix.shape
    if math.prod(lead[:-1]) > 1:
        raise ValueError(
            f"an alignment is of one pair of texts, and this matrix has {tuple(matrix.shape)}; choose one, as in A[0]"
        )
    pooled = pool(matrix, side, side, how=how)
    heads = len(pooled.names)
    if heads > 1:
        if not pooled.exact:
            raise ValueError(
                f"the mean of {heads} heads is drawn for up to {side} × {side} tokens, and there are {queries:,} × "
                f"{keys:,}; choose one: {index_of_head(matrix)}"
            )
        mean = pooled.mean.mean(0, keepdims=True)
        seen = np.asarray(pooled.visible.any(0, keepdims=True))
        pooled = replace(pooled, names=[""], max=mean, mean=mean, visible=seen)
        best = np.where(pooled.visible[0].any(1), np.where(pooled.visible[0], mean[0], -1).argmax(1), -1)
    else:
        best = matrix.peak().key.reshape(queries).cpu().numpy() if queries and keys else np.zeros(0, dtype=int)
    down, right = (cells / max(count, 1) for cells, count in zip(pooled.max.shape[1:], pooled.sizes, strict=True))
    marks = [((row + 0.5) * down - 0.5, (key + 0.5) * right - 0.5) for row, key in enumerate(best.tolist()) if key >= 0]
    several = f"mean of {heads} heads; " if heads > 1 else ""
    note = f"{several}{pooled.note(how)}; marked: the strongest key of each row"
    return Alignment(Grid(pooled.cells(how)[0], *pooled.labels(matrix), title=title, note=note, names=NAMES), marks)
