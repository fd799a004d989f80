"""Pictures as matplotlib figures. Matplotlib is loaded when the first one is drawn, and its global state left alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.inspection.records import Bars, Grid, Lines, Panel, Picture
from regard.inspection.text import visible
from regard.plot.size import rows_of, size

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure


_MARGIN = 0.08  # inches around each picture
_STEPS, _STILL = 20, 0.5  # of the layout, at most; pixels that are no move
_PLACES = 6  # decimals of a position, as a share of the figure


def draw(picture: Picture, marks: Sequence[tuple[float, float]] = ()) -> Figure:
    """The picture as a figure that belongs to nobody else: show it in a notebook or call its `savefig`.

    `marks` are places (row, column) of a Grid that are to be seen first.
    """
    need_matplotlib()
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    from regard.plot import artists

    figure = Figure(figsize=size(picture), layout=ConstrainedLayoutEngine(w_pad=_MARGIN, h_pad=_MARGIN))
    if marks and isinstance(picture, Grid):
        artists.marked(figure, picture, marks)
    else:
        _draw_on(figure, picture)
    settle_texts(figure)
    return figure


def need_matplotlib() -> None:
    """Say what to install where it is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("drawing figures needs matplotlib: pip install regard[pictures]") from error


def _draw_on(figure: Figure | SubFigure, picture: Picture) -> None:
    from regard.plot import artists

    match picture:
        case Grid():
            artists.heatmap(figure, picture)
        case Lines():
            artists.lines(figure, picture)
        case Bars():
            artists.bars(figure, picture)
        case Panel():
            _draw_panel(figure, picture)
        case _:
            raise TypeError(f"draw takes a Grid, Lines, Bars or Panel, got {type(picture).__name__}")


def _draw_panel(figure: Figure | SubFigure, panel: Panel) -> None:
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


def settle_texts(figure: Figure) -> None:
    """Let every text fall back to fonts that know its script, and keep `$` in tokens from starting a formula."""
    from matplotlib.text import Text

    from regard.plot.fonts import families_for

    texts: list[Text] = figure.findobj(Text)
    families = families_for({character for text in texts for character in text.get_text()})
    for text in texts:
        text.set_parse_math(False)
        text.set_fontfamily(families)


def fix_layout(figure: Figure) -> None:
    """Lay the figure out for good, its parts at round places.

    The layout solver goes a step at a time, so a panel takes several until nothing moves. It differs in the last bits
    from run to run; rounded, the same picture gives the same file.
    """
    before: list[float] = []
    for _ in range(_STEPS):
        figure.draw_without_rendering()
        now = [place for axes in figure.axes for place in axes.get_window_extent().bounds]
        if before and all(abs(new - old) < _STILL for new, old in zip(now, before, strict=True)):
            break
        before = now
    figure.set_layout_engine("none")
    parts = list(figure.subfigs)
    for part in parts:
        part.bbox_relative.set_points(part.bbox_relative.get_points().round(_PLACES))
        parts += part.subfigs
    for axes in figure.axes:
        left, bottom, width, height = (round(float(v), _PLACES) for v in axes.get_position(original=True).bounds)
        axes.set_position((left, bottom, width, height))
