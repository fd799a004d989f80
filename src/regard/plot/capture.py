"""A capture in pictures: all heads of all layers as small maps, their statistics, and a page to browse them."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from regard.checks import whole
from regard.inspection.files import form_of, replace
from regard.inspection.matrix.handle import AttentionMatrix
from regard.inspection.records import Panel, Table
from regard.inspection.text import fit
from regard.plot import grids
from regard.plot.attention import KINDS as MATRIX_KINDS
from regard.plot.attention import AttentionPicture, print_attention
from regard.plot.captions import capture_title, layer_hint
from regard.plot.figure import FIGURES, figure_bytes, need_matplotlib
from regard.plot.heatmap import Layout, cell_line, color_scale
from regard.plot.overview import (
    SCALES,
    LayerMaps,
    Layers,
    Overview,
    SelectedLayers,
    draw_overview,
    matrices,
    overview,
    values_of,
)
from regard.plot.page import capture_page
from regard.plot.pooling import check_how
from regard.plot.profiles import draw_maps, draw_profiles, profiles, statistic_maps
from regard.plot.render import render
from regard.plot.selection import TokenSelection
from regard.plot.terminal import Block, Line, Span, check_window, paragraph, prose, window, written
from regard.plot.theme import Depth, color_depth, colored

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


@dataclass(frozen=True)
class CapturePicture:
    """How a capture is shown: the kind of picture, what a cell of several weights shows, a title (None: what it is of),
    colors "shared" by all maps or each map's "own", the row of the batch that maps show, the colors, which tokens, and
    what `capture.heads()` gave, if it was computed before."""

    kind: str = "overview"
    how: str = "max"
    title: str | None = None
    scale: str = "shared"
    batch: int = 0
    colormap: str | None = None
    tokens: slice | None = None
    hide_special: bool = False
    renormalize: bool = False
    table: Table | None = None

    def __post_init__(self) -> None:
        if self.kind in MATRIX_KINDS:
            raise ValueError(
                f"{self.kind} shows a layer or a head, not a whole capture; choose one, as in "
                f"c[0, 0].save(..., kind={self.kind!r}) (--layer 0 --head 0)"
            )
        if self.kind not in KINDS:
            raise ValueError(f"kind is one of {', '.join(KINDS)}; got {self.kind!r}")
        if self.scale not in SCALES:
            raise ValueError(f"scale is one of {', '.join(SCALES)}; got {self.scale!r}")
        if self.kind != "overview" and self.selection != TokenSelection():
            raise ValueError(
                f"{self.kind} are of all tokens; leave tokens and hide_special out, or take kind='overview'"
            )

    @property
    def selection(self) -> TokenSelection:
        """Which tokens are shown."""
        return TokenSelection(self.tokens, self.hide_special, self.renormalize)

    def layers_of(self, capture: Layers) -> SelectedLayers:
        """The layers with the chosen tokens of the chosen row of the batch."""
        return SelectedLayers(capture, self.batch, self.selection)

    def title_of(self, layers: SelectedLayers, first: AttentionMatrix | None) -> str:
        """The title of the picture."""
        return capture_title(layers, layers.shown, first) if self.title is None else self.title


def save_capture(capture: Captured, path: str | os.PathLike[str], **options: Any) -> None:
    """Write a picture in the format the suffix names: png, svg, pdf, or html, a page to browse layers and heads.

    Options are the fields of `CapturePicture`. `kind`: "overview", a small map for each head; "profiles", entropy and
    distance along the layers; "statistics", maps of layer × head.
    """
    view = CapturePicture(**options)
    if (suffix := os.fspath(path).lower().rsplit(".", 1)[-1]) in ("npz", "csv"):
        raise ValueError(
            f"{suffix} holds the weights of a layer or a head; choose one, as in c[0].save({os.fspath(path)!r}) "
            "(--layer 0), or save everything as safetensors"
        )
    form = form_of(path, FORMATS)
    if form == "html":
        if view.kind != "overview":
            raise ValueError(f"kind={view.kind!r} is a figure, saved as {', '.join(FIGURES)}; got {os.fspath(path)!r}")
        with colored(view.colormap):
            layers = view.layers_of(capture)
            content = capture_page(layers, how=view.how, title=view.title or "").encode()
    else:
        content = figure_bytes(figure_of(capture, view), form)
    replace(path, content)


def figure_of(capture: Captured, view: CapturePicture) -> "Figure":
    """The matplotlib figure of one of the kinds."""
    need_matplotlib()
    layers = view.layers_of(capture)
    title = view.title_of(layers, _first(layers))
    with colored(view.colormap):
        if view.kind == "overview":
            return draw_overview(overview(layers, how=view.how, title=title), view.scale)
        heads = capture.heads() if view.table is None else view.table
        return (
            draw_profiles(profiles(heads), title)
            if view.kind == "profiles"
            else draw_maps(statistic_maps(heads, title))
        )


def _first(layers: SelectedLayers) -> AttentionMatrix | None:
    return layers[layers.shown[0]] if layers.shown else None


def print_capture(
    capture: Captured, *, layer: int | str | None = None, color: str = "auto", command: bool = False, **options: Any
) -> None:
    """Print all heads of all layers at the size of the terminal, or those of one layer, larger; options as in
    `save_capture`. `command`: hints are of the command line."""
    if layer is not None:
        index = _number(capture.layers, layer)
        name = capture.layers[index]
        if name in capture.refused:
            raise ValueError(f"layer {index}, {name} cannot be shown: {capture.refused[name]}")
        batch = options.pop("batch", 0)
        matrix = SelectedLayers(capture, batch, TokenSelection())[index]
        if not matrix.origin.model:
            options.setdefault("title", f"layer {index}: {name}")
        print_attention(matrix, AttentionPicture.of(**options), color=color, command=command)
        return
    view = CapturePicture(**options)
    width, height = window()
    with colored(view.colormap):
        if view.kind == "overview":
            text = capture_text(capture, view, width=width, height=height, color=color, command=command)
        else:
            heads = capture.heads() if view.table is None else view.table
            layers = view.layers_of(capture)
            title = view.title_of(layers, _first(layers))
            panel = Panel([each.lines() for each in profiles(heads)], title)
            text = render(panel if view.kind == "profiles" else statistic_maps(heads, title), width=width, color=color)
    print(text)


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
    view: CapturePicture = CapturePicture(),
    *,
    width: int,
    height: int | None = None,
    color: str = "auto",
    command: bool = False,
) -> str:
    """Small maps, a row for each layer, in at most `width` columns and `height` lines; what has no room is named."""
    check_window(width, height)
    check_how(view.how)
    depth = color_depth(color)
    layers = view.layers_of(capture)
    found = {number: matrix for number, _, matrix, _ in matrices(layers) if matrix is not None}
    heads = max(len({head for number in found for head in layers.numbers(number)}), 1)
    longest = max((max(matrix.shape[-2:]) for matrix in found.values()), default=1)
    title = view.title_of(layers, next(iter(found.values()), None))
    count, around = len(layers.layers), 5
    while True:
        lines = None if height is None else max(height - around, 2)
        room = _fitted(count, heads, longest, (width, lines), depth)
        maps = overview(layers, how=view.how, title=title, side=room.side // _shape(depth).cell)
        block = _block(maps, room, width, depth, layer_hint(layers, layers.shown, command))
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


def _block(maps: Overview, room: _Fit, width: int, depth: Depth, hint: str) -> Block:
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
    return [*lines, *paragraph(f"{_note(maps, room)} {hint}", width, depth)]


def _note(maps: Overview, room: _Fit) -> str:
    counts = (("layers", len(room.layers), len(maps.layers)), ("heads", room.heads, len(maps.heads)))
    parts = " and ".join(f"{shown} of {there} {what}" for what, shown, there in counts if shown < there)
    some = f" These are {parts}." if parts else ""
    return f"Rows: layers, columns: heads; {maps.note}; one scale for all.{some}"


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
