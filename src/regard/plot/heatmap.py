"""A heatmap in a terminal: tokens at the edges, colored cells, hidden pairs blank. (`heatmap_figure.py` draws the PNG.)

Cells hold numbers if there is room, else they are colored squares, then half-blocks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from regard.inspection.number import Format, nonfinite, short, uniform
from regard.inspection.records import Grid
from regard.inspection.text import center, clusters, display_width, fit, left, right, visible
from regard.inspection.tokens import ascii_label
from regard.plot import grids
from regard.plot.grids import Cells, Limits, are_positions, is_pattern, shape, shown
from regard.plot.terminal import Line, Span, line_width, paragraph
from regard.plot.theme import Depth, ramp, readable_on

TALLEST = 64  # lines; longer pictures are pooled rather than scrolled
_WIDEST_LABEL = 16
_WIDEST_CELL = 12
_TIGHTEST_CELL = 2  # a digit and a space
_SHADES = "·░▒▓█"  # the weakest is a dot, so that a weight of zero differs from a hidden pair
_PLAIN_SHADES = ".:+*#"
_SIGNED_SHADES, _PLAIN_SIGNED_SHADES = "≡=~-·░▒▓█", "%=~-.:+*#"  # from negative over zero to positive
_SIGNS = {"nan": "?", "inf": "+", "-inf": "-"}
_TALLEST_LABEL = 10
_GRADIENT = 16


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
    return [ascii_label(str(label)) if depth is Depth.PLAIN else visible(str(label)) for label in labels]


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
    labels = column_labels(grid, depth)
    named = max(map(display_width, labels)) + 1  # a cell above which a name fits
    if pattern and named <= _WIDEST_CELL and not are_positions(labels):
        layout = space.layout(max(named, 2))
        if layout.columns == layout.rows == 1:
            return layout
    squares = space.layout(cell=2)
    if squares.columns == squares.rows == 1 or not depth.colored:
        return squares
    return space.layout(cell=1, stacked=2)


def equally_clear(grid: Grid, narrow: int, wide: int, depth: Depth) -> bool:
    """Whether `narrow` columns show as much as `wide`: numbers if those do, and no more values in a cell."""
    if not all(shape(grid.values)):
        return True
    one, other = (choose(grid, grid.values, width, depth) for width in (narrow, wide))
    pooling = (one.rows, one.columns, one.stacked) == (other.rows, other.columns, other.stacked)
    return pooling and (one.format is None) == (other.format is None)


def _number_layouts(grid: Grid, values: Cells, space: _Space, depth: Depth) -> list[Layout]:
    """Cells with numbers, from comfortable to tight."""
    numbers = list(shown(values))
    full = uniform(numbers)
    label = max(map(display_width, column_labels(grid, depth)))
    shares = full.decimals and all(0 <= value <= 1 or not math.isfinite(value) for value in numbers)
    formats = [(full, 2), (Format(full.decimals, leading_zero=False) if shares else full, 1)]
    layouts: list[Layout] = []
    for form, padding in formats:
        least = form.width(numbers) + padding
        for cell in (max(least, min(label + 1, _WIDEST_CELL)), least):
            layouts.append(space.layout(cell, form=form))
    return layouts


def heatmap(grid: Grid, width: int, depth: Depth) -> list[Line]:
    """The grid in at most `width` columns."""
    everything = grids.cells(grid)
    if not all(shape(everything)):
        return heatmap_in(Layout(margin=0, cell=1), grid, width, depth)
    return heatmap_in(choose(grid, everything, width, depth), grid, width, depth)


def heatmap_in(layout: Layout, grid: Grid, width: int, depth: Depth) -> list[Line]:
    """The grid in this layout, its prose in at most `width` columns."""
    everything = grids.cells(grid)
    height, columns = shape(everything)
    title = paragraph(grid.title, width, depth)
    note = paragraph(grid.note, width, depth)
    if not height or not columns:
        return [*title, *paragraph(f"(empty: {height} rows, {columns} columns)", width, depth), *note]
    pool = grids.shares if is_pattern(everything) else grids.pooled
    values = pool(everything, layout.rows, layout.columns)
    limits = grids.limits_of(grid, values)
    edges = _row_edges(grid, layout, depth)
    starts = range(0, len(values), layout.stacked)
    body = [
        [Span(edge), *cell_line(values[start : start + layout.stacked], layout, limits, depth)]
        for edge, start in zip(edges, starts, strict=True)
    ]
    return [
        *title,
        *_header(grid, layout, depth),
        *body,
        *color_scale(values, layout, limits, width, depth),
        *paragraph(_remark(everything, layout), width, depth),
        *note,
    ]


def _row_edges(grid: Grid, layout: Layout, depth: Depth) -> list[str]:
    """What stands left of each line: the label of its first row, with the row's number if rows share the line."""
    labels = row_labels(grid, depth)
    if not layout.labels_each_row and not are_positions(labels):
        labels = [f"{index} {label}" for index, label in enumerate(labels)]
    place = right if are_positions(labels) else left
    return [place(label, layout.margin - 1) + " " for label in labels[:: layout.rows * layout.stacked]]


def _header(grid: Grid, layout: Layout, depth: Depth) -> list[Line]:
    """Column labels: across if cells are wide, downward over squares, else column numbers now and then."""
    margin = Span(" " * layout.margin)
    labels = column_labels(grid, depth)
    named = len(grid.column_labels) > 0 and layout.columns == 1
    roomy = named and max(map(display_width, labels)) < layout.cell
    if layout.columns == 1 and (layout.format is not None or (roomy and not are_positions(labels))):
        return [[margin, Span("".join(center(fit(label, layout.cell - 1), layout.cell) for label in labels))]]
    if named and layout.cell >= 2 and not are_positions(labels):
        return [[margin, Span(line)] for line in _downward(labels, layout.cell)]
    positions = labels if named else [str(index) for index in range(0, len(labels), layout.columns)]
    return [[margin, Span(_ruler(positions, layout.cell))]]


def _downward(labels: Sequence[str], cell: int) -> list[str]:
    stacks = [clusters(fit(label, _TALLEST_LABEL)) for label in labels]
    height = max(map(len, stacks))
    lowered = [[""] * (height - len(stack)) + stack for stack in stacks]
    return ["".join(center(letter, cell) for letter in letters) for letters in zip(*lowered, strict=True)]


def _ruler(positions: Sequence[str], cell: int) -> str:
    """Positions that begin above their column, as many as stand apart."""
    width = len(positions) * cell
    step = grids.round_up(math.ceil((max(map(len, positions)) + 1) / cell))
    line = ""
    for index in range(0, len(positions), step):
        mark = line.ljust(index * cell) + positions[index]
        if len(mark) <= width or not line:
            line = mark
    return fit(line, max(width, 1))


def cell_line(rows: Cells, layout: Layout, limits: Limits, depth: Depth) -> list[Span]:
    """One line of cells: a row, or two of them one above the other."""
    if layout.stacked == 2:
        below: Sequence[float | None] = rows[1] if len(rows) > 1 else [None] * len(rows[0])
        return [_half_blocks(upper, lower, limits, depth) for upper, lower in zip(rows[0], below, strict=True)]
    return [_cell(value, layout, limits, depth) for value in rows[0]]


def _cell(value: float | None, layout: Layout, limits: Limits, depth: Depth) -> Span:
    if value is None:
        return Span(" " * layout.cell)
    text = layout.format.text(value) if layout.format else "" if math.isfinite(value) else _SIGNS[nonfinite(value)]
    fraction = limits.fraction(value)
    if math.isnan(fraction) or (depth is Depth.PLAIN and layout.format):
        return Span(center(text, layout.cell))
    if depth.colored:
        paper = ramp(fraction, depth, signed=limits.signed)
        return Span(center(text, layout.cell), readable_on(paper), paper)
    shades = _shades(depth, limits)
    shade = shades[min(int(fraction * len(shades)), len(shades) - 1)]
    if layout.format and shade == shades[len(shades) // 2 if limits.signed else 0]:
        shade = " "
    space = layout.cell - display_width(text)
    return Span(shade * (space - space // 2) + text + shade * (space // 2))


def _shades(depth: Depth, limits: Limits) -> str:
    if limits.signed:
        return _PLAIN_SIGNED_SHADES if depth is Depth.PLAIN else _SIGNED_SHADES
    return _PLAIN_SHADES if depth is Depth.PLAIN else _SHADES


def _half_blocks(upper: float | None, lower: float | None, limits: Limits, depth: Depth) -> Span:
    for value in (upper, lower):
        if value is not None and not math.isfinite(value):
            return Span(_SIGNS[nonfinite(value)])
    above, below = (
        None if v is None else ramp(limits.fraction(v), depth, signed=limits.signed) for v in (upper, lower)
    )
    if above is None:
        return Span(" ") if below is None else Span("▄", below)
    return Span("▀", above, below)


def color_scale(values: Cells, layout: Layout, limits: Limits, width: int, depth: Depth) -> list[Line]:
    """The colors with the values at their ends, if there is more than one, and what blanks mean if there are any."""
    blanks = any(value is None for row in values for value in row)
    remark = "; ".join(["square root scale"] * (limits.power != 1) + ["blank: hidden"] * blanks)
    if is_pattern(values) or (depth is Depth.PLAIN and layout.format):
        return [[Span("blank: hidden")]] if blanks else []
    low, high = short(limits.low), short(limits.high)
    room = width - len(low) - len(high) - 2
    if depth.colored:
        count = max(min(_GRADIENT, room), 1)
        bar = [Span(" ", paper=ramp(step / max(count - 1, 1), depth, signed=limits.signed)) for step in range(count)]
    else:
        bar = [Span(_shades(depth, limits))]
    if line_width(bar) > room:
        return paragraph(f"{low} to {high} {remark}", width, depth)
    scale = [Span(f"{low} "), *bar, Span(f" {high}")]
    if line_width(scale) + 2 + len(remark) <= width:
        return [[*scale, Span(f"  {remark}" if remark else "")]]
    return [scale, *paragraph(remark, width, depth)]


def _remark(everything: Cells, layout: Layout) -> str:
    """What the picture leaves out: values averaged in a cell, and rows that share a line."""
    remarks: list[str] = []
    pooled = f"{layout.rows} × {layout.columns}"
    if layout.rows == layout.columns == 1:
        if layout.stacked > 1:
            remarks.append("Each line holds two rows.")
    elif is_pattern(everything):
        remarks.append(f"Each cell is the visible share of {pooled} pairs (rows × columns).")
    else:
        largest = max((v for v in shown(everything) if math.isfinite(v)), default=math.nan)
        remarks.append(
            f"Each cell is the mean of {pooled} values (rows × columns); the largest single value is {short(largest)}."
        )
    signs = sorted({nonfinite(v) for v in shown(everything) if not math.isfinite(v)})
    if signs and layout.format is None:
        remarks.append("Not finite: " + ", ".join(f"{_SIGNS[sign]} {sign}" for sign in signs) + ".")
    return " ".join(remarks)
