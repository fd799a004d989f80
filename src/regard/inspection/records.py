"""Records: what measurements return and plots accept. They hold plain numbers and do not draw themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regard.inspection.table import Cell, Estimate, Table

__all__ = [
    "Arrow",
    "Bars",
    "Box",
    "Cell",
    "Diagram",
    "Estimate",
    "Grid",
    "Image",
    "Line",
    "Lines",
    "Panel",
    "Picture",
    "Row",
    "SignedGrid",
    "Table",
]

Row = Sequence[float]


@dataclass(frozen=True)
class Grid:
    """A labelled matrix: rows are queries, columns are keys.

    `None` in `values` is a hidden pair: drawn as a blank, not as zero. `limits` are the values at the two ends of
    the colors, so that grids side by side can be compared; without them the data decide. `names` are those of rows,
    columns and values, for the axes and the color bar of a figure. `margins` are numbers of the rows and of the
    columns, such as their sums, drawn as bars beside the rows and below the columns.
    """

    values: Sequence[Sequence[float | None]]
    row_labels: Sequence[str] = ()
    column_labels: Sequence[str] = ()
    title: str = ""
    note: str = ""
    limits: tuple[float, float] | None = None
    names: tuple[str, str, str] = ("", "", "")
    margins: tuple[Row, Row] = ((), ())


@dataclass(frozen=True)
class SignedGrid(Grid):
    """A Grid of differences: its colors diverge from zero, to the same size on both sides."""


@dataclass(frozen=True)
class Line:
    """One curve with an optional interval (`low`, `high`) at each x, or single runs as `points` (x, y)."""

    name: str
    x: Row
    y: Row
    low: Row = ()
    high: Row = ()
    points: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class Lines:
    """Curves that share their axes. `histogram`: heights of bins with their middles at x, drawn as filled steps."""

    lines: Sequence[Line]
    x_label: str
    y_label: str
    title: str = ""
    log_x: bool = False
    log_y: bool = False
    histogram: bool = False


@dataclass(frozen=True)
class Bars:
    """Groups of bars: `series` maps a name to one height per label."""

    labels: Sequence[str]
    series: Mapping[str, Row]
    y_label: str
    title: str = ""


@dataclass(frozen=True)
class Box:
    """A box of a diagram with its text; `x` and `y` are its middle in inches from the top left.

    `series` is the number of its color; without it the box is gray. A box without a border is text alone.
    """

    text: str
    x: float
    y: float
    width: float = 1.0
    height: float = 0.4
    series: int | None = None
    border: bool = True


@dataclass(frozen=True)
class Arrow:
    """An arrow of a diagram from one box to another, by their numbers; `bend` curves it, to the left if above 0."""

    start: int
    stop: int
    text: str = ""
    bend: float = 0.0


@dataclass(frozen=True)
class Diagram:
    """Boxes and arrows between them."""

    boxes: Sequence[Box]
    arrows: Sequence[Arrow] = ()
    title: str = ""
    note: str = ""


@dataclass(frozen=True)
class Image:
    """Colored pixels, each red, green and blue from 0 to 1.

    Labels name equal cells from top to bottom and from left to right; `marks` are cells (row, column) with a frame.
    """

    pixels: Sequence[Sequence[Sequence[float]]]
    row_labels: Sequence[str] = ()
    column_labels: Sequence[str] = ()
    title: str = ""
    note: str = ""
    marks: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True)
class Panel:
    """Pictures side by side under one title."""

    pictures: Sequence["Picture"]
    title: str = ""


Picture = Grid | Lines | Bars | Diagram | Image | Panel
