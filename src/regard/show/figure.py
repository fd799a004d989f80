"""Pictures as matplotlib figures. Matplotlib is loaded when the first one is drawn, and its global state left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.inspection.records import Bars, Grid, Lines, Panel, Picture
from regard.inspection.text import visible
from regard.show.size import rows_of, size

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure


_MARGIN = 0.08  # inches around each picture
_PLACES = 6  # decimals of a position, as a share of the figure

# after the first, one that knows the script is found by its name; emoji fonts made of bitmaps cannot be drawn
_FAMILIES = (
    *("DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans SC", "Noto Sans JP"),
    *("Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "PingFang SC", "Heiti TC", "Hiragino Sans"),
    *("Apple SD Gothic Neo", "Microsoft YaHei", "Yu Gothic", "MS Gothic", "Malgun Gothic", "NanumGothic"),
    *("Noto Sans Arabic", "Noto Sans Hebrew", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Emoji"),
    *("Segoe UI Symbol", "Symbola", "Arial Unicode MS"),
)


def draw(picture: Picture) -> Figure:
    """The picture as a figure that belongs to nobody else: show it in a notebook or call its `savefig`."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise ImportError("drawing figures needs matplotlib: pip install regard[pictures]") from error
    figure = Figure(figsize=size(picture), layout=ConstrainedLayoutEngine(w_pad=_MARGIN, h_pad=_MARGIN))
    _draw_on(figure, picture)
    settle_texts(figure)
    return figure


def _draw_on(figure: Figure | SubFigure, picture: Picture) -> None:
    from regard.show import artists

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
    from matplotlib.font_manager import fontManager
    from matplotlib.text import Text

    installed = {font.name for font in fontManager.ttflist}
    families = [family for family in _FAMILIES if family in installed]
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        text.set_parse_math(False)
        if families:
            text.set_fontfamily(families)


def fix_layout(figure: Figure) -> None:
    """Lay the figure out for good, its parts at round places.

    The layout solver differs in the last bits from run to run; rounded, the same picture gives the same file.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    parts = list(figure.subfigs)
    for part in parts:
        part.bbox_relative.set_points(part.bbox_relative.get_points().round(_PLACES))
        parts += part.subfigs
    for axes in figure.axes:
        left, bottom, width, height = (round(float(v), _PLACES) for v in axes.get_position(original=True).bounds)
        axes.set_position((left, bottom, width, height))
