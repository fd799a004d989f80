"""All heads of a capture at once: a small map for each, in a row for each layer."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from regard.inspection.matrix.handle import AttentionMatrix
from regard.plot.attention import Pooled, pooled

MOST_MAPS = 4096
SCALES = ("shared", "own")
_SIDES = ((150, 64), (600, 32), (MOST_MAPS, 16))  # cells of each of so many maps


class Layers(Protocol):
    """What is asked of a capture."""

    @property
    def layers(self) -> tuple[str, ...]:
        """Names."""

    @property
    def refused(self) -> dict[str, str]:
        """Names and reasons."""

    def __getitem__(self, layer: int, /) -> AttentionMatrix:
        """The weights of a layer, (batch, head, query, key)."""

    def numbers(self, layer: int, /) -> tuple[int, ...]:
        """The numbers that the heads of a layer have in the model."""


@dataclass(frozen=True, eq=False)
class LayerMaps:
    """One layer: its number, its name, its heads in small maps and their numbers, or why it has none."""

    number: int
    name: str
    found: Pooled | None
    heads: Sequence[int] = ()
    reason: str = ""


@dataclass(frozen=True, eq=False)
class Overview:
    """Layers with a map for each head."""

    layers: Sequence[LayerMaps]
    how: str
    title: str = ""
    note: str = ""
    axes: tuple[str, str] = ("layers", "heads")

    @property
    def heads(self) -> list[int]:
        """The numbers of all heads that some layer has: the columns."""
        return sorted({head for layer in self.layers for head in layer.heads})


def matrices(capture: Layers, batch: int = 0) -> Iterator[tuple[int, str, AttentionMatrix | None, str]]:
    """Number, name and weights (head, query, key) of each layer for one row of the batch, or why there are none."""
    refused = capture.refused
    for number, name in enumerate(capture.layers):
        if name in refused:
            yield number, name, None, refused[name]
            continue
        matrix = capture[number]
        while matrix.ndim > 4:  # more axes than (batch, head): the first of each
            matrix = matrix[0]
        if matrix.ndim == 4:
            rows = matrix.shape[0]
            if not -rows <= batch < rows:
                raise ValueError(f"batch is a row of the batch, one of 0 to {rows - 1}; got {batch}")
            matrix = matrix[batch]
        yield number, name, matrix, ""


def overview(
    capture: Layers, *, how: str = "max", title: str = "", batch: int = 0, side: int | None = None
) -> Overview:
    """Every head of every layer in at most `side` × `side` cells, one layer after the other; hidden cells are blank."""
    every = list(matrices(capture, batch))
    count = sum(math.prod(matrix.shape[:-2]) for _, _, matrix, _ in every if matrix is not None)
    if count > MOST_MAPS:
        raise ValueError(
            f"an overview holds at most {MOST_MAPS:,} heads, and this capture has {count:,}; save its layers one by "
            "one, as in c[3].save(...)"
        )
    side = side or next(side for most, side in _SIDES if count <= most)
    layers = [
        LayerMaps(number, name, None, reason=reason)
        if matrix is None or not all(matrix.shape)
        else LayerMaps(number, name, pooled(matrix, side, side, how=how), capture.numbers(number))
        for number, name, matrix, reason in every
    ]
    return Overview(layers, how, title, _note(layers, how))


def stacked(found: Pooled, shape: tuple[int, int], how: str, title: str = "") -> Overview:
    """The heads of a matrix whose leading axes are `shape`, as if the first were layers."""
    rows, columns = shape
    layers = []
    for row in range(rows):
        part = slice(row * columns, (row + 1) * columns)
        some = replace(
            found, names=found.names[part], max=found.max[part], mean=found.mean[part], visible=found.visible[part]
        )
        layers.append(LayerMaps(row, "", some, range(columns)))
    return Overview(layers, how, title, _note(layers, how), ("first index", "second index"))


def _note(layers: Sequence[LayerMaps], how: str) -> str:
    """The sizes of the maps and what a cell means."""
    found = [layer.found for layer in layers if layer.found is not None]
    sizes = sorted({each.sizes for each in found})
    text = ", ".join(f"{queries:,} × {keys:,}" for queries, keys in sizes[:3]) + (", …" if len(sizes) > 3 else "")
    parts = [f"each map: queries (rows) × keys (columns), {text}"]
    if any(not each.exact for each in found):
        most = max(max(each.down, each.right) for each in found)
        parts.append(f"each cell: the {'largest' if how == 'max' else 'mean'} of up to {most:,} × {most:,} weights")
    refused = sum(bool(layer.reason) for layer in layers)
    if refused:
        parts.append(f"{refused} {'layer' if refused == 1 else 'layers'} refused: left blank")
    return "; ".join(parts)


def values_of(layer: LayerMaps, how: str) -> "list[np.ndarray[Any, Any]]":
    """The maps of a layer, NaN where pairs are hidden."""
    if layer.found is None:
        return []
    return list(np.where(layer.found.visible, layer.found.by(how), np.nan))
