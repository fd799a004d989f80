"""Heads: tables of the numbers that tell the heads of a captured model apart, one row for each head or layer."""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.engine.request import Request
from regard.inspection.capture.result import Capture
from regard.inspection.heads.statistics import NEAREST, HeadLayer, head_statistics, nearest
from regard.inspection.heads.tokens import KeyTokens, TokenRows, key_tokens
from regard.inspection.heads.visibility import Visibility, alike, plain, request_of, visibility_of
from regard.inspection.matrix import AttentionMatrix
from regard.inspection.matrix.source import Computed, Stored
from regard.inspection.records import Cell, Table
from regard.progress import display, report

__all__ = ["head_table", "layer_table"]

Name = int | str
ELSEWHERE = ("cross", "encoder_attn", "encdecattention", "enc_dec", "multihead_attn")  # names of cross-attention layers
DECIMALS = 3  # printed
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
        near: dict[int, dict[str, Tensor]] = {}
        if compared:
            report("nearest heads", steps - 1, steps, "parts")
            near = nearest([layer for layer, _ in layer_statistics], centered, per_batch)
            if progress is not None:
                progress(steps, steps)
    rows: list[tuple[Cell, ...]] = []
    for layer, statistics in layer_statistics:
        means = {name: each if per_batch else each.nanmean(0, keepdim=True) for name, each in statistics.items()}
        means |= near.get(layer.number, {})
        for batch in range(layer.request.plane.batch if per_batch else 1):
            for head in layer.shown:
                cells = [_cell(name, means, batch, layer.heads.index(head)) for name in columns]
                rows.append((layer.number, layer.name, *((batch,) if per_batch else ()), head, *cells))
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


def _cell(name: str, means: dict[str, Tensor], batch: int, head: int) -> Cell:
    mean = float(means[name][batch, head]) if name in means else math.nan
    return int(mean) if name in NEAREST[:2] and not math.isnan(mean) else mean


def _average(cells: Sequence[Cell]) -> float:
    there = [float(cell) for cell in cells if isinstance(cell, int | float) and not math.isnan(cell)]
    return math.fsum(there) / len(there) if there else math.nan


class LayerReader:
    """Reads layers. Layers with the same visible pairs share what is computed about these."""

    def __init__(
        self,
        capture: Capture,
        chosen: Sequence[int],
        wanted: Collection[str],
        *,
        ids: Any = None,
        tokens: TokenRows | None = None,
        queries: Any = None,
        cross: Iterable[Name] | None = None,
    ) -> None:
        self.capture, self.wanted = capture, wanted
        self.given = key_tokens(ids, tokens)
        self.labeled = tokens is not None
        self.queries = None if queries is None else _bools(queries)
        self.cross = None if cross is None else set(layer_indices(capture, cross))
        self.channels = capture.channels
        self.cache: list[tuple[Request, KeyTokens, bool, Visibility]] = []
        self.labels: tuple[Any, KeyTokens] | None = None
        self._check([capture[number].shape for number in chosen])

    def layer(self, number: int) -> HeadLayer:
        """One layer."""
        matrix, name = self.capture[number], self.capture.layers[number]
        source = matrix._source
        if isinstance(source, Stored):
            request = request_of(source.weights.unflatten(0, (-1, source.heads)))
        else:
            assert isinstance(source, Computed)
            request = plain(source.request)
            if request is not source.request:
                source = Computed(request)
        within = self._within(number, name, request, matrix)
        words = self._words(matrix, request, within)
        shown, stored = self.capture.numbers(number), request.plane.heads
        heads = shown if len(shown) == stored else tuple(range(stored))  # some layers are stored whole
        return HeadLayer(number, name, source, request, self._visibility(request, words, within), within, heads, shown)

    def _check(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """Refuse arguments that fit no layer."""
        given = [("tokens", "key", -1, self.given.punctuation), ("ids", "key", -1, self.given.ids)]
        for name, what, axis, rows in [*given, ("queries", "query", -2, self.queries)]:
            if rows is None:
                continue
            batches = {torch.Size(shape[:-3]).numel() for shape in shapes if shape[axis] == rows.shape[-1]}
            if not batches:
                sizes = ", ".join(f"{size:,}" for size in sorted({shape[axis] for shape in shapes}))
                raise ValueError(
                    f"{name} must have one entry for each {what} of some layer ({sizes}), got {rows.shape[-1]:,}"
                )
            if len(rows) != 1 and len(rows) not in batches:
                sizes = ", ".join(map(str, sorted(batches)))
                raise ValueError(f"{name} must have one row or one for each batch row ({sizes}), got {len(rows)} rows")

    def _within(self, number: int, name: str, request: Request, matrix: AttentionMatrix) -> bool:
        """Whether queries and keys are of one text."""
        if self.cross is not None:
            return number not in self.cross
        if name in self.channels:
            return False
        bias, labels = request.bias, (matrix.query_tokens, matrix.key_tokens)
        if request.mask.positional_for(request.plane.queries) or request.score.positional:
            return True
        if bias is not None and bias.positional:
            return True
        if request.plane.queries != request.plane.keys or (None not in labels and labels[0] != labels[1]):
            return False
        return not any(part in name.lower() for part in ELSEWHERE)

    def _words(self, matrix: AttentionMatrix, request: Request, within: bool) -> KeyTokens:
        """The given tokens if they fit these keys, else the labels. They do not fit another text of the same length."""
        if self.labels is None or self.labels[0] != matrix.key_tokens:  # the layers of a text have the same ones
            self.labels = (matrix.key_tokens, key_tokens(None, matrix.key_tokens))
        plane, own = request.plane, self.labels[1]
        given = self.given.ids if self.given.ids is not None else self.given.punctuation
        if given is None or not _fits(given, plane.batch, plane.keys) or (not within and plane.queries == plane.keys):
            return own
        return self.given if self.labeled else KeyTokens(given, own.punctuation)

    def _visibility(self, request: Request, words: KeyTokens, within: bool) -> Visibility:
        for other, others, same_text, visibility in self.cache:
            if within == same_text and alike(request, other) and words == others:
                return visibility
        plane = request.plane
        queries = self.queries if _fits(self.queries, plane.batch, plane.queries) else None
        new = visibility_of(request, words, within, self.wanted, queries)
        self.cache.append((request, words, within, new))
        return new


def _fits(rows: Tensor | None, batch: int, count: int) -> bool:
    return rows is not None and rows.shape[-1] == count and len(rows) in (1, batch)


def layer_indices(capture: Capture, layers: Iterable[Name] | Name | slice | None) -> list[int]:
    """Indices of layers given by number, name, several of them or None for all; refused layers only if named."""
    names = capture.layers
    if layers is None or isinstance(layers, slice):
        chosen = range(len(names))[slice(None) if layers is None else layers]
        return [number for number in chosen if names[number] not in capture.refused]
    if isinstance(layers, int | str):
        layers = (layers,)
    indices = []
    for each in layers:
        if isinstance(each, str):
            if each not in names:
                raise KeyError(f"no layer {each!r}; there are {', '.join(names)}")
            indices.append(names.index(each))
        elif isinstance(each, bool) or not isinstance(each, int):
            raise TypeError(f"a layer is a number or a name, got {type(each).__name__}")
        elif not -len(names) <= each < len(names):
            raise IndexError(f"layer {each} of {len(names)}")
        else:
            indices.append(each % len(names))
    return indices


def _bools(queries: Any) -> Tensor:
    counted = queries if isinstance(queries, Tensor) else torch.as_tensor(np.asarray(queries), device="cpu")
    if counted.ndim not in (1, 2) or counted.is_floating_point() or not bool(((counted == 0) | (counted == 1)).all()):
        raise TypeError(
            "queries must be True where a query counts, (query,) or (batch, query), got "
            f"{str(counted.dtype).removeprefix('torch.')} of shape {tuple(counted.shape)}"
        )
    counted = counted.detach().cpu().bool()
    return counted if counted.ndim == 2 else counted.unsqueeze(0)
