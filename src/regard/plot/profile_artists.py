"""Statistics of heads on a matplotlib figure. Imported when one is drawn."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from regard.inspection.records import Grid, Panel
from regard.inspection.text import visible
from regard.plot import grids
from regard.plot.color import RAMP
from regard.plot.figure import settle_texts
from regard.plot.profiles import Profile
from regard.plot.series import series_color

_CHART = (4.6, 3.2)  # inches
_WIDEST = 12.0
_CELL = (0.22, 0.12)  # of a head in a layer: at most and at least
_HIDDEN = "#e6e6e6"


def draw_profiles(profiles: Sequence[Profile], title: str = "") -> Figure:
    """One chart for each statistic: a dot for each head at its layer, and a line through the means."""
    size = (_CHART[0] * len(profiles), _CHART[1] + (0.3 if title else 0.0))
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08))
    dots, line = ("#{:02x}{:02x}{:02x}".format(*series_color(n)) for n in (0, 3))
    for axes, profile in zip(np.atleast_1d(figure.subplots(1, len(profiles))), profiles, strict=True):
        layers, values = [layer for layer, _, _ in profile.heads], [value for _, _, value in profile.heads]
        axes.plot(layers, values, linestyle="", marker="o", markersize=4.5, alpha=0.45, markeredgewidth=0, color=dots)
        axes.plot(*zip(*profile.means, strict=True), color=line, marker="D", markersize=3.5, linewidth=1.6)
        axes.set(xlabel="layer", ylabel=visible(profile.label))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        low, high = min(0.0, *values), max(values)
        axes.set_ylim(low, high + 0.05 * (high - low or 1.0))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(axes.get_lines(), ["one head", "mean of the layer"], fontsize="small", edgecolor="none")
    if title:
        figure.suptitle(visible(title), fontsize="large")
    settle_texts(figure)
    return figure


def draw_maps(panel: Panel) -> Figure:
    """The Grids as small maps, each with its own scale; gray is a head that is not there, or has no such number."""
    every = [part for part in panel.pictures if isinstance(part, Grid)]
    if not every:
        raise ValueError("the table of heads has no statistic to draw")
    rows, columns = grids.shape(every[0].values)
    cell = min(max(3.0 / max(rows, columns), _CELL[1]), _CELL[0])
    wide, high = columns * cell + 1.1, rows * cell + 0.75
    abreast = min(max(int(_WIDEST / wide), 1), len(every))
    abreast = math.ceil(len(every) / math.ceil(len(every) / abreast))
    down = math.ceil(len(every) / abreast)
    size = (max(abreast * wide, 3.6), down * high + (0.35 if panel.title else 0.0) + 0.2)
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06))
    colors = LinearSegmentedColormap.from_list("regard", ["#{:02x}{:02x}{:02x}".format(*color) for color in RAMP])
    blank = False
    for number, axes in enumerate(figure.subplots(down, abreast, squeeze=False).flat):
        if number >= len(every):
            axes.set_axis_off()
            continue
        grid = every[number]
        values = np.array([[np.nan if value is None else value for value in row] for row in grid.values])
        blank = blank or bool(np.isnan(values).any())
        limits = grids.limits(Grid([]), grid.values)
        image = axes.imshow(
            np.ma.masked_invalid(values), cmap=colors, vmin=limits.low, vmax=limits.high, aspect="equal"
        )
        axes.patch.set(facecolor=_HIDDEN)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, labelsize=7)
        for axis, labels in ((axes.yaxis, grid.row_labels), (axes.xaxis, grid.column_labels)):
            step = math.ceil(len(labels) * 0.14 / (len(labels) * cell))
            axis.set_ticks(range(0, len(labels), step), labels[::step])
        axes.set_title(visible(grid.title), fontsize=9)
        axes.set_xlabel("head", fontsize=7, labelpad=1)
        axes.set_ylabel("layer", fontsize=7, labelpad=1)
        scale = figure.colorbar(image, ax=axes, shrink=0.9, aspect=18, pad=0.02)
        scale.outline.set_visible(False)
        scale.ax.tick_params(labelsize=6, length=2)
    if panel.title:
        figure.suptitle(visible(panel.title), fontsize="large")
    note = "a scale for each statistic" + ("; gray: no such head, or no such number" if blank else "")
    figure.supxlabel(note, fontsize="small")
    settle_texts(figure)
    return figure
