"""What all figures share: sizes in inches, frame and legend, fonts of texts, layout, and the bytes of a file.

Matplotlib is imported when the first figure is drawn; its global state is left alone.
"""

import io
import math
import re
import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.inspection.number import short
from regard.inspection.records import Bars, Diagram, Grid, Image, Lines, Panel, Picture
from regard.inspection.text import display_width, visible, wrap
from regard.plot import grids
from regard.plot.theme import families_for

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FIGURES = ("png", "svg", "pdf")
WIDEST = 14.0  # inches, as all sizes here
LONGEST_LABEL = 24
LETTER = 0.08
NUMBERED_BARS = 16  # more, and their numbers would touch
POINTS = 72  # in an inch
_PER_ROW = 4  # pictures of a panel
_CELL = 0.5  # of a number
_PATTERN_CELL = 0.22  # of a label of two digits
_TITLE_LETTER = 0.1
_LARGE_LETTER, LARGE_LINE = 0.105, 0.22
_TITLE_LINE, _NOTE_LINE = 0.2, 0.16
_LONGEST_SIDE = 7.0
_NAMED_CELL, _LONGEST_NAMED = 0.09, 15.0  # of a token that can be read; and of all cells that have one
_AXIS_NAME = 0.22
_SCALE = 0.7  # beside the cells
_AROUND_CHART = (0.9, 0.8)  # axis labels, tick labels and title
_CHART, _CHART_OF_PANEL = 6.0, 4.4
_CHART_ASPECT = 0.65
_BARS = 3.1  # height
_IMAGE = 2.2  # longer side
_LEGEND_LINE, _LEGEND_SIGN = 0.19, 0.5  # height of a line; width beside the text
MARGIN = 0.55  # bars beside the rows and below the columns of a heatmap
DOTS_PER_INCH = 150
_STEPS, _STILL = 20, 0.5  # most steps of the layout solver; pixels that count as no move
_DECIMALS = 6  # of a position, as a share of the figure


@dataclass(frozen=True)
class GridLayout:
    """Sizes of a heatmap, its title in lines that do not reach into the neighbors, and its note in lines."""

    cell: float
    sides: tuple[float, float]  # width and height of all cells
    turned: bool  # whether the column labels are too long to stand side by side
    title: list[str]
    note: list[str]
    size: tuple[float, float]


def grid_layout(grid: Grid) -> GridLayout:
    """Cells large enough for a number, or for a label where cells have no number, unless there are many.

    The note says what hatching means unless it does already.
    """
    rows, columns = grids.shape(grid.values)
    pattern = grids.is_pattern(grid.values)
    cell = min(_PATTERN_CELL if pattern else _CELL, _LONGEST_SIDE / max(rows, columns, 1))
    if not all(map(grids.are_positions, (grid.row_labels, grid.column_labels))):  # room for tokens, if that is enough
        cell = max(cell, _NAMED_CELL if _NAMED_CELL * max(rows, columns) <= _LONGEST_NAMED else 0.0)
    sides = max(columns * cell, 1.0), max(rows * cell, 1.0)
    letter = LETTER * min(1.0, max(cell / 0.13, 0.5))  # small cells have small letters
    row_label, column_label = (
        letter * min(max((display_width(visible(label)) for label in labels), default=2), LONGEST_LABEL)
        for labels in (grid.row_labels, grid.column_labels)
    )
    named = _AXIS_NAME if any(grid.names) else 0.0
    beside, below = (MARGIN * bool(len(margin)) for margin in grid.margins)
    width = sides[0] + beside + row_label + named + (0.4 if pattern else 0.4 + _SCALE)
    title = wrap(visible(grid.title), int((width - 0.3) / _TITLE_LETTER))
    hidden = "hatched" not in grid.note and any(value is None for row in grid.values for value in row)
    note = [*wrap(visible(grid.note), int(width / LETTER)), *["hatched: hidden"] * hidden]
    turned = column_label > cell
    more = _TITLE_LINE * max(len(title) - 1, 0)
    height = sides[1] + below + (column_label if turned else 0.2) + 0.45 + named + more + _NOTE_LINE * len(note)
    return GridLayout(cell, sides, turned, title, note, (width, height))


def title_lines(title: str, width: float) -> list[str]:
    """The title over a whole figure of this width, in lines of large letters that fit."""
    return wrap(visible(title), max(int((width - 0.2) / _LARGE_LETTER), 20))


def _chart_width(chart: Lines | Bars, *, part: bool = False) -> float:
    if isinstance(chart, Bars):
        count = len(chart.labels) * max(len(chart.series), 1)
        digits = max((len(short(height)) for heights in chart.series.values() for height in heights), default=1)
        width = (max(0.3, 0.09 * digits) if count <= NUMBERED_BARS else 0.16) * count + 1.5
        return min(max(width, _CHART_OF_PANEL), 12.0)
    return _CHART_OF_PANEL if part else _CHART


def _title_lines(chart: Lines | Bars) -> list[str]:
    return wrap(visible(chart.title), int((_chart_width(chart, part=True) - 0.3) / _TITLE_LETTER))


def legend_columns(chart: Lines | Bars) -> int:
    """How many names of series stand side by side above a chart; 0 if there is a single one without a name."""
    names = [line.name for line in chart.lines] if isinstance(chart, Lines) else list(chart.series)
    if len(names) < 2 and not any(names):
        return 0
    widest = max(display_width(visible(name)) for name in names) * LETTER * 0.9 + _LEGEND_SIGN
    room = _chart_width(chart, part=True) - _AROUND_CHART[0] + 0.2
    most = max(min(int(room / widest), len(names)), 1)
    return math.ceil(len(names) / math.ceil(len(names) / most))


def _legend_lines(chart: Lines | Bars) -> int:
    count = len(chart.lines) if isinstance(chart, Lines) else len(chart.series)
    columns = legend_columns(chart)
    return math.ceil(count / columns) if columns else 0


def size(picture: Picture, *, part: bool = False) -> tuple[float, float]:
    """Width and height at which the picture can be read, alone or as part of a panel."""
    match picture:
        case Panel():
            rows = rows_of(picture)
            height = sum(max(height for _, height in row) for row in rows)
            return max(sum(width for width, _ in row) for row in rows), height + (0.4 if picture.title else 0.0)
        case Grid():
            return grid_layout(picture).size
        case Diagram():
            return diagram_size(picture)
        case Image():
            return image_layout(picture).size
    width, more = _chart_width(picture, part=part), _TITLE_LINE * max(len(_title_lines(picture)) - 1, 0)
    more += _LEGEND_LINE * _legend_lines(picture)
    if isinstance(picture, Bars):
        return width, _BARS + more
    return width, (width - _AROUND_CHART[0]) * _CHART_ASPECT + _AROUND_CHART[1] + more


def diagram_size(diagram: Diagram) -> tuple[float, float]:
    """The space of the boxes, with a title above and a note below."""
    width = max((box.x + box.width / 2 for box in diagram.boxes), default=1.0) + 0.1
    height = max((box.y + box.height / 2 for box in diagram.boxes), default=1.0) + 0.1
    texts = 0.35 * bool(diagram.title) + _NOTE_LINE * len(wrap(visible(diagram.note), int(width / LETTER)))
    return width, height + texts


def image_layout(image: Image) -> GridLayout:
    """A square of fixed size for the longer side, with labels of one line."""
    height, width = len(image.pixels), max(len(image.pixels[0]) if len(image.pixels) else 1, 1)
    sides = _IMAGE * width / max(height, width), _IMAGE * height / max(height, width)
    whole = sides[0] + 0.7
    title = wrap(visible(image.title), int((whole - 0.3) / _TITLE_LETTER))
    note = wrap(visible(image.note), int(whole / LETTER))
    texts = 0.65 + _TITLE_LINE * max(len(title) - 1, 0) + _NOTE_LINE * len(note)
    return GridLayout(_IMAGE, sides, False, title, note, (whole, sides[1] + texts))


def rows_of(panel: Panel) -> list[list[tuple[float, float]]]:
    """The sizes of a panel's pictures in rows of similar length, none wider than `WIDEST` unless one picture is."""
    sizes = [size(part, part=True) for part in panel.pictures] or [(4.0, 2.0)]
    for count in range(min(len(sizes), _PER_ROW), 0, -1):
        even = math.ceil(len(sizes) / math.ceil(len(sizes) / count))
        rows = [sizes[start : start + even] for start in range(0, len(sizes), even)]
        if all(sum(width for width, _ in row) <= WIDEST for row in rows):
            break
    return rows


def constrained(size: tuple[float, float], width_pad: float, height_pad: float, **space: Any) -> "Figure":
    """An empty figure of this size with matplotlib's constrained layout."""
    need_matplotlib()
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    engine = ConstrainedLayoutEngine(w_pad=width_pad, h_pad=height_pad, **space)
    return Figure(figsize=size, dpi=DOTS_PER_INCH, layout=engine)


def need_matplotlib() -> None:
    """Raise an ImportError that says what to install if matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("drawing figures needs matplotlib: pip install regard[pictures]") from error


def draw_frame(axes: "Axes", record: Lines | Bars) -> None:
    """Title, label and shape of the axes of a chart; a taller neighbor does not stretch it."""
    lines = _legend_lines(record)
    axes.set_title("\n".join(_title_lines(record)), pad=6 + (lines * _LEGEND_LINE + 0.05 * bool(lines)) * POINTS)
    axes.set_ylabel(visible(record.y_label))
    bars = isinstance(record, Bars)
    axes.set_box_aspect(
        (_BARS - _AROUND_CHART[1]) / (_chart_width(record) - _AROUND_CHART[0]) if bars else _CHART_ASPECT
    )
    axes.set_anchor("N")
    axes.spines[["top", "right"]].set_visible(False)


def draw_legend(axes: "Axes", handles: "Sequence[Artist | tuple[Artist, ...]]", record: Lines | Bars) -> None:
    """The names of the series between the title and the chart, off the lines."""
    names = [line.name for line in record.lines] if isinstance(record, Lines) else list(record.series)
    if columns := legend_columns(record):
        axes.legend(
            list(handles),
            [visible(name) for name in names],
            loc="lower left",
            bbox_to_anchor=(0.0, 1.0),
            ncols=columns,
            fontsize="small",
            frameon=False,
            borderpad=0.2,
            borderaxespad=0.0,
            labelspacing=0.25,
            columnspacing=1.2,
            handlelength=1.6,
        )


def finish_texts(figure: "Figure") -> None:
    """Let every text fall back to fonts that have its characters, and keep `$` in tokens from starting a formula."""
    from matplotlib.text import Text

    texts: list[Text] = figure.findobj(Text)
    families = families_for({character for text in texts for character in text.get_text()})
    for text in texts:
        text.set_parse_math(False)
        text.set_fontfamily(families)


def fix_layout(figure: "Figure") -> None:
    """Run the layout solver to its end and round the positions.

    The solver makes one step per draw, so a panel takes several until nothing moves. Its last bits differ from run to
    run; rounded, the same picture gives the same file.
    """
    before: list[float] = []
    for _ in range(_STEPS):
        figure.draw_without_rendering()
        now = [place for axes in figure.axes for place in axes.get_window_extent().bounds]
        if before and all(abs(new - old) < _STILL for new, old in zip(now, before, strict=True)):
            break
        before = now
    figure.set_layout_engine("none")
    parts: list[Any] = list(figure.subfigs)
    for part in parts:
        part.bbox_relative.set_points(part.bbox_relative.get_points().round(_DECIMALS))
        parts += part.subfigs
    for axes in figure.axes:
        left, bottom, width, height = (round(float(v), _DECIMALS) for v in axes.get_position(original=True).bounds)
        axes.set_position((left, bottom, width, height))


def figure_bytes(figure: "Figure", form: str) -> bytes:
    """The figure as a png, svg or pdf, the same bytes for the same figure.

    Warnings about missing glyphs are passed on as one; an svg is drawn with the fonts of its reader.
    """
    import matplotlib

    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}[form]
    content = io.BytesIO()
    with (
        matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "regard", "pdf.fonttype": 42}),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        fix_layout(figure)
        figure.savefig(content, format=form, dpi=DOTS_PER_INCH, metadata=undated)
    if caught:
        _warn_once(caught, form != "svg", 5)
    return content.getvalue()


def finished(figure: "Figure") -> "Figure":
    """The figure in its final layout, for programs that draw it themselves."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fix_layout(figure)
    if caught:
        _warn_once(caught, True, 4)
    return figure


def _warn_once(caught: Sequence[warnings.WarningMessage], boxes: bool, level: int) -> None:
    """Pass warnings on, those about missing glyphs as one, if the glyphs appear as boxes."""
    missing = {str(each.message) for each in caught if "missing from font" in str(each.message)}
    for each in caught:
        if str(each.message) not in missing:
            warnings.warn(each.message, each.category, stacklevel=level)
    if missing and boxes:
        warnings.warn(_missing_glyphs(missing), stacklevel=level)


# what to install by the first words of the names of characters; colored emoji fonts are bitmaps, which cannot be drawn
_FONT_PACKAGES = (
    (("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC", "FULLWIDTH"), "fonts-noto-cjk"),
    (
        ("ARABIC", "HEBREW", "DEVANAGARI", "BENGALI", "THAI", "TAMIL", "ETHIOPIC", "KHMER", "GEORGIAN"),
        "fonts-noto-core",
    ),
)
_SYMBOLS = "fonts-symbola"


def _missing_glyphs(messages: Iterable[str]) -> str:
    """One sentence about characters without a font, by the warnings of matplotlib, and what to install for them."""
    codes = {int(code) for message in messages for code in re.findall(r"Glyph (\d+)", message)}
    names = [unicodedata.name(chr(code), "") for code in sorted(codes)]
    packages = {
        next((package for words, package in _FONT_PACKAGES if name.startswith(words)), _symbols_or_letters(name))
        for name in names
    }
    shown = "".join(chr(code) for code in sorted(codes)[:8])
    pip = " or pip install mplfonts" if "fonts-noto-cjk" in packages else ""
    count = f"{len(codes)} character{'s' * (len(codes) != 1)}"
    return (
        f"{count} ({visible(shown)}{'…' * (len(codes) > 8)}) in no installed font that matplotlib can use appear as "
        f"boxes: apt install {' '.join(sorted(packages))} (Debian, Ubuntu){pip}, or save as svg or html"
    )


def _symbols_or_letters(name: str) -> str:
    return "fonts-noto-core" if " LETTER " in name or " SIGN " in name or "VOWEL" in name else _SYMBOLS
