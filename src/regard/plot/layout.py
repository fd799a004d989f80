"""How a grid is fitted into a terminal: numbers in the cells if there is room, colored squares, then half-blocks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from regard.inspection.number import Format, uniform
from regard.inspection.records import Grid
from regard.inspection.text import display_width, visible
from regard.plot.color import Depth
from regard.plot.grids import Cells, is_pattern, shape, shown

TALLEST = 64  # lines; longer pictures are pooled rather than scrolled
_WIDEST_LABEL = 16
_WIDEST_CELL = 12
_TIGHTEST_CELL = 2  # a digit and a space


@dataclass(frozen=True)
class Layout:
    """Columns for row labels and for each cell, what a cell averages, and whether numbers are written.

    `rows` × `columns` values of the grid are averaged in one cell; `stacked` cells share a line, one above the other.
    """

    margin: int
    cell: int
    rows: int = 1
    columns: int = 1
    stacked: int = 1
    format: Format | None = None

    @property
    def labels_each_row(self) -> bool:
        """Whether every row of the grid has a line of its own."""
        return self.rows == self.stacked == 1


def row_labels(grid: Grid, depth: Depth) -> list[str]:
    """Printable row labels, or row numbers where the grid has none."""
    return _labels(grid.row_labels, len(grid.values), depth)


def column_labels(grid: Grid, depth: Depth) -> list[str]:
    """Printable column labels, or column numbers where the grid has none."""
    return _labels(grid.column_labels, shape(grid.values)[1], depth)


def _labels(labels: Sequence[str], count: int, depth: Depth) -> list[str]:
    if not len(labels):
        return [str(index) for index in range(count)]
    return [visible(str(label), ascii_only=depth is Depth.PLAIN) for label in labels]


@dataclass(frozen=True)
class _Space:
    """What has to share the window: row labels, their numbers if rows share lines, and the cells of the grid."""

    label: int
    number: int
    height: int
    columns: int
    window: int

    def layout(self, cell: int, *, stacked: int = 1, form: Format | None = None) -> Layout:
        """A layout with this cell, pooled as far as needed; a grid that is long both ways is pooled alike."""
        each = self._layout(self.label, cell, stacked, form)
        if each.labels_each_row:
            return each
        return self._layout(self.label + self.number, cell, stacked, form)

    def _layout(self, label: int, cell: int, stacked: int, form: Format | None) -> Layout:
        margin = min(label, _WIDEST_LABEL, self.window // 4) + 1
        abreast = max((self.window - margin) // cell, 1)
        columns = math.ceil(self.columns / abreast)
        rows = math.ceil(self.height / (TALLEST * stacked))
        if self.height > abreast:
            rows = max(rows, columns)
        return Layout(margin, cell, rows, columns, stacked, form)


def choose(grid: Grid, values: Cells, width: int, depth: Depth) -> Layout:
    """The most telling layout that fits in `width` columns."""
    height, columns = shape(values)
    label = max(map(display_width, row_labels(grid, depth)))
    number = len(f"{height} ") if len(grid.row_labels) else 0
    space = _Space(label, number, height, columns, width)
    pattern = is_pattern(values)
    possible = columns * _TIGHTEST_CELL <= width or depth is Depth.PLAIN
    numbered = _number_layouts(grid, values, space, depth) if possible and not pattern else []
    for layout in numbered:
        if layout.columns == 1 and (layout.rows == 1 or not depth.colored):
            return layout
    if depth is Depth.PLAIN and not pattern:
        return numbered[-1]
    if pattern and (named := _named_cell(grid, depth)):
        layout = space.layout(named)
        if layout.columns == layout.rows == 1:
            return layout
    squares = space.layout(cell=2)
    if squares.columns == squares.rows == 1 or not depth.colored:
        return squares
    return space.layout(cell=1, stacked=2)


def _named_cell(grid: Grid, depth: Depth) -> int:
    """The cell without a number above which a name fits, or 0 where columns have positions or long names."""
    labels = column_labels(grid, depth)
    cell = max(map(display_width, labels)) + 1
    return max(cell, 2) if cell <= _WIDEST_CELL and not are_positions(labels) else 0


def are_positions(labels: Sequence[str]) -> bool:
    """Whether the labels are whole numbers, of which a few tell the others."""
    return all(label.removeprefix("-").isdecimal() for label in labels)


def equally_clear(grid: Grid, narrow: int, wide: int, depth: Depth) -> bool:
    """Whether `narrow` columns show as much as `wide`: numbers if those do, and no more values in a cell."""
    if not all(shape(grid.values)):
        return True
    one, other = (choose(grid, grid.values, width, depth) for width in (narrow, wide))
    return (one.format is None, one.rows, one.columns, one.stacked) == (
        other.format is None,
        other.rows,
        other.columns,
        other.stacked,
    )


def _number_layouts(grid: Grid, values: Cells, space: _Space, depth: Depth) -> list[Layout]:
    """Cells with numbers, from comfortable to tight."""
    numbers = list(shown(values))
    full = uniform(numbers)
    label = max(map(display_width, column_labels(grid, depth)))
    formats = [(full, 2)]
    if full.decimals and all(0 <= value <= 1 or not math.isfinite(value) for value in numbers):
        formats.append((Format(full.decimals, leading_zero=False), 1))
    else:
        formats.append((full, 1))
    found: list[Layout] = []
    for form, padding in formats:
        least = form.width(numbers) + padding
        for cell in (max(least, min(label + 1, _WIDEST_CELL)), least):
            found.append(space.layout(cell, form=form))
    return found
