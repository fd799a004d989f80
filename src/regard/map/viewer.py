"""Viewer: answers the page's questions about an atlas, whoever carries them: HTTP or a notebook."""

import hashlib
import struct
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from regard.map import overview, profile, statistics
from regard.map.ask import Ask, Refused
from regard.map.atlas import Atlas, Sheet
from regard.map.builder import Builder, Key
from regard.map.cut import Call
from regard.map.lane import Lane, Plain
from regard.map.levels import STEP, TILE, Levels, Place
from regard.map.native import native_call, native_lane
from regard.map.shelf import Shelf, usual
from regard.map.stop import Stop
from regard.map.tiles import Tiles

Answer = dict[str, Any] | bytes
TILES, TOKENS, BINS, FOUND, STRONGEST, LETTERS = 64, 4096, 4096, 1000, 64, 200  # most of each in one question
AXES = ("query", "key")


class Viewer:
    """Every question by name: `answer(name, body, stop)`."""

    quick = frozenset({"info", "tokens", "progress"})  # answered without computing

    def __init__(self, atlas: Atlas) -> None:
        self.atlas = atlas
        self._lanes: dict[Key, Lane] = {}
        self._calls: dict[int, Call | None] = {}
        self._lock = threading.Lock()
        self._running = 0
        self._tiles = Tiles()
        shelf = Shelf(atlas.folder or usual())
        self._builder = Builder(self.found, shelf, lambda: self._running > 0)
        self._thumb = lru_cache(1024)(self._thumbnail)
        self._statistics: dict[tuple[int, int], dict[str, Any]] = {}
        self._answers: dict[str, Callable[[Ask, Stop], Answer]] = {
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
        """What can be asked."""
        return tuple(self._answers)

    def answer(self, name: str, body: object, stop: Stop) -> Answer:
        """A dictionary that JSON can hold, or bytes."""
        if name not in self._answers:
            raise Refused(f"there is no question {name[:40]!r}", 404)
        if name in self.quick:
            return self._answers[name](Ask(body), stop)
        with self._lock:
            self._running += 1
        try:
            return self._answers[name](Ask(body), stop)
        finally:
            with self._lock:
                self._running -= 1

    def found(self, key: Key) -> tuple[Lane, Levels]:
        """One head and the levels of its sheet."""
        return self._lane(key), self.atlas.sheets[key[0]].levels

    def forget(self) -> None:
        """Let go of the tiles that are kept."""
        self._tiles.forget()

    def close(self) -> None:
        """End what goes on in the background."""
        self._builder.close()

    def _sheet(self, ask: Ask) -> tuple[int, Sheet]:
        number = ask.number("sheet", 0, len(self.atlas.sheets) - 1)
        return number, self.atlas.sheets[number]

    def _key(self, ask: Ask) -> tuple[Sheet, Key]:
        number, sheet = self._sheet(ask)
        return sheet, (number, ask.number("batch", 0, sheet.batch - 1, 0), ask.number("head", 0, sheet.heads - 1))

    def _lane(self, key: Key) -> Lane:
        with self._lock:
            if key not in self._lanes:
                sheet = self.atlas.sheets[key[0]]
                if key[0] not in self._calls:
                    self._calls[key[0]] = native_call(sheet.matrix)
                matrix, call = sheet.head(*key[1:]), self._calls[key[0]]
                self._lanes[key] = (None if call is None else native_lane(call, matrix)) or Plain(matrix)
            return self._lanes[key]

    def _info(self, ask: Ask, stop: Stop) -> Answer:
        sheets = [
            {
                "name": sheet.name,
                "queries": sheet.queries,
                "keys": sheet.keys,
                "heads": sheet.heads,
                "batch": sheet.batch,
                "levels": sheet.levels.count,
                "estimate_from": sheet.levels.exact_from,
                "hi": sheet.levels.top,
                "causal": sheet.causal,
                "query_tokens": sheet.tokens("query") is not None,
                "key_tokens": sheet.tokens("key") is not None,
                "query_start": sheet.query_start(),
                "head_names": None if sheet.head_names is None else list(sheet.head_names),
            }
            for sheet in self.atlas.sheets
        ]
        title = self.atlas.title
        name = hashlib.blake2b(repr((title, sheets)).encode(), digest_size=8).hexdigest()
        return {"id": name, "title": title, "version": 1, "tile": TILE, "step": STEP, "sheets": sheets}

    def _tile_list(self, ask: Ask, stop: Stop) -> Answer:
        sheet, key = self._key(ask)
        places = [Place(*triple) for triple in ask.triples("tiles", TILES)]
        for place in places:
            if not sheet.levels.holds(place):
                raise Refused("there is no such tile at these levels")
        found = self._tiles.take(key, self._lane(key), sheet.levels, places, self._builder.get(key), stop)
        parts = [b"RGT1", struct.pack("<I", len(places))]
        for place in places:
            tile = found[place]
            parts.append(struct.pack("<BBHII", place.z, tile.flags, 0, place.y, place.x))
            parts += tile.planes
        return b"".join(parts)

    def _progress(self, ask: Ask, stop: Stop) -> Answer:
        sheet, key = self._key(ask)
        if sheet.levels.exact_from == 0:
            return {"state": "exact", "done": 1, "total": 1}
        return self._builder.progress(key)

    def _cell(self, ask: Ask, stop: Stop) -> Answer:
        sheet, key = self._key(ask)
        q, k = ask.number("q", 0, sheet.queries - 1), ask.number("k", 0, sheet.keys - 1)
        row = profile.row(self._lane(key), q)
        own = float(row[k])
        return {
            "weight": max(0.0, own),
            "rank": None if own < 0 else int((row > own).sum()) + 1,
            "visible": int((row >= 0).sum()),
            "hidden": own < 0,
            "query_token": sheet.word("query", q, key[1]),
            "key_token": sheet.word("key", k, key[1]),
        }

    def _row(self, ask: Ask, stop: Stop) -> Answer:
        sheet, key = self._key(ask)
        q = ask.number("q", 0, sheet.queries - 1)
        weights = profile.row(self._lane(key), q)
        seen = (weights >= 0).sum()
        return profile.told(weights, seen, *_part(ask, sheet.keys), "k", sheet.tokens("key", key[1]))

    def _column(self, ask: Ask, stop: Stop) -> Answer:
        sheet, key = self._key(ask)
        k = ask.number("k", 0, sheet.keys - 1)
        lane, part = self._lane(key), _part(ask, sheet.queries)
        weights = profile.column(lane, k, stop)
        return profile.told(weights, lane.seen(slice(0, lane.queries)), *part, "q", sheet.tokens("query", key[1]))

    def _tokens(self, ask: Ask, stop: Stop) -> Answer:
        _, sheet = self._sheet(ask)
        axis = ask.word("axis", AXES)
        count = sheet.length(axis)
        first = ask.number("from", 0, count)
        last = ask.number("to", first, min(count, first + TOKENS))
        words = sheet.tokens(axis, ask.number("batch", 0, sheet.batch - 1, 0))
        return {"tokens": None if words is None else list(words[first:last])}

    def _find(self, ask: Ask, stop: Stop) -> Answer:
        _, sheet = self._sheet(ask)
        words = sheet.tokens(ask.word("axis", AXES), ask.number("batch", 0, sheet.batch - 1, 0)) or ()
        text, limit = ask.text("text", LETTERS).casefold(), ask.number("limit", 1, FOUND, FOUND)
        places = [place for place, word in enumerate(words) if text in word.casefold()]
        return {"positions": places[:limit], "total": len(places)}

    def _strongest(self, ask: Ask, stop: Stop) -> Answer:
        sheet, key = self._key(ask)
        count = ask.number("count", 1, STRONGEST, 16)
        lane = self._lane(key)
        view = overview.seen(lane, sheet.levels, TILE, self._builder.get(key), stop, 2)
        return {"cells": overview.strongest(lane, view, count, stop), "exact": view.exact}

    def _thumbs(self, ask: Ask, stop: Stop) -> Answer:
        number, sheet = self._sheet(ask)
        batch = ask.number("batch", 0, sheet.batch - 1, 0)
        size = ask.number("size", overview.SIZES[0], overview.SIZES[-1], 32)
        if size not in overview.SIZES:
            raise Refused(f"size must be one of {', '.join(map(str, overview.SIZES))}, got {size}")
        found = []
        for head in range(sheet.heads):
            stop.check()
            key = (number, batch, head)
            found.append(self._thumb(key, size, self._builder.get(key) is not None))
        flags = bytes(0 if exact else 1 for exact, _ in found)
        return b"".join([b"RGH1", struct.pack("<II", len(found), size), flags, *(cells for _, cells in found)])

    def _thumbnail(self, key: Key, size: int, ready: bool) -> tuple[bool, bytes]:
        """One head; `ready` only tells what is kept from what must be looked at again."""
        view = overview.seen(self._lane(key), self.atlas.sheets[key[0]].levels, size, self._builder.get(key), Stop())
        return view.exact, b"".join(overview.square(part, size) for part in (view.mean, view.max))

    def _heads(self, ask: Ask, stop: Stop) -> Answer:
        number, sheet = self._sheet(ask)
        batch = ask.number("batch", 0, sheet.batch - 1, 0)
        if (number, batch) not in self._statistics:
            found = statistics.all_rows(sheet, batch, self.atlas.capture)
            if found is None:
                lanes = [self._lane((number, batch, head)) for head in range(sheet.heads)]
                found = statistics.some_rows(sheet, batch, lanes, stop)
            self._statistics[number, batch] = found
        return self._statistics[number, batch]


def _part(ask: Ask, count: int) -> tuple[int, int, int]:
    """From, to and the number of bins of a profile."""
    first = ask.number("from", 0, count - 1, 0)
    past = ask.number("to", first + 1, count, count)
    return first, past, ask.number("bins", 1, min(BINS, past - first), min(BINS, past - first))
