"""A capture in a terminal: a line of small maps for each layer, as many as the window holds."""

import math
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.checks import whole
from regard.inspection.records import Grid
from regard.inspection.text import fit
from regard.plot import grids
from regard.plot.attention import HOWS
from regard.plot.color import Depth
from regard.plot.color import depth as chosen_depth
from regard.plot.grids import Cells, Limits
from regard.plot.heatmap import cell_line, color_scale
from regard.plot.layout import Layout
from regard.plot.overview import LayerMaps, Layers, Overview, matrices, overview, values_of
from regard.plot.span import Block, Line, Span, paragraph, prose, written
from regard.plot.terminal import NARROWEST
from regard.plot.window import SHORTEST, print_attention

_WIDEST, _NARROWEST = 16, 4  # columns of a map
_GAP = 1


def print_capture(
    capture: Layers,
    *,
    layer: int | str | None = None,
    how: str = "max",
    color: str = "auto",
    title: str = "",
    batch: int = 0,
) -> None:
    """Print all heads of all layers at the size of the terminal, or those of one layer, larger."""
    if layer is not None:
        wanted = _number(capture.layers, layer)
        number, name, matrix, reason = next(each for each in matrices(capture, batch) if each[0] == wanted)
        if matrix is None:
            raise ValueError(f"{name} cannot be shown: {reason}")
        print_attention(matrix, how=how, color=color, title=title or f"layer {number}: {name}")
        return
    window = shutil.get_terminal_size()
    height = max(window.lines - 1, SHORTEST) if sys.stdout.isatty() else None  # the prompt comes below
    width = max(window.columns, NARROWEST)
    print(capture_text(capture, width=width, height=height, how=how, color=color, title=title, batch=batch))


def _number(names: Sequence[str], layer: int | str) -> int:
    if isinstance(layer, str):
        if layer not in names:
            raise ValueError(f"there is no layer {layer!r}; there are {', '.join(names)}")
        return names.index(layer)
    if not -len(names) <= whole("layer", layer) < len(names):
        raise ValueError(f"there is no layer {layer}: there are {len(names)}, 0 to {len(names) - 1}")
    return layer % len(names)


@dataclass(frozen=True)
class _Fit:
    """Columns of a map, and which heads and layers are shown."""

    side: int
    heads: int
    layers: Sequence[int]


def capture_text(
    capture: Layers,
    *,
    width: int,
    height: int | None = None,
    how: str = "max",
    color: str = "auto",
    title: str = "",
    batch: int = 0,
) -> str:
    """Small maps, a row for each layer, in at most `width` columns and `height` lines; what has no room is named."""
    if width < NARROWEST or (height is not None and height < SHORTEST):
        raise ValueError(
            f"a picture needs {NARROWEST} columns and {SHORTEST} lines at least, got {width} columns and {height} lines"
        )
    if how not in HOWS:
        raise ValueError(f"how says what a cell of several weights shows, max or mean; got {how!r}")
    depth = chosen_depth(color)
    shapes = {number: matrix.shape for number, _, matrix, _ in matrices(capture, batch) if matrix is not None}
    heads = max(len({head for number in shapes for head in capture.numbers(number)}), 1)
    longest = max((max(shape[-2:]) for shape in shapes.values()), default=1)
    count, around = len(capture.layers), 5
    while True:
        lines = None if height is None else max(height - around, 2)
        room = _fitted(count, heads, longest, (width, lines), depth)
        found = overview(capture, how=how, title=title, batch=batch, side=room.side // _shape(depth).cell)
        block = _block(found, room, width, depth)
        if height is None or len(block) <= height or lines == 2:
            return written(block if height is None else block[:height], depth)
        around += len(block) - height


def _fitted(layers: int, heads: int, longest: int, window: tuple[int, int | None], depth: Depth) -> _Fit:
    """The most layers and heads, then the largest maps."""
    width, lines = window
    across = width - len(str(layers)) - 1
    shown = min(heads, max((across + _GAP) // (_NARROWEST + _GAP), 1))
    widest = min((across + _GAP) // shown - _GAP, _WIDEST, max(longest, _NARROWEST))
    if lines is None:
        return _Fit(widest, shown, range(layers))
    for side in range(widest, _NARROWEST - 1, -1):
        if layers * (_high(side, depth) + 1) <= lines:
            return _Fit(side, shown, range(layers))
    some = max(lines // (_high(_NARROWEST, depth) + 1), 1)
    even = sorted({round(n * (layers - 1) / max(some - 1, 1)) for n in range(some)})
    return _Fit(_NARROWEST, shown, even)


def _shape(depth: Depth) -> Layout:
    """Two cells in a letter where there is color, else one, as many of them as there is room for."""
    return Layout(0, 1, stacked=2 if depth.colored else 1)


def _high(side: int, depth: Depth) -> int:
    return math.ceil(side / _shape(depth).stacked)


def _block(found: Overview, room: _Fit, width: int, depth: Depth) -> Block:
    maps = [[_cells(values) for values in values_of(layer, found.how)] for layer in found.layers]
    whole = [row for every in maps for values in every for row in values]
    limits = grids.limits(Grid([]), whole)
    margin = len(str(len(found.layers) - 1)) + 1
    shape = _shape(depth)
    heads = "".join(f"{number:<{room.side + _GAP}}" for number in found.heads[: room.heads])
    lines: list[Line] = [*paragraph(found.title, width, depth), [Span(" " * margin + heads.rstrip())]]
    for number in room.layers:
        placed = dict(zip(found.layers[number].heads, maps[number], strict=True))
        lines += _layer(
            found.layers[number], [placed.get(head) for head in found.heads], room, margin, shape, limits, width, depth
        )
    lines += color_scale(whole, shape, limits, width, depth)
    return [*lines, *paragraph(_note(found, room), width, depth)]


def _note(found: Overview, room: _Fit) -> str:
    counts = (("layers", len(room.layers), len(found.layers)), ("heads", room.heads, len(found.heads)))
    told = " and ".join(f"{shown} of {there} {what}" for what, shown, there in counts if shown < there)
    some = f" These are {told}." if told else ""
    return f"Rows: layers, columns: heads; {found.note}; one scale for all.{some} c[3].show() shows a layer."


def _cells(values: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> list[list[float | None]]:
    return [[None if math.isnan(value) else value for value in row] for row in values.tolist()]


def _layer(
    layer: LayerMaps,
    maps: Sequence[Cells | None],
    room: _Fit,
    margin: int,
    shape: Layout,
    limits: Limits,
    width: int,
    depth: Depth,
) -> list[Line]:
    edges = [str(layer.number).rjust(margin - 1) + " ", " " * margin]
    if layer.found is None:
        reason = f"refused: {layer.reason}" if layer.reason else "empty"
        return [[Span(edges[0] + fit(prose(reason, depth), width - margin))], []]
    high, wide = layer.found.max.shape[1:]
    blank = [[None] * wide] * high
    after = Span(" " * (room.side - wide * shape.cell + _GAP))
    lines: list[Line] = []
    for start in range(0, high, shape.stacked):
        line = [Span(edges[start > 0])]
        for values in maps[: room.heads]:
            values = values or blank
            line += [*cell_line(values[start : start + shape.stacked], shape, limits, depth), after]
        lines.append(line[:-1])
    return [*lines, []]
