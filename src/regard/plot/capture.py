"""A capture in pictures: all heads of all layers as small maps, their statistics, and a page to browse them."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from regard.checks import whole
from regard.inspection.files import form_of, replace
from regard.inspection.records import Table
from regard.inspection.text import fit
from regard.plot import grids
from regard.plot.attention import print_attention
from regard.plot.figure import FIGURES, figure_bytes, need_matplotlib
from regard.plot.heatmap import Layout, cell_line, color_scale
from regard.plot.overview import SCALES, LayerMaps, Layers, Overview, draw_overview, matrices, overview, values_of
from regard.plot.page import capture_page
from regard.plot.pooling import check_how
from regard.plot.profiles import draw_maps, draw_profiles, profiles, statistic_maps
from regard.plot.terminal import Block, Line, Span, check_window, paragraph, prose, window, written
from regard.plot.theme import Depth, color_depth

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("overview", "profiles", "statistics")
FORMATS = (*FIGURES, "html")
_WIDEST, _NARROWEST = 16, 4  # columns of a map
_GAP = 1


class Captured(Layers, Protocol):
    """A capture whose heads have a table."""

    def heads(self) -> Table:
        """A row for each head: layer, head, and its statistics."""


def save_capture(
    capture: Captured,
    path: str | os.PathLike[str],
    *,
    kind: str = "overview",
    how: str = "max",
    title: str = "",
    scale: str = "shared",
    batch: int = 0,
    table: Table | None = None,
) -> None:
    """Write a picture in the format the suffix names: png, svg, pdf, or html, a page to browse layers and heads.

    `kind`: "overview", a small map for each head; "profiles", entropy and distance along the layers; "statistics", maps
    of layer × head. `scale`: colors that are "shared" by all maps, or "own" to each. `batch`: the row of the batch that
    maps show. `table`: what `capture.heads()` gave, if it was computed before.
    """
    form = form_of(path, FORMATS)
    _check(kind, scale)
    if form == "html":
        if kind != "overview":
            raise ValueError(f"kind={kind!r} is a figure, saved as {', '.join(FIGURES)}; got {os.fspath(path)!r}")
        content = capture_page(capture, how=how, title=title, batch=batch).encode()
    else:
        figure = figure_of(capture, kind=kind, how=how, title=title, scale=scale, batch=batch, table=table)
        content = figure_bytes(figure, form)
    replace(path, content)


def figure_of(
    capture: Captured,
    *,
    kind: str = "overview",
    how: str = "max",
    title: str = "",
    scale: str = "shared",
    batch: int = 0,
    table: Table | None = None,
) -> "Figure":
    """The matplotlib figure of one of the kinds."""
    _check(kind, scale)
    need_matplotlib()
    if kind == "overview":
        return draw_overview(overview(capture, how=how, title=title, batch=batch), scale)
    heads = capture.heads() if table is None else table
    return draw_profiles(profiles(heads), title) if kind == "profiles" else draw_maps(statistic_maps(heads, title))


def _check(kind: str, scale: str) -> None:
    if kind not in KINDS:
        raise ValueError(f"kind is one of {', '.join(KINDS)}; got {kind!r}")
    if scale not in SCALES:
        raise ValueError(f"scale is one of {', '.join(SCALES)}; got {scale!r}")


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
        index = _number(capture.layers, layer)
        number, name, matrix, reason = next(each for each in matrices(capture, batch) if each[0] == index)
        if matrix is None:
            raise ValueError(f"{name} cannot be shown: {reason}")
        print_attention(matrix, how=how, color=color, title=title or f"layer {number}: {name}")
        return
    width, height = window()
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
    check_window(width, height)
    check_how(how)
    depth = color_depth(color)
    shapes = {number: matrix.shape for number, _, matrix, _ in matrices(capture, batch) if matrix is not None}
    heads = max(len({head for number in shapes for head in capture.numbers(number)}), 1)
    longest = max((max(shape[-2:]) for shape in shapes.values()), default=1)
    count, around = len(capture.layers), 5
    while True:
        lines = None if height is None else max(height - around, 2)
        room = _fitted(count, heads, longest, (width, lines), depth)
        maps = overview(capture, how=how, title=title, batch=batch, side=room.side // _shape(depth).cell)
        block = _block(maps, room, width, depth)
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


def _block(maps: Overview, room: _Fit, width: int, depth: Depth) -> Block:
    values = [[_cells(values) for values in values_of(layer, maps.how)] for layer in maps.layers]
    rows = [row for layer in values for head in layer for row in head]
    limits = grids.limits(rows)
    margin = len(str(len(maps.layers) - 1)) + 1
    shape = _shape(depth)
    heads = "".join(f"{number:<{room.side + _GAP}}" for number in maps.heads[: room.heads])
    lines: list[Line] = [*paragraph(maps.title, width, depth), [Span(" " * margin + heads.rstrip())]]
    for number in room.layers:
        placed = dict(zip(maps.layers[number].heads, values[number], strict=True))
        lines += _layer(
            maps.layers[number], [placed.get(head) for head in maps.heads], room, margin, shape, limits, width, depth
        )
    lines += color_scale(rows, shape, limits, width, depth)
    return [*lines, *paragraph(_note(maps, room), width, depth)]


def _note(maps: Overview, room: _Fit) -> str:
    counts = (("layers", len(room.layers), len(maps.layers)), ("heads", room.heads, len(maps.heads)))
    parts = " and ".join(f"{shown} of {there} {what}" for what, shown, there in counts if shown < there)
    some = f" These are {parts}." if parts else ""
    return f"Rows: layers, columns: heads; {maps.note}; one scale for all.{some} c[3].show() shows a layer."


def _cells(values: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> list[list[float | None]]:
    return [[None if math.isnan(value) else value for value in row] for row in values.tolist()]


def _layer(
    layer: LayerMaps,
    maps: Sequence[grids.Cells | None],
    room: _Fit,
    margin: int,
    shape: Layout,
    limits: grids.Limits,
    width: int,
    depth: Depth,
) -> list[Line]:
    edges = [str(layer.number).rjust(margin - 1) + " ", " " * margin]
    if layer.pooled is None:
        reason = f"refused: {layer.reason}" if layer.reason else "empty"
        return [[Span(edges[0] + fit(prose(reason, depth), width - margin))], []]
    high, wide = layer.pooled.max.shape[1:]
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
