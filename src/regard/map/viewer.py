"""Answers the page's requests about a capture view, over HTTP or from a notebook: tiles, profiles of rows and columns,
and statistics of heads, of all rows where that is fast, else of some."""

import hashlib
import math
import struct
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.inspection.capture import Capture
from regard.inspection.heads import head_table
from regard.inspection.matrix import AttentionMatrix
from regard.inspection.matrix.source import Stored
from regard.map.head_view import GenericHeadView, HeadCall, HeadView, native_call, native_head_view
from regard.map.jobs import RequestBody, RequestError, Stop
from regard.map.levels import STEP, TILE, Levels, Place, padded
from regard.map.pyramid import HeadKey, PyramidBuilder
from regard.map.stored_view import StoredHeadView
from regard.map.tile_cache import TileCache, usual
from regard.map.tiles import SIZES, Tiles, overview, sampled, strongest
from regard.map.views import CaptureView, LayerView

PAGE = Path(__file__).with_name("page")  # its scripts and style
Answer = dict[str, Any] | bytes
TILES, TOKENS, BINS, FOUND, STRONGEST, LETTERS = 64, 4096, 4096, 1000, 64, 200  # most of each in one request
AXES = ("query", "key")
TOP = 20  # weights listed with a profile
COLUMN_ROWS = 4096  # rows of a column that are computed at once
STATISTICS_PAIRS = 1 << 24  # of all heads; statistics of more pairs are taken from some rows
STATISTICS_ROWS = 64  # of each head, where statistics are of some rows
COLUMNS = ("entropy", "relative", "distance", "previous", "first")
MORE = ("diagonal", "duplicate", "induction", "punctuation")


class Viewer:
    """Every request by name: `answer(name, body, stop)`."""

    quick = frozenset({"info", "tokens", "progress"})  # answered without computing

    def __init__(self, view: CaptureView) -> None:
        self.view = view
        self._head_views: dict[HeadKey, HeadView] = {}
        self._calls: dict[int, HeadCall | None] = {}
        self._lock = threading.Lock()
        self._running = 0
        self._tiles = Tiles()
        tile_cache = TileCache(view.folder or usual())
        self._builder = PyramidBuilder(self.head_and_levels, tile_cache, lambda: self._running > 0)
        self._thumb = lru_cache(1024)(self._thumbnail)
        self._statistics: dict[tuple[int, int], dict[str, Any]] = {}
        self._answers: dict[str, Callable[[RequestBody, Stop], Answer]] = {
            "info": self._info,
            "tiles": self._tile_list,
            "progress": self._progress,
            "cell": self._cell,
            "row": self._row,
            "column": self._column,
            "tokens": self._tokens,
            "find": self._find,
            "strongest": self._strongest,
            "thumbs": self._thumbs,
            "heads": self._heads,
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Of all requests."""
        return tuple(self._answers)

    def answer(self, name: str, body: object, stop: Stop) -> Answer:
        """A dictionary that JSON can hold, or bytes."""
        if name not in self._answers:
            raise RequestError(f"there is no question {name[:40]!r}", 404)
        if name in self.quick:
            return self._answers[name](RequestBody(body), stop)
        with self._lock:
            self._running += 1
        try:
            return self._answers[name](RequestBody(body), stop)
        finally:
            with self._lock:
                self._running -= 1

    def head_and_levels(self, key: HeadKey) -> tuple[HeadView, Levels]:
        """One head and the levels of its layer."""
        return self._head_view(key), self.view.layers[key[0]].levels

    def forget(self) -> None:
        """Drop the cached tiles."""
        self._tiles.forget()

    def close(self) -> None:
        """Stop the background work."""
        self._builder.close()

    def _layer(self, body: RequestBody) -> tuple[int, LayerView, int]:
        """The layer with its number, and the batch row."""
        number = body.number("layer", 0, len(self.view.layers) - 1)
        layer = self.view.layers[number]
        return number, layer, body.number("batch", 0, layer.batch - 1, 0)

    def _key(self, body: RequestBody) -> tuple[LayerView, HeadKey]:
        number, layer, batch = self._layer(body)
        return layer, (number, batch, body.number("head", 0, layer.heads - 1))

    def _head_view(self, key: HeadKey) -> HeadView:
        with self._lock:
            if key not in self._head_views:
                layer = self.view.layers[key[0]]
                if key[0] not in self._calls:
                    self._calls[key[0]] = native_call(layer.matrix)
                matrix, call = layer.head(*key[1:]), self._calls[key[0]]
                native = None if call is None else native_head_view(call, matrix)
                self._head_views[key] = native or _generic_head_view(matrix)
            return self._head_views[key]

    def _info(self, body: RequestBody, stop: Stop) -> Answer:
        layers = [
            {
                "name": layer.name,
                "queries": layer.queries,
                "keys": layer.keys,
                "heads": layer.heads,
                "batch": layer.batch,
                "levels": layer.levels.count,
                "estimate_from": layer.levels.exact_from,
                "hi": layer.levels.top,
                "causal": layer.causal,
                "query_tokens": layer.tokens("query") is not None,
                "key_tokens": layer.tokens("key") is not None,
                "query_start": layer.query_start(),
                "head_names": None if layer.head_names is None else list(layer.head_names),
            }
            for layer in self.view.layers
        ]
        title = self.view.title
        name = hashlib.blake2b(repr((title, layers)).encode(), digest_size=8).hexdigest()
        return {"id": name, "title": title, "version": 1, "tile": TILE, "step": STEP, "layers": layers}

    def _tile_list(self, body: RequestBody, stop: Stop) -> Answer:
        layer, key = self._key(body)
        places = [Place(*triple) for triple in body.triples("tiles", TILES)]
        for place in places:
            if not layer.levels.holds(place):
                raise RequestError("there is no such tile at these levels")
        tiles = self._tiles.take(key, self._head_view(key), layer.levels, places, self._builder.get(key), stop)
        parts = [b"RGT1", struct.pack("<I", len(places))]
        for place in places:
            tile = tiles[place]
            parts.append(struct.pack("<BBHII", place.z, tile.flags, 0, place.y, place.x))
            parts += tile.planes
        return b"".join(parts)

    def _progress(self, body: RequestBody, stop: Stop) -> Answer:
        layer, key = self._key(body)
        if layer.levels.exact_from == 0:
            return {"state": "exact", "done": 1, "total": 1}
        return self._builder.progress(key)

    def _cell(self, body: RequestBody, stop: Stop) -> Answer:
        layer, key = self._key(body)
        q, k = body.number("q", 0, layer.queries - 1), body.number("k", 0, layer.keys - 1)
        weights = row_weights(self._head_view(key), q)
        own = float(weights[k])
        return {
            "weight": max(0.0, own),
            "rank": None if own < 0 else int((weights > own).sum()) + 1,
            "visible": int((weights >= 0).sum()),
            "hidden": own < 0,
            "query_token": layer.word("query", q, key[1]),
            "key_token": layer.word("key", k, key[1]),
        }

    def _row(self, body: RequestBody, stop: Stop) -> Answer:
        layer, key = self._key(body)
        q = body.number("q", 0, layer.queries - 1)
        weights = row_weights(self._head_view(key), q)
        seen = (weights >= 0).sum()
        return profile(weights, seen, *_part(body, layer.keys), "k", layer.tokens("key", key[1]))

    def _column(self, body: RequestBody, stop: Stop) -> Answer:
        layer, key = self._key(body)
        k = body.number("k", 0, layer.keys - 1)
        head_view, part = self._head_view(key), _part(body, layer.queries)
        weights = column_weights(head_view, k, stop)
        return profile(weights, head_view.seen(slice(0, head_view.queries)), *part, "q", layer.tokens("query", key[1]))

    def _tokens(self, body: RequestBody, stop: Stop) -> Answer:
        _, layer, batch = self._layer(body)
        axis = body.word("axis", AXES)
        count = layer.length(axis)
        first = body.number("from", 0, count)
        last = body.number("to", first, min(count, first + TOKENS))
        words = layer.tokens(axis, batch)
        return {"tokens": None if words is None else list(words[first:last])}

    def _find(self, body: RequestBody, stop: Stop) -> Answer:
        _, layer, batch = self._layer(body)
        words = layer.tokens(body.word("axis", AXES), batch) or ()
        text, limit = body.text("text", LETTERS).casefold(), body.number("limit", 1, FOUND, FOUND)
        places = [place for place, word in enumerate(words) if text in word.casefold()]
        return {"positions": places[:limit], "total": len(places)}

    def _strongest(self, body: RequestBody, stop: Stop) -> Answer:
        layer, key = self._key(body)
        count = body.number("count", 1, STRONGEST, 16)
        head_view = self._head_view(key)
        view = overview(head_view, layer.levels, TILE, self._builder.get(key), stop, 2)
        return {"cells": strongest(head_view, view, count, stop), "exact": view.exact}

    def _thumbs(self, body: RequestBody, stop: Stop) -> Answer:
        number, layer, batch = self._layer(body)
        size = body.number("size", SIZES[0], SIZES[-1], 32)
        if size not in SIZES:
            raise RequestError(f"size must be one of {', '.join(map(str, SIZES))}, got {size}")
        thumbs = []
        for head in range(layer.heads):
            stop.check()
            key = (number, batch, head)
            thumbs.append(self._thumb(key, size, self._builder.get(key) is not None))
        flags = bytes(0 if exact else 1 for exact, _ in thumbs)
        return b"".join([b"RGH1", struct.pack("<II", len(thumbs), size), flags, *(cells for _, cells in thumbs)])

    def _thumbnail(self, key: HeadKey, size: int, ready: bool) -> tuple[bool, bytes]:
        """One head; `ready` separates cached estimates from exact ones."""
        view = overview(self._head_view(key), self.view.layers[key[0]].levels, size, self._builder.get(key), Stop())
        return view.exact, b"".join(padded(part, size).tobytes() for part in (view.mean, view.max))

    def _heads(self, body: RequestBody, stop: Stop) -> Answer:
        number, layer, batch = self._layer(body)
        if (number, batch) not in self._statistics:
            table = statistics_of_all_rows(layer, batch, self.view.capture)
            if table is None:
                head_views = [self._head_view((number, batch, head)) for head in range(layer.heads)]
                table = statistics_of_some_rows(layer, batch, head_views, stop)
            self._statistics[number, batch] = table
        return self._statistics[number, batch]


def _part(body: RequestBody, count: int) -> tuple[int, int, int]:
    """From, to and the number of bins of a profile."""
    first = body.number("from", 0, count - 1, 0)
    past = body.number("to", first + 1, count, count)
    return first, past, body.number("bins", 1, min(BINS, past - first), min(BINS, past - first))


def _generic_head_view(matrix: AttentionMatrix) -> HeadView:
    return StoredHeadView(matrix) if isinstance(matrix._source, Stored) else GenericHeadView(matrix)


def row_weights(head_view: HeadView, q: int) -> Tensor:
    """All weights of a query, (key,); −1 where a key is hidden."""
    return head_view.lines([q])[0].double()


def column_weights(head_view: HeadView, k: int, stop: Stop) -> Tensor:
    """All weights that a key gets, (query,); −1 where it is hidden."""
    weights = torch.full((head_view.queries,), -1.0, dtype=torch.float64, device="cpu")
    for first in range(0, head_view.queries, COLUMN_ROWS):
        stop.check()
        rows = slice(first, min(head_view.queries, first + COLUMN_ROWS))
        seen = head_view.hull(rows, slice(k, k + 1))
        if seen.start < seen.stop:
            weights[rows] = head_view.weights(rows, slice(k, k + 1))[:, 0].double()
    return weights


def profile(
    weights: Tensor, visible: Tensor, first: int, past: int, bins: int, name: str, words: tuple[str, ...] | None
) -> dict[str, Any]:
    """What the page draws: bins of weights times `visible` (the keys that their rows see) and the largest weights.

    `name` is what the places are called, "k" or "q".
    """
    seen = weights >= 0
    shown = torch.where(seen, weights, 0.0)
    values, places = shown.topk(min(TOP, int(seen.sum())))
    total = float(shown.sum())
    share = shown / total if total > 0 else shown
    largest, mean = binned(torch.where(seen, weights * visible, -1.0)[first:past], bins)
    return {
        "max": largest,
        "mean": mean,
        "top": [
            {name: place, "weight": value, "token": None if words is None else words[place]}
            for value, place in zip(values.tolist(), places.tolist(), strict=True)
        ],
        "visible": int(seen.sum()),
        "entropy": float(-torch.xlogy(share, share).sum()),
        "sum": total,
    }


def binned(weights: Tensor, bins: int) -> tuple[list[float | None], list[float | None]]:
    """Largest and mean of what is not below 0 in each bin, None where there is none; bin b starts at b · n // bins."""
    number = ((torch.arange(len(weights), device="cpu") + 1) * bins - 1) // max(1, len(weights))
    seen = weights >= 0
    counts = torch.zeros(bins, dtype=torch.float64, device="cpu").index_add_(0, number, seen.double())
    shown = weights.clamp(min=0)
    sums = torch.zeros(bins, dtype=torch.float64, device="cpu").index_add_(0, number, shown)
    largest = torch.zeros(bins, dtype=torch.float64, device="cpu").scatter_reduce_(0, number, shown, "amax")
    mean = sums / counts.clamp(min=1)
    return tuple(  # type: ignore[return-value]
        [None if count == 0 else value for value, count in zip(part.tolist(), counts.tolist(), strict=True)]
        for part in (largest, mean)
    )


def statistics_of_all_rows(layer: LayerView, batch: int, capture: Capture | None) -> dict[str, Any] | None:
    """The table of heads, if it is soon done; None if it is not, or there is none."""
    if capture is None or layer.queries * layer.keys * layer.heads * layer.batch > STATISTICS_PAIRS:
        return None
    table = head_table(capture, layers=[layer.name], which=(*COLUMNS, *MORE), per_batch=True)
    rows = [row for row in table if row["batch"] == batch]
    columns = [name for name in (*COLUMNS, *MORE) if any(_number(row[name]) is not None for row in rows)]
    return {"columns": columns, "rows": [[_number(row[name]) for name in columns] for row in rows], "sampled": None}


def statistics_of_some_rows(layer: LayerView, batch: int, head_views: list[HeadView], stop: Stop) -> dict[str, Any]:
    """The same from a few rows of every head."""
    chosen = list(sampled(0, layer.queries, STATISTICS_ROWS))
    rows = []
    for head_view in head_views:
        stop.check()
        rows.append(_means(head_view, chosen, layer.query_start(batch)))
    return {"columns": list(COLUMNS), "rows": rows, "sampled": len(chosen) if len(chosen) < layer.queries else None}


def _means(head_view: HeadView, chosen: list[int], start: int) -> list[float | None]:
    weights = head_view.lines(chosen)
    seen = (weights >= 0).sum(-1)
    weights = weights.clamp_(min=0)
    place = torch.tensor(chosen, device="cpu", dtype=torch.int64) + start
    entropy = -torch.xlogy(weights, weights).sum(-1).double()
    away = (place.view(-1, 1) - torch.arange(head_view.keys, device="cpu")).abs_().to(weights.dtype)
    before = (place - 1).clamp(0, head_view.keys - 1).view(-1, 1)
    previous = torch.where((place >= 1) & (place <= head_view.keys), weights.gather(1, before)[:, 0], 0.0)
    columns = (
        entropy[seen > 0],
        (entropy / seen.clamp(min=2).log())[seen > 1],
        away.mul_(weights).sum(-1)[seen > 0],
        previous[seen > 0],
        weights[:, 0][seen > 0],
    )
    return [float(part.double().mean()) if len(part) else None for part in columns]


def _number(cell: Any) -> float | None:
    return float(cell) if isinstance(cell, int | float) and math.isfinite(cell) else None
