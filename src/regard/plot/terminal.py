"""Pictures as text for a terminal."""

import shutil
from bisect import bisect_left

from regard.inspection.records import Bars, Grid, Lines, Panel, Picture
from regard.plot.bars import bar_chart
from regard.plot.chart import chart
from regard.plot.color import Depth
from regard.plot.color import depth as chosen_depth
from regard.plot.heatmap import heatmap
from regard.plot.layout import equally_clear
from regard.plot.span import Block, Line, beside, block_width, padded, paragraph, written

NARROWEST = 20
_GAP = 3
_NARROW_CHART = 38


def render(picture: Picture, *, width: int | None = None, color: str = "auto") -> str:
    """The picture in lines of equal display width, at most `width` columns (default: those of the terminal).

    `color` is "truecolor", "256", "shade" (no color; shade characters beside numbers), "plain" (ASCII, numbers only)
    or "auto": what standard output shows, given NO_COLOR, COLORTERM and TERM.
    """
    if width is None:
        width = max(shutil.get_terminal_size().columns, NARROWEST)
    if width < NARROWEST:
        raise ValueError(f"a picture needs a width of at least {NARROWEST} columns, got {width}")
    depth = chosen_depth(color)
    return written(_block(picture, width, depth), depth)


def _block(picture: Picture, width: int, depth: Depth) -> Block:
    match picture:
        case Grid():
            return heatmap(picture, width, depth)
        case Lines():
            return chart(picture, width, depth)
        case Bars():
            return bar_chart(picture, width, depth)
        case Panel():
            return _panel(picture, width, depth)
    raise TypeError(f"render draws a Grid, Lines, Bars or Panel, got {type(picture).__name__}")


def _panel(panel: Panel, width: int, depth: Depth) -> Block:
    """As many pictures side by side as keep what they show, the rest below."""
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
    """The least width at which the picture shows as much as it would in the whole window."""
    match picture:
        case Grid():
            return bisect_left(
                range(width), True, NARROWEST, key=lambda narrow: equally_clear(picture, narrow, width, depth)
            )
        case Lines() | Bars():
            return min(_NARROW_CHART, width)
    return width
