"""Many heads in one figure: small heatmaps under one scale. Only `matrix_file` imports this, when a figure is drawn."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from regard.inspection.records import Grid, Panel
from regard.inspection.text import display_width, fit, visible, wrap
from regard.plot import grids
from regard.plot.color import RAMP
from regard.plot.figure import settle_texts
from regard.plot.layout import are_positions

_WIDEST = 14.0  # inches
_POINTS = 72
_POSITIONS = 4  # written where labels would be too small
_LETTER = 0.6  # width of a letter in heights
_LONGEST_LABEL = 14
_LABELED_SIDE = 1.0  # inches; a smaller map has only its name
_SMALLEST_FONT, _LARGEST_FONT = 4.5, 8.0


def draw_heads(panel: Panel, abreast: int | None = None) -> Figure:
    """The heads in rows of `abreast`; token labels at the left and the top of all, where they can be read."""
    every = [part for part in panel.pictures if isinstance(part, Grid)]
    limits = grids.limits(Grid([]), [row for grid in every for row in grid.values])
    side = side_of(len(every))
    height, width = grids.shape(every[0].values)
    tall, wide = _tile(height, width, side)
    abreast = abreast or columns_of(len(every), wide)
    down = math.ceil(len(every) / abreast)
    fonts = (_font(tall, height), _font(wide, width)) if side >= _LABELED_SIDE else (0.0, 0.0)
    left, above = (_room(labels, font) for labels, font in zip(_edges(every[0]), fonts, strict=True))
    across = abreast * (wide + 0.12) + left + 0.9
    note = wrap(f"{every[0].note}{_hidden(every)}", max(int(across / 0.075), 20))
    size = (
        across,
        down * (tall + (0.3 if side >= _LABELED_SIDE else 0.2))
        + above
        + 0.16 * len(note)
        + (0.5 if panel.title else 0.2),
    )
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.04, wspace=0.01, hspace=0.01))
    axes = figure.subplots(down, abreast, squeeze=False)
    colors = LinearSegmentedColormap.from_list("regard", ["#{:02x}{:02x}{:02x}".format(*color) for color in RAMP])
    norm = PowerNorm(limits.power, limits.low, limits.high)
    image = None
    for number, place in enumerate(axes.flat):
        if number >= len(every):
            place.set_axis_off()
            continue
        image = place.imshow(
            np.ma.masked_invalid(np.array([[np.nan if v is None else v for v in row] for row in every[number].values])),
            cmap=colors,
            norm=norm,
            aspect="auto",
            interpolation="nearest",
        )
        place.set_box_aspect(tall / wide)
        labeled = side >= _LABELED_SIDE
        edges = labeled and number < abreast, labeled and number % abreast == 0
        _finish(place, every[number], fonts, first_row=edges[0], first_column=edges[1])
    if panel.title:
        figure.suptitle(visible(panel.title), fontsize="large")
    figure.supxlabel("\n".join(note), fontsize="small")
    assert image is not None
    scale = figure.colorbar(image, ax=axes, shrink=min(1.0, 2.2 / size[1] + 0.3), aspect=24, pad=0.015)
    scale.outline.set_visible(False)
    scale.set_label(grids.scale_label(limits), fontsize="small")
    scale.ax.tick_params(labelsize="small")
    settle_texts(figure)
    return figure


def side_of(heads: int) -> float:
    """Inches of one small heatmap."""
    return next(side for most, side in ((4, 3.0), (16, 2.2), (48, 1.5), (96, 1.05), (1 << 30, 0.8)) if heads <= most)


def columns_of(heads: int, wide: float) -> int:
    """Heads side by side, in rows of similar length."""
    most = max(int((_WIDEST - 1.5) / (wide + 0.12)), 1)
    wanted = min(most, heads, math.ceil(math.sqrt(heads * 1.5)))
    return math.ceil(heads / math.ceil(heads / wanted))


def _tile(height: int, width: int, side: float) -> tuple[float, float]:
    """Height and width of a heatmap whose longer side is `side`; none is thinner than a fourth of that."""
    longest = max(height, width, 1)
    return max(side * height / longest, side / 4), max(side * width / longest, side / 4)


def _font(length: float, count: int) -> float:
    """The largest letters that fit beside the cells; 0 where none can be read."""
    size = min(length * _POINTS / max(count, 1) * 0.85, _LARGEST_FONT)
    return size if size >= _SMALLEST_FONT else 0.0


def _edges(grid: Grid) -> tuple[Sequence[str], Sequence[str]]:
    return grid.row_labels, grid.column_labels


def _room(labels: Sequence[str], font: float) -> float:
    longest = max((display_width(fit(label, _LONGEST_LABEL)) for label in labels), default=0)
    return longest * font * _LETTER / _POINTS


def _finish(axes: Axes, grid: Grid, fonts: tuple[float, float], *, first_row: bool, first_column: bool) -> None:
    axes.patch.set(facecolor="#e6e6e6")
    axes.spines[:].set_visible(False)
    axes.set_xlabel(grid.title, fontsize=7, labelpad=2)
    axes.xaxis.set_label_position("bottom")
    axes.xaxis.tick_top()
    axes.tick_params(length=0, pad=1)
    for axis, labels, font, wanted in (
        (axes.yaxis, grid.row_labels, fonts[0], first_column),
        (axes.xaxis, grid.column_labels, fonts[1], first_row),
    ):
        if wanted and not font and are_positions(labels):
            step = math.ceil(len(labels) / _POSITIONS)
            axis.set_ticks(range(0, len(labels), step), labels[::step], fontsize=6)
        elif wanted and font:
            axis.set_ticks(range(len(labels)), [fit(visible(label), _LONGEST_LABEL) for label in labels], fontsize=font)
        else:
            axis.set_ticks([])
    for text in axes.get_xticklabels():
        text.set(rotation=90)


def _hidden(every: Sequence[Grid]) -> str:
    return "; gray: hidden" if any(value is None for grid in every for row in grid.values for value in row) else ""
