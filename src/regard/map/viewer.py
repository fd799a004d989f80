"""Answers the page's requests about a capture view, over HTTP or from a notebook: tiles, profiles, heads and tokens."""

import hashlib
import struct
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from regard.inspection.matrix import AttentionMatrix
from regard.inspection.matrix.source import Stored
from regard.map.difference_view import DifferenceView
from regard.map.head_view import GenericHeadView, HeadView
from regard.map.jobs import RequestBody, RequestError, Stop
from regard.map.levels import SIGNED_STEP, STEP, TILE, Levels, Place, padded
from regard.map.native_view import HeadCall, native_call, native_head_view
from regard.map.profiles import (
    column_weights,
    difference_cell,
    difference_profile,
    profile,
    row_weights,
    statistics_of_all_rows,
    statistics_of_some_rows,
)
from regard.map.pyramid import HeadKey, PyramidBuilder
from regard.map.stored_view import StoredHeadView
from regard.map.tile_cache import TileCache, usual
from regard.map.tiles import SIZES, Tiles, overview, packed, strongest
from regard.map.views import CaptureView, LayerView

PAGE = Path(__file__).with_name("page")  # its scripts and style
Answer = dict[str, Any] | bytes
TILES, TOKENS, BINS, FOUND, STRONGEST, LETTERS = 64, 4096, 4096, 1000, 64, 200  # most of each in one request
AXES = ("query", "key")
DIFFERENCES = 32  # kept at hand


class Viewer:
    """Every request by name: `answer(name, body, stop)`."""

    quick = frozenset({"info", "tokens", "progress"})  # answered without computing

    def __init__(self, view: CaptureView) -> None:
        self.view = view
        self._head_views: dict[HeadKey, HeadView] = {}
        self._difference = lru_cache(DIFFERENCES)(self._subtract)
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

    def head_and_levels(self, key: HeadKey) -> tuple[HeadView | DifferenceView, Levels]:
        """One head, or the difference of two, and the levels of its layer."""
        return self._shown(key), self.view.layers[key[0]].levels

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
        """A head, or with the member `less` the difference of two."""
        number, layer, batch = self._layer(body)
        head, less = body.number("head", 0, layer.heads - 1), body.place("less")
        if less is None:
            return layer, (number, batch, head)
        if less[0] >= len(self.view.layers):
            raise RequestError("less must name a layer that is there")
        other = self.view.layers[less[0]]
        if less[1] >= other.batch or less[2] >= other.heads:
            raise RequestError("less must name a batch row and a head that are there")
        if (other.queries, other.keys) != (layer.queries, layer.keys):
            raise RequestError(
                f"a difference is of two heads of one size, got {layer.queries} × {layer.keys} and "
                f"{other.queries} × {other.keys}"
            )
        return layer, (number, batch, head, *less)

    def _shown(self, key: HeadKey) -> HeadView | DifferenceView:
        if len(key) == 3:
            return self._head_view(key)
        return self._difference(key)

    def _subtract(self, key: HeadKey) -> DifferenceView:
        return DifferenceView(self._head_view(key[:3]), self._head_view(key[3:]))

    def _head_view(self, key: HeadKey) -> HeadView:
        with self._lock:
            if key not in self._head_views:
                layer = self.view.layers[key[0]]
                if key[0] not in self._calls:
                    self._calls[key[0]] = native_call(layer.matrix)
                matrix, call = layer.head(key[1], key[2]), self._calls[key[0]]
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
                "same_text": layer.same_text,
                "query_start": layer.query_start(),
                "head_names": None if layer.head_names is None else list(layer.head_names),
            }
            for layer in self.view.layers
        ]
        title = self.view.title
        name = hashlib.blake2b(repr((title, layers)).encode(), digest_size=8).hexdigest()
        return {
            "id": name,
            "title": title,
            "version": 1,
            "tile": TILE,
            "step": STEP,
            "signed_step": SIGNED_STEP,
            "layers": layers,
            "notes": list(self.view.notes),
        }

    def _tile_list(self, body: RequestBody, stop: Stop) -> Answer:
        layer, key = self._key(body)
        places = [Place(*triple) for triple in body.triples("tiles", TILES)]
        for place in places:
            if not layer.levels.holds(place):
                raise RequestError("there is no such tile at these levels")
        tiles = self._tiles.take(key, self._shown(key), layer.levels, places, self._builder.get(key), stop)
        return packed(places, tiles)

    def _progress(self, body: RequestBody, stop: Stop) -> Answer:
        layer, key = self._key(body)
        if layer.levels.exact_from == 0:
            return {"state": "exact", "done": 1, "total": 1}
        return self._builder.progress(key)

    def _cell(self, body: RequestBody, stop: Stop) -> Answer:
        layer, key = self._key(body)
        q, k = body.number("q", 0, layer.queries - 1), body.number("k", 0, layer.keys - 1)
        tokens = {"query_token": layer.word("query", q, key[1]), "key_token": layer.word("key", k, key[1])}
        view = self._shown(key)
        if isinstance(view, DifferenceView):
            return {**difference_cell(view, q, k), **tokens}
        weights = row_weights(view, q)
        own = float(weights[k])
        return {
            "weight": max(0.0, own),
            "rank": None if own < 0 else int((weights > own).sum()) + 1,
            "visible": int((weights >= 0).sum()),
            "hidden": own < 0,
            **tokens,
        }

    def _row(self, body: RequestBody, stop: Stop) -> Answer:
        layer, key = self._key(body)
        q = body.number("q", 0, layer.queries - 1)
        view, part, words = self._shown(key), _part(body, layer.keys), layer.words("key", key[1])
        if isinstance(view, DifferenceView):
            pair = [row_weights(own, q) for own in view.pair]
            return difference_profile(pair, (torch.maximum(*pair) >= 0).sum(), *part, "k", words)
        weights = row_weights(view, q)
        return profile(weights, (weights >= 0).sum(), *part, "k", words)

    def _column(self, body: RequestBody, stop: Stop) -> Answer:
        layer, key = self._key(body)
        k = body.number("k", 0, layer.keys - 1)
        view, part, words = self._shown(key), _part(body, layer.queries), layer.words("query", key[1])
        if isinstance(view, DifferenceView):
            pair = [column_weights(own, k, stop) for own in view.pair]
            return difference_profile(pair, view.seen(slice(0, view.queries)), *part, "q", words)
        weights = column_weights(view, k, stop)
        return profile(weights, view.seen(slice(0, view.queries)), *part, "q", words)

    def _tokens(self, body: RequestBody, stop: Stop) -> Answer:
        _, layer, batch = self._layer(body)
        axis = body.word("axis", AXES)
        count = layer.length(axis)
        first = body.number("from", 0, count)
        last = body.number("to", first, min(count, first + TOKENS))
        words = layer.words(axis, batch)
        if words is None:
            return {"tokens": None, "texts": None}
        return {"tokens": words.labels[first:last], "texts": words.texts[first:last]}

    def _find(self, body: RequestBody, stop: Stop) -> Answer:
        _, layer, batch = self._layer(body)
        words = layer.words(body.word("axis", AXES), batch)
        text, limit = body.text("text", LETTERS), body.number("limit", 1, FOUND, FOUND)
        found = [] if words is None else words.find(text)
        listed = {
            "positions": [each.first for each in found[:limit]],
            "counts": [each.tokens for each in found[:limit]],
        }
        return {**listed, "total": len(found)}

    def _strongest(self, body: RequestBody, stop: Stop) -> Answer:
        layer, key = self._key(body)
        count = body.number("count", 1, STRONGEST, 16)
        head_view = self._shown(key)
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
