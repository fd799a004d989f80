"""How large a figure should be, in inches, so that its numbers and labels can be read."""

import math
from collections.abc import Sequence

from regard.inspection.records import Bars, Grid, Lines, Panel, Picture
from regard.inspection.text import display_width, visible, wrap
from regard.plot import grids

WIDEST = 14.0
LONGEST_LABEL = 24
LETTER = 0.08
NUMBERED_BARS = 16  # more, and their numbers would touch
_PER_ROW = 4  # pictures of a panel
_CELL = 0.5  # of a number
_PATTERN_CELL = 0.22  # of a label of two digits
_TITLE_LETTER = 0.1
_TITLE_LINE, _NOTE_LINE = 0.2, 0.16
_LONGEST_SIDE = 7.0
_SCALE = 0.7  # beside the cells
_AROUND_CHART = (0.9, 0.8)  # axis labels, tick labels and title
_CHART, _CHART_OF_PANEL = 6.0, 4.4
_CHART_ASPECT = 0.65
_BARS = 3.1  # height


def cell_size(grid: Grid) -> float:
    """The side of a cell: enough for a number, or for a label where cells have no number, unless there are many."""
    cell = _PATTERN_CELL if grids.is_pattern(grid.values) else _CELL
    return min(cell, _LONGEST_SIDE / max(*grids.shape(grid.values), 1))


def sides(grid: Grid) -> tuple[float, float]:
    """Width and height of all cells."""
    rows, columns = grids.shape(grid.values)
    return max(columns * cell_size(grid), 1.0), max(rows * cell_size(grid), 1.0)


def labels_fit_across(grid: Grid) -> bool:
    """Whether the column labels can stand side by side without being turned."""
    return _longest(grid.column_labels) <= cell_size(grid)


def _longest(labels: Sequence[str]) -> float:
    return LETTER * min(max((display_width(visible(label)) for label in labels), default=2), LONGEST_LABEL)


def title_lines(picture: Grid | Lines | Bars) -> list[str]:
    """The title in lines that do not reach into the neighbors."""
    return _wrapped(picture.title, _width(picture, part=True) - 0.3, _TITLE_LETTER)


def note_lines(grid: Grid) -> list[str]:
    """The note in lines as wide as the cells and their labels, and what hatching means unless the note says it."""
    hidden = "hatched" not in grid.note and any(value is None for row in grid.values for value in row)
    return [*_wrapped(grid.note, _width(grid), LETTER), *["hatched: hidden"] * hidden]


def _wrapped(text: str, inches: float, letter: float) -> list[str]:
    return wrap(visible(text), int(inches / letter))


def _width(picture: Grid | Lines | Bars, *, part: bool = False) -> float:
    match picture:
        case Grid():
            beside = 0.4 if grids.is_pattern(picture.values) else 0.4 + _SCALE
            return sides(picture)[0] + _longest(picture.row_labels) + beside
        case Bars():
            count = len(picture.labels) * max(len(picture.series), 1)
            width = (0.3 if count <= NUMBERED_BARS else 0.16) * count + 1.5
            return min(max(width, _CHART_OF_PANEL), 12.0)
    return _CHART_OF_PANEL if part else _CHART


def size(picture: Picture, *, part: bool = False) -> tuple[float, float]:
    """Width and height at which the picture is comfortable, alone or as part of a panel."""
    if isinstance(picture, Panel):
        rows = rows_of(picture)
        height = sum(max(height for _, height in row) for row in rows)
        return max(sum(width for width, _ in row) for row in rows), height + (0.4 if picture.title else 0.0)
    width, more = _width(picture, part=part), _TITLE_LINE * max(len(title_lines(picture)) - 1, 0)
    match picture:
        case Grid():
            above = 0.2 if labels_fit_across(picture) else _longest(picture.column_labels)
            return width, sides(picture)[1] + above + 0.45 + more + _NOTE_LINE * len(note_lines(picture))
        case Bars():
            return width, _BARS + more
    return width, (width - _AROUND_CHART[0]) * _CHART_ASPECT + _AROUND_CHART[1] + more


def rows_of(panel: Panel) -> list[list[tuple[float, float]]]:
    """The sizes of a panel's pictures in rows of similar length, none wider than `WIDEST` unless one picture is."""
    sizes = [size(part, part=True) for part in panel.pictures] or [(4.0, 2.0)]
    for count in range(min(len(sizes), _PER_ROW), 0, -1):
        even = math.ceil(len(sizes) / math.ceil(len(sizes) / count))
        rows = [sizes[start : start + even] for start in range(0, len(sizes), even)]
        if all(sum(width for width, _ in row) <= WIDEST for row in rows):
            break
    return rows


def box_aspect(picture: Lines | Bars) -> float:
    """Height over width inside the axes of a chart, so that a taller neighbor does not stretch it."""
    if isinstance(picture, Bars):
        return (_BARS - _AROUND_CHART[1]) / (_width(picture) - _AROUND_CHART[0])
    return _CHART_ASPECT
