"""Save one head of the map as one HTML file without a server: its levels, tokens and, if there is room, weights."""

import base64
import gzip
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from regard import checks
from regard.inspection.capture import Capture
from regard.inspection.files import beside
from regard.inspection.matrix import AttentionMatrix
from regard.map.head_view import HeadView
from regard.map.jobs import Stop
from regard.map.levels import TILE, Levels, Place
from regard.map.pyramid import Build, MemoryPlanes, Planes
from regard.map.tile_cache import TileCache, usual
from regard.map.tiles import Tiles, overview, packed, strongest
from regard.map.viewer import PAGE, Viewer
from regard.map.views import CaptureView
from regard.pages.assets import assets, script
from regard.pages.document import from_template
from regard.progress import display, report

LIMIT = 32 << 20  # bytes of a file
ROOM = 1 << 18  # of them for the page itself
WEIGHTS = 1 << 24  # most weights that are considered
CELLS = 1 << 20  # weights that are read at once
STRONGEST = 20


class SavedMap(NamedTuple):
    """Where a view was written, its size in bytes, the side of its finest squares, and whether weights are inside."""

    path: Path
    size: int
    side: int
    exact: bool


def save(
    shown: "CaptureView | Capture | AttentionMatrix | Iterable[AttentionMatrix]",
    path: str | os.PathLike[str],
    *,
    layer: int = 0,
    head: int = 0,
    batch: int = 0,
    limit: int = LIMIT,
) -> SavedMap:
    """Write the map of one head as one HTML file of at most `limit` bytes.

    It holds the levels from the whole matrix down to the finest that has room, and the weights if they have room too.

    >>> regard.map.save(c, "view.html", layer=3, head=5)  # doctest: +SKIP
    """
    view, path = CaptureView.of(shown), Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"a map is saved as one HTML file; name it {path.with_suffix('.html').name}, got {path.name}")
    layer = _within("layer", layer, len(view.layers))
    head = _within("head", head, view.layers[layer].heads)
    batch = _within("batch", batch, view.layers[layer].batch)
    viewer = Viewer(view)
    try:
        with display():
            data, side = _data(viewer, (layer, batch, head), checks.whole("limit", limit, 1) - ROOM)
    finally:
        viewer.close()
    files = assets(PAGE)
    text = from_template(
        "saved_map.html",
        title=view.title,
        data=data,
        script=script(files, "saved.js"),
        style=files["map.css"].content.decode(),
    )
    with beside(path) as part:
        part.write_text(text, encoding="utf-8")
    return SavedMap(path, path.stat().st_size, side, data["weights"] is not None)


def _within(name: str, number: int, count: int) -> int:
    if not -count <= checks.whole(name, number) < count:
        raise ValueError(f"there is no {name} {number}: there are {count}, 0 to {count - 1}")
    return number % count


def _data(viewer: Viewer, key: tuple[int, int, int], room: int) -> tuple[dict[str, Any], int]:
    """What the page answers its requests from, and the side of its finest squares."""
    number, batch, head = key
    layer = viewer.view.layers[number]
    head_view, levels = viewer._head_view(key), layer.levels
    planes = _planes(head_view, levels, viewer.view)
    tokens = _tokens(viewer, number, batch)
    room -= sum(len(text) for text in tokens.values())
    level_texts = _levels(head_view, levels, planes, key, room)
    if not level_texts:
        raise ValueError(f"the coarsest level has no room in {room + ROOM:,} bytes; give a larger limit")
    room -= sum(map(len, level_texts))
    finest, weights, visible = len(level_texts) - 1, None, None
    if finest == levels.count - 1:
        weights, visible = _weights(head_view, room)
    side = levels.side(finest)
    info: Any = viewer.answer("info", {}, Stop())
    own = info["layers"][number]
    name = (layer.head_names or [f"head {at}" for at in range(layer.heads)])[head]
    named = f"{name} · text {batch}" if layer.batch > 1 else name
    own |= {"heads": 1, "batch": 1, "head_names": [named], "estimate_from": 0, "finest": finest}
    info |= {"layers": [own], "saved": True, "notes": [*info["notes"], _note(levels, side, weights is not None)]}
    cells = overview(head_view, levels, TILE, planes, Stop(), 2)
    data = {
        "info": info,
        "levels": level_texts,
        "weights": weights,
        "visible": visible,
        "tokens": tokens,
        "strongest": strongest(head_view, cells, STRONGEST, Stop()),
    }
    return data, side


def _note(levels: Levels, side: int, exact: bool) -> str:
    """Which levels are inside, for the reader of the page."""
    first = levels.side(0)
    if side > 1:
        return (
            f"A saved view, without a server. Inside are squares of {first:,} × {first:,} down to {side:,} × {side:,} "
            "weights; single weights are not."
        )
    inside = "with the exact weights" if exact else "as colors, in steps of an eighth of a doubling"
    levels_inside = "single weights" if first == 1 else f"squares of {first:,} × {first:,} down to single weights"
    return f"A saved view, without a server. Inside are {levels_inside}, {inside}."


def _planes(head_view: HeadView, levels: Levels, view: CaptureView) -> Planes | None:
    """All coarse levels, exact: from the tile cache, or by one pass."""
    if levels.exact_from == 0:
        return None
    cache, name = TileCache(view.folder or usual()), head_view.fingerprint()
    if name is not None and (stored := cache.get(name, levels)):
        return stored
    build = Build(head_view, levels, name)
    while build.done < build.total:
        build.step()
        report("the coarse levels", build.done, build.total, "blocks of rows")
    if name is not None:
        with suppress(OSError):  # a folder that cannot be written to
            cache.put(name, build.planes)
    return MemoryPlanes(build.planes)


def _levels(
    head_view: HeadView, levels: Levels, planes: Planes | None, key: tuple[int, int, int], room: int
) -> list[str]:
    """Levels from the coarsest on, as far as they have room; one that cannot have any is not computed."""
    texts: list[str] = []
    for z in range(levels.count):
        down, right = levels.tiles(z)
        if texts and len(texts[-1]) > 2 * room:  # a level has four times the cells of the one before
            break
        tiles: dict[Place, Any] = {}
        for y in range(down):
            row = [Place(z, y, x) for x in range(right)]
            tiles |= Tiles().take(key, head_view, levels, row, planes, Stop())
            report(f"level {z + 1} of {levels.count}", y + 1, down, "rows of tiles")
        text = _packed(packed(list(tiles), tiles))
        if len(text) > room:
            break
        texts.append(text)
        room -= len(text)
    return texts


def _weights(head_view: HeadView, room: int) -> tuple[str | None, str | None]:
    """All weights, −1 where hidden, and the number of keys that each query sees; None if there is no room for them."""
    if head_view.queries * head_view.keys > min(WEIGHTS, room):
        return None, None
    step = max(1, CELLS // head_view.keys)
    blocks = [slice(at, min(head_view.queries, at + step)) for at in range(0, head_view.queries, step)]
    parts = [head_view.weights(rows, slice(0, head_view.keys)).numpy().astype("<f4").tobytes() for rows in blocks]
    text = _packed(b"".join(parts))
    counts = _packed(head_view.seen(slice(0, head_view.queries)).numpy().astype("<u4").tobytes())
    return (text, counts) if len(text) + len(counts) <= room else (None, None)


def _tokens(viewer: Viewer, number: int, batch: int) -> dict[str, str]:
    """Labels and texts of both axes; those of the keys only if they are others."""
    layer, found = viewer.view.layers[number], {}
    for axis in ("query", "key"):
        words = layer.words(axis, batch)
        if words is not None:
            found[axis] = _packed(json.dumps({"labels": words.labels, "texts": words.texts}).encode())
    if "key" in found and found["key"] == found.get("query"):
        del found["key"]
    return found


def _packed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, 6, mtime=0)).decode("ascii")
