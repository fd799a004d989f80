"""A Grid, Lines, Bars, Diagram, Image or Panel as text for a terminal (`render`) or as a matplotlib figure (`draw`)."""

import shutil
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from regard.inspection.number import uniform
from regard.inspection.records import Bars, Diagram, Grid, Image, Lines, Panel, Picture
from regard.inspection.text import visible
from regard.plot.bars import bar_chart, draw_bars
from regard.plot.chart import chart, draw_chart
from regard.plot.diagram import diagram_lines, draw_diagram, draw_image, image_lines
from regard.plot.figure import constrained, finish_texts, rows_of, size
from regard.plot.heatmap import equally_clear, heatmap
from regard.plot.heatmap_figure import draw_heatmap
from regard.plot.terminal import NARROWEST, Block, Line, beside, block_width, padded, paragraph, written
from regard.plot.theme import Depth, color_depth

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

_GAP = 3
_NARROW_CHART = 38
_MARGIN = 0.08  # inches around each picture


def render(picture: Picture, *, width: int | None = None, color: str = "auto") -> str:
    """The picture in lines of equal display width, at most `width` columns (default: those of the terminal).

    `color` is "truecolor", "256", "shade" (no color; shade characters beside numbers), "plain" (ASCII, numbers only)
    or "auto": what standard output shows, given NO_COLOR, COLORTERM and TERM.
    """
    if width is None:
        width = max(shutil.get_terminal_size().columns, NARROWEST)
    if width < NARROWEST:
        raise ValueError(f"a picture needs a width of at least {NARROWEST} columns, got {width}")
    depth = color_depth(color)
    return written(_block(picture, width, depth), depth)


def _block(picture: Picture, width: int, depth: Depth) -> Block:
    match picture:
        case Grid():
            return heatmap(_margins_in_note(picture), width, depth)
        case Lines():
            return chart(picture, width, depth)
        case Bars():
            return bar_chart(picture, width, depth)
        case Diagram():
            return diagram_lines(picture, width, depth)
        case Image():
            return image_lines(picture, width, depth)
        case Panel():
            return _panel(picture, width, depth)
    raise TypeError(f"render draws a Grid, Lines, Bars, Diagram, Image or Panel, got {type(picture).__name__}")


def _margins_in_note(grid: Grid) -> Grid:
    """The grid with the numbers of its margins in its note."""
    said = []
    for name, margin, labels in zip(
        ("rows", "columns"), grid.margins, (grid.row_labels, grid.column_labels), strict=True
    ):
        if len(margin):
            texts = uniform(margin)
            named = labels if len(labels) else [str(number) for number in range(len(margin))]
            numbers = (f"{label} {texts.text(value)}" for label, value in zip(named, margin, strict=True))
            said.append(f"{name}: {', '.join(numbers)}")
    return replace(grid, note="; ".join(each for each in (grid.note, *said) if each)) if said else grid


def _panel(panel: Panel, width: int, depth: Depth) -> Block:
    """As many pictures side by side as lose no detail, the rest below."""
    widest = max((_comfortable(picture, width, depth) for picture in panel.pictures), default=width)
    count = max(1, min((width + _GAP) // (widest + _GAP), len(panel.pictures)))
    each = (width - _GAP * (count - 1)) // count
    blocks = [_block(picture, each, depth) for picture in panel.pictures]
    column = max(map(block_width, blocks), default=0)
    lines: list[Line] = list(paragraph(panel.title, width, depth))
    for start in range(0, len(blocks), count):
        if lines:
            lines.append([])
        lines += beside([padded(block, column) for block in blocks[start : start + count]], _GAP)
    return lines


def _comfortable(picture: Picture, width: int, depth: Depth) -> int:
    """The least width at which the picture shows as much as in the whole window."""
    match picture:
        case Grid():
            return bisect_left(
                range(width), True, NARROWEST, key=lambda narrow: equally_clear(picture, narrow, width, depth)
            )
        case Lines() | Bars():
            return min(_NARROW_CHART, width)
    return width


def draw(picture: Picture, marks: Sequence[tuple[float, float]] = (), *, every: bool = False) -> "Figure":
    """The picture as a new figure: show it in a notebook or call its `savefig`.

    `marks` are places (row, column) of a Grid to highlight; `every` writes every label of it, however small.
    """
    if not isinstance(picture, Picture):
        raise TypeError(f"draw takes a Grid, Lines, Bars, Diagram, Image or Panel, got {type(picture).__name__}")
    figure = constrained(size(picture), _MARGIN, _MARGIN)
    if isinstance(picture, Grid):
        draw_heatmap(figure, picture, marks, every)
    else:
        _draw_on(figure, picture)
    finish_texts(figure)
    return figure


def _draw_on(figure: "Figure | SubFigure", picture: Picture) -> None:
    match picture:
        case Grid():
            draw_heatmap(figure, picture)
        case Lines():
            draw_chart(figure, picture)
        case Bars():
            draw_bars(figure, picture)
        case Diagram():
            draw_diagram(figure, picture)
        case Image():
            draw_image(figure, picture)
        case Panel():
            _draw_panel(figure, picture)


def _draw_panel(figure: "Figure | SubFigure", panel: Panel) -> None:
    if panel.title:
        figure.suptitle(visible(panel.title), fontsize="large")
    if not panel.pictures:
        return
    rows = rows_of(panel)
    columns = len(rows[0])
    parts = figure.subfigures(
        len(rows),
        columns,
        squeeze=False,
        width_ratios=[max(row[index][0] for row in rows if index < len(row)) for index in range(columns)],
        height_ratios=[max(height for _, height in row) for row in rows],
    )
    for part, picture in zip(parts.flat, panel.pictures, strict=False):
        _draw_on(part, picture)
