"""Viewer: answers the page's questions about an atlas, whoever carries them: HTTP or a notebook."""

import struct
import threading
from collections.abc import Callable
from typing import Any

from regard.map.ask import Ask, Refused
from regard.map.atlas import Atlas, Sheet
from regard.map.lane import Lane, Plain
from regard.map.levels import STEP, TILE, Place
from regard.map.stop import Stop
from regard.map.tiles import Tiles

Answer = dict[str, Any] | bytes
MOST_TILES, MOST_TOKENS = 64, 4096


class Viewer:
    """Every question by name: `answer(name, body, stop)`."""

    def __init__(self, atlas: Atlas) -> None:
        self.atlas = atlas
        self._lanes: dict[tuple[int, int, int], Lane] = {}
        self._lock = threading.Lock()
        self._tiles = Tiles()
        self._answers: dict[str, Callable[[Ask, Stop], Answer]] = {
            "info": self._info,
            "tiles": self._tile_list,
            "progress": self._progress,
            "cell": self._cell,
            "tokens": self._tokens,
        }

    @property
    def names(self) -> tuple[str, ...]:
        """What can be asked."""
        return tuple(self._answers)

    def answer(self, name: str, body: object, stop: Stop) -> Answer:
        """A dictionary that JSON can hold, or bytes."""
        if name not in self._answers:
            raise Refused(f"there is no question {name[:40]!r}", 404)
        return self._answers[name](Ask(body), stop)

    def _sheet(self, ask: Ask) -> Sheet:
        return self.atlas.sheets[ask.number("sheet", 0, len(self.atlas.sheets) - 1)]

    def _place(self, ask: Ask) -> tuple[Sheet, tuple[int, int, int], Lane]:
        number = ask.number("sheet", 0, len(self.atlas.sheets) - 1)
        sheet = self.atlas.sheets[number]
        key = (number, ask.number("batch", 0, sheet.batch - 1, 0), ask.number("head", 0, sheet.heads - 1))
        with self._lock:
            if key not in self._lanes:
                self._lanes[key] = Plain(sheet.head(*key[1:]))
            return sheet, key, self._lanes[key]

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
            }
            for sheet in self.atlas.sheets
        ]
        return {"title": self.atlas.title, "tile": TILE, "step": STEP, "sheets": sheets}

    def _tile_list(self, ask: Ask, stop: Stop) -> Answer:
        sheet, key, lane = self._place(ask)
        places = [Place(*triple) for triple in ask.triples("tiles", MOST_TILES)]
        for place in places:
            if not sheet.levels.holds(place):
                raise Refused(f"there is no tile {place.z}, {place.y}, {place.x}")
        found = self._tiles.take(key, lane, sheet.levels, places, stop)
        parts = [b"RGT1", struct.pack("<I", len(places))]
        for place in places:
            tile = found[place]
            parts.append(struct.pack("<BBHII", place.z, tile.flags, 0, place.y, place.x))
            parts += tile.planes
        return b"".join(parts)

    def _progress(self, ask: Ask, stop: Stop) -> Answer:
        self._place(ask)
        return {"state": "exact", "done": 1, "total": 1}

    def _cell(self, ask: Ask, stop: Stop) -> Answer:
        sheet, _, lane = self._place(ask)
        q, k = ask.number("q", 0, sheet.queries - 1), ask.number("k", 0, sheet.keys - 1)
        row = lane.weights(slice(q, q + 1), slice(0, sheet.keys))[0]
        own = float(row[k])
        words = {axis: sheet.tokens(axis) for axis in ("query", "key")}
        return {
            "weight": max(0.0, own),
            "rank": None if own < 0 else int((row > own).sum()) + 1,
            "visible": int((row >= 0).sum()),
            "hidden": own < 0,
            "query_token": None if words["query"] is None else words["query"][q],
            "key_token": None if words["key"] is None else words["key"][k],
        }

    def _tokens(self, ask: Ask, stop: Stop) -> Answer:
        sheet, axis = self._sheet(ask), ask.word("axis", ("query", "key"))
        count = sheet.queries if axis == "query" else sheet.keys
        first = ask.number("from", 0, count)
        last = ask.number("to", first, min(count, first + MOST_TOKENS))
        words = sheet.tokens(axis)
        return {"tokens": None if words is None else list(words[first:last])}
