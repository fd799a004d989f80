"""How large a figure should be, in inches, so that its numbers and labels can be read."""

from collections.abc import Sequence

from regard.inspection.records import Bars, Grid, Panel, Picture
from regard.show import grids
from regard.show.text import display_width, visible

PER_ROW = 4  # pictures of a panel
LONGEST_LABEL = 24
_CELL = 0.5
_LONGEST_SIDE = 7.0
_LETTER = 0.08


def cell_size(grid: Grid) -> float:
    """The side of a cell: enough for a number, unless there are many."""
    return min(_CELL, _LONGEST_SIDE / max(*grids.shape(grid.values), 1))


def labels_fit_across(grid: Grid) -> bool:
    """Whether the column labels can stand side by side without being turned."""
    return _longest(grid.column_labels) <= cell_size(grid)


def _longest(labels: Sequence[str]) -> float:
    return _LETTER * min(max((display_width(visible(label)) for label in labels), default=2), LONGEST_LABEL)


def size(picture: Picture) -> tuple[float, float]:
    """Width and height at which the picture is comfortable."""
    match picture:
        case Grid():
            height, width = (max(count * cell_size(picture), 1.0) for count in grids.shape(picture.values))
            above = 0.3 if labels_fit_across(picture) else _longest(picture.column_labels)
            return width + _longest(picture.row_labels) + 1.2, height + above + 0.7
        case Bars():
            return min(max(4.5, 0.3 * len(picture.labels) * max(len(picture.series), 1) + 1.5), 12.0), 3.6
        case Panel():
            sizes = [size(part) for part in picture.pictures] or [(4.0, 2.0)]
            rows = [sizes[start : start + PER_ROW] for start in range(0, len(sizes), PER_ROW)]
            heights = [max(part[1] for part in row) for row in rows]
            return max(sum(part[0] for part in row) for row in rows), sum(heights) + (0.4 if picture.title else 0.0)
    return 6.0, 3.8


def box_aspect(picture: Picture) -> float:
    """Height over width inside the axes of a chart, so that a taller neighbor does not stretch it."""
    width, height = size(picture)
    return (height - 0.8) / (width - 0.9)
