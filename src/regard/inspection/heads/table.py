"""head_table and layer_table: statistics of the heads of a captured model, one row each."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor

from regard.inspection.capture.result import Capture
from regard.inspection.heads.layers import HeadLayer, LayerReader, Name, layer_indices
from regard.inspection.heads.statistics import NearestHeads, head_statistics, nearest
from regard.inspection.heads.tokens import TokenRows
from regard.inspection.records import Cell, Table
from regard.progress import display, report

DECIMALS = 3  # printed
NEAREST = ("nearest_layer", "nearest_head", "nearest_similarity")
COLUMNS = (
    *("entropy", "relative", "distance", "previous", "first", "sink", "diagonal"),
    *("duplicate", "induction", "punctuation", "similarity"),
    *NEAREST,
)


def head_table(
    capture: Capture,
    *,
    which: str | Sequence[str] | None = None,
    layers: Name | Iterable[Name] | slice | None = None,
    ids: Any = None,
    tokens: TokenRows | None = None,
    queries: Any = None,
    cross: Iterable[Name] | None = None,
    centered: bool = False,
    per_batch: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Table:
    """One row for each head: entropy, distance, shares of its weight on kinds of keys, and its most similar head.

    `which`: some of the columns. `layers`: numbers, names or a slice. `ids`, (key,) or (batch, key), or `tokens`
    (strings) tell which tokens are the same; without them the labels of the capture do. `queries`: True where a query
    counts, (query,) or (batch, query). `cross`: the layers that look at another text, if their
    names and shapes do not tell. `centered`: similarities of rows less their mean. `per_batch`: a row for each batch
    row instead of the mean. `progress` is called with (steps done, all steps).
    """
    columns = COLUMNS if which is None else tuple(dict.fromkeys([which] if isinstance(which, str) else which))
    for name in columns:
        if name not in COLUMNS:
            raise ValueError(f"which names columns, {', '.join(COLUMNS)}; got {name!r}")
    chosen = layer_indices(capture, layers)
    compared = any(name in NEAREST for name in columns)
    reader = LayerReader(capture, chosen, columns, ids=ids, tokens=tokens, queries=queries, cross=cross)
    layer_statistics: list[tuple[HeadLayer, dict[str, Tensor]]] = []
    steps = len(chosen) + compared
    with display():
        for done, number in enumerate(chosen):
            report(f"heads of layer {number}", done, steps, "parts")
            layer = reader.layer(number)
            layer_statistics.append((layer, head_statistics(layer, columns, centered)))
            if progress is not None:
                progress(done + 1, steps)
        near: dict[int, NearestHeads] = {}
        if compared:
            report("nearest heads", steps - 1, steps, "parts")
            near = nearest([layer for layer, _ in layer_statistics], centered, per_batch)
            if progress is not None:
                progress(steps, steps)
    rows: list[tuple[Cell, ...]] = []
    for layer, means in layer_statistics:
        rows += _rows(layer, means, near.get(layer.number), columns, per_batch)
    refused = capture.refused if layers is None or isinstance(layers, slice) else {}
    title = f"not shown: {', '.join(refused)}" if refused else ""
    return Table(("layer", "name", *(("batch",) if per_batch else ()), "head", *columns), rows, title, DECIMALS)


def layer_table(capture: Capture, **options: Any) -> Table:
    """One row for each layer: the mean over its heads of every column of `head_table`, whose options it takes.

    `similarity` is the mean cosine over all pairs of its heads, 1 if there is only one.
    """
    heads = head_table(capture, **options)
    averaged = [name for name in heads.columns if name not in ("layer", "name", "batch", "head", *NEAREST[:2])]
    keys = [name for name in ("layer", "name", "batch") if name in heads.columns]
    groups: dict[tuple[Cell, ...], list[dict[str, Cell]]] = {}
    for row in heads:
        groups.setdefault(tuple(row[name] for name in keys), []).append(row)
    rows = [
        (*key, len(members), *(_average([row[name] for row in members]) for name in averaged))
        for key, members in groups.items()
    ]
    return Table((*keys, "heads", *averaged), rows, heads.title, DECIMALS)


def _rows(
    layer: HeadLayer, statistics: dict[str, Tensor], near: NearestHeads | None, columns: Sequence[str], per_batch: bool
) -> Iterable[tuple[Cell, ...]]:
    """One for each head, or for each batch row and head."""
    plane = layer.source.request.plane
    means = {name: values if per_batch else values.nanmean(0, keepdim=True) for name, values in statistics.items()}
    for row in range(plane.batch if per_batch else 1):
        for number in layer.shown:
            cells = [_cell(name, means, near, row, layer.heads.index(number)) for name in columns]
            yield (layer.number, layer.name, *((row,) if per_batch else ()), number, *cells)


def _cell(name: str, means: dict[str, Tensor], near: NearestHeads | None, row: int, head: int) -> Cell:
    if name in means:
        return float(means[name][row, head])
    if name not in NEAREST or near is None or int(near.layer[row, head]) < 0:
        return math.nan
    if name == NEAREST[2]:
        return float(near.similarity[row, head])
    return int((near.layer if name == NEAREST[0] else near.head)[row, head])


def _average(cells: Sequence[Cell]) -> float:
    there = [float(cell) for cell in cells if isinstance(cell, int | float) and not math.isnan(cell)]
    return math.fsum(there) / len(there) if there else math.nan
