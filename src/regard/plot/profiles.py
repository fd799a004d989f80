"""The heads of a model by their statistics: along the layers, and as maps of layer × head.

The numbers come from the table that `capture.heads()` gives, one row for each head.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from regard.inspection.records import Cell, Estimate, Grid, Line, Lines, Panel, Table
from regard.inspection.text import visible
from regard.plot import grids
from regard.plot.figure import LARGE_LINE, constrained, finish_texts, title_lines
from regard.plot.heatmap_figure import HIDDEN
from regard.plot.theme import colormap, hex_color, series_color

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROFILED = ("entropy", "distance")
_NAMES = ("layer", "head", "batch")
_UNITS = {"entropy": "entropy, nats", "distance": "distance, tokens"}
_CHART = (4.6, 3.2)  # inches
_WIDEST = 12.0
_CELL = (0.22, 0.12)  # of a head in a layer: at most and at least


@dataclass(frozen=True)
class Profile:
    """One statistic: (layer, head, value) of each head that has it, and (layer, mean over its heads)."""

    statistic: str
    heads: Sequence[tuple[int, int, float]]
    means: Sequence[tuple[int, float]]

    @property
    def label(self) -> str:
        """Its name with its unit."""
        return _UNITS.get(self.statistic, self.statistic)

    def lines(self, title: str = "") -> Lines:
        """The means as a curve, the smallest and the largest head as its interval."""
        spread = [[value for layer, _, value in self.heads if layer == at] for at, _ in self.means]
        curve = Line(
            f"mean of heads, {self.statistic}",
            [layer for layer, _ in self.means],
            [mean for _, mean in self.means],
            [min(values) for values in spread],
            [max(values) for values in spread],
        )
        return Lines([curve], "layer", self.label, title)


def statistics_of(table: Table) -> list[str]:
    """The columns that are statistics: numbers, but not those that name a row or another head."""
    return [
        name
        for place, name in enumerate(table.columns)
        if name not in _NAMES and any(isinstance(row[place], float | Estimate) for row in table.rows)
    ]


def values_of(table: Table, statistic: str) -> list[tuple[int, int, float]]:
    """(layer, head, value) in the order of layers; several rows of one head, as of a batch, are averaged."""
    layer, head, place = (list(table.columns).index(name) for name in ("layer", "head", statistic))
    by_head: dict[tuple[int, int], list[float]] = {}
    for row in table.rows:
        value = _number(row[place])
        if math.isfinite(value):
            by_head.setdefault((int(_number(row[layer])), int(_number(row[head]))), []).append(value)
    return [(*at, fmean(values)) for at, values in sorted(by_head.items())]


def profiles(table: Table, statistics: Sequence[str] = PROFILED) -> list[Profile]:
    """The statistics along the layers; those that the table lacks, or no head has, are left out."""
    _check(table)
    made = []
    for statistic in statistics:
        heads = values_of(table, statistic) if statistic in table.columns else []
        layers = sorted({layer for layer, _, _ in heads})
        if layers:
            means = [(at, fmean(value for layer, _, value in heads if layer == at)) for at in layers]
            made.append(Profile(statistic, heads, means))
    if not made:
        raise ValueError(f"the table of heads has none of {', '.join(statistics)}; it has {', '.join(table.columns)}")
    return made


def statistic_maps(table: Table, title: str = "") -> Panel:
    """Every statistic as a Grid: rows are layers, columns heads, None where there is no such head or number."""
    _check(table)
    layers, heads = (
        sorted({int(_number(row[list(table.columns).index(name)])) for row in table.rows}) for name in ("layer", "head")
    )
    statistics = []
    for statistic in statistics_of(table):
        by_head = {(layer, head): value for layer, head, value in values_of(table, statistic)}
        values = [[by_head.get((layer, head)) for head in heads] for layer in layers]
        if by_head:
            statistics.append(Grid(values, [str(n) for n in layers], [str(n) for n in heads], statistic))
    return Panel(statistics, title)


def _check(table: Table) -> None:
    missing = [name for name in ("layer", "head") if name not in table.columns]
    if missing or not table.rows:
        raise ValueError(
            f"pictures of heads need a table with a row for each head and the columns layer and head, as c.heads() "
            f"gives; got {len(table.rows)} rows of {', '.join(table.columns)}"
        )


def _number(cell: Cell) -> float:
    if isinstance(cell, Estimate):
        return cell.mean
    return float(cell) if isinstance(cell, int | float) else math.nan


def draw_profiles(profiles: Sequence[Profile], title: str = "") -> "Figure":
    """One chart for each statistic: a dot for each head at its layer, and a line through the means."""
    from matplotlib.ticker import MaxNLocator

    lines = title_lines(title, _CHART[0] * len(profiles))
    size = (_CHART[0] * len(profiles), _CHART[1] + LARGE_LINE * len(lines))
    figure = constrained(size, 0.08, 0.08)
    dots, line = (hex_color(series_color(n)) for n in (0, 3))
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
    if lines:
        figure.suptitle("\n".join(lines), fontsize="large")
    finish_texts(figure)
    return figure


def draw_maps(panel: Panel) -> "Figure":
    """The Grids as small maps, each with its own scale; gray is a head that is not there, or has no such number."""
    maps = [part for part in panel.pictures if isinstance(part, Grid)]
    if not maps:
        raise ValueError("the table of heads has no statistic to draw")
    rows, columns = grids.shape(maps[0].values)
    cell = min(max(3.0 / max(rows, columns), _CELL[1]), _CELL[0])
    wide, high = columns * cell + 1.1, rows * cell + 0.75
    abreast = min(max(int(_WIDEST / wide), 1), len(maps))
    abreast = math.ceil(len(maps) / math.ceil(len(maps) / abreast))
    down = math.ceil(len(maps) / abreast)
    title = title_lines(panel.title, max(abreast * wide, 3.6))
    size = (max(abreast * wide, 3.6), down * high + LARGE_LINE * len(title) + 0.3)
    figure = constrained(size, 0.06, 0.06)
    blank = False
    for number, axes in enumerate(figure.subplots(down, abreast, squeeze=False).flat):
        if number >= len(maps):
            axes.set_axis_off()
            continue
        grid = maps[number]
        values = np.array(grid.values, dtype=float)
        blank = blank or bool(np.isnan(values).any())
        limits = grids.limits(grid.values)
        shown = np.ma.masked_invalid(values)
        image = axes.imshow(shown, cmap=colormap(), vmin=limits.low, vmax=limits.high, aspect="equal")
        axes.patch.set(facecolor=HIDDEN)
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
    if title:
        figure.suptitle("\n".join(title), fontsize="large")
    note = "a scale for each statistic" + ("; gray: no such head, or no such number" if blank else "")
    figure.supxlabel(note, fontsize="small")
    finish_texts(figure)
    return figure
