"""Heatmaps as matplotlib figures: one Grid with labels and numbers, or many heads as small maps under one scale."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from regard.inspection.number import nonfinite, uniform
from regard.inspection.records import Grid, Panel, SignedGrid
from regard.inspection.text import display_width, fit, visible, wrap
from regard.plot import grids
from regard.plot.figure import (
    LARGE_LINE,
    LONGEST_LABEL,
    MARGIN,
    POINTS,
    WIDEST,
    constrained,
    finish_texts,
    grid_layout,
    title_lines,
)
from regard.plot.theme import MARK, colormap, hex_color, ramp, readable_on, series_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure, SubFigure

HIDDEN = "#e6e6e6"  # behind small maps
_READABLE = 4.8  # points
_NUMBERED = 400  # cells; more, and numbers are too small to read
_LABELED = 60
_POSITIONS, _SMALL_POSITIONS = 16, 4  # written where there are too many for all; the same of a small map
_FRAMED = 60  # cells at a side; more, and marks are dots
_SMALL = 8.5  # points: letters of many labels
_LETTER = 0.6  # width of a letter in heights
_LONGEST_SMALL_LABEL = 14
_LABELED_SIDE = 1.0  # inches; a smaller map has only its name
_SMALLEST_FONT, _LARGEST_FONT = 4.5, 8.0


def draw_heatmap(
    figure: "Figure | SubFigure", grid: Grid, marks: Sequence[tuple[float, float]] = (), every: bool = False
) -> None:
    """Colored cells with rows downward as in a matrix; hidden pairs are hatched gray.

    `marks` (row, column) get frames around their cells, or dots where cells are small. `every`: write every label,
    however small; else as many as can be read.
    """
    from matplotlib.colors import PowerNorm
    from matplotlib.patches import Rectangle

    values = grids.cells(grid)
    height, width = grids.shape(values)
    axes, layout = figure.subplots(), grid_layout(grid)
    axes.set_title("\n".join(layout.title))
    down, across, value = grid.names
    if across:
        axes.set(xlabel=across, ylabel=down)
        figure.supxlabel("\n".join(layout.note), fontsize="small")
    else:
        axes.set_xlabel("\n".join(layout.note), fontsize="small")
    axes.set_anchor("N")
    if not height or not width:
        axes.set_axis_off()
        axes.text(0.5, 0.5, f"empty: {height} rows, {width} columns", ha="center", va="center")
        return
    limits = grids.limits_of(grid, values)
    image = axes.imshow(
        # infinities take the color at their end; only hidden pairs and not-a-number show the paper
        np.ma.masked_invalid(np.clip(np.array(values, dtype=float), limits.low, limits.high)),
        cmap=colormap(limits.signed),
        norm=PowerNorm(limits.power, limits.low, limits.high),
        aspect="equal" if max(height, width) <= 4 * min(height, width) else "auto",
        interpolation="nearest",
    )
    axes.patch.set(facecolor="#eeeeee", edgecolor="#c8c8c8", hatch="////", linewidth=0)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top" if across else "bottom")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    font = min(layout.cell * POINTS * 0.85, _SMALL)
    _label(axes.xaxis, grid.column_labels, width, font, every)
    _label(axes.yaxis, grid.row_labels, height, font, every)
    if layout.turned:
        # side by side, slanted lines of text stand closer than upright ones
        upright = len(grid.column_labels) > 24 and not grids.are_positions(grid.column_labels)
        for text in axes.get_xticklabels():
            text.set(rotation=90 if upright else 45, ha="left", va="center" if upright else "baseline")
            text.set_rotation_mode("anchor")
    if not grids.is_pattern(values):
        _write_numbers(axes, values, limits)
        # an inset stays beside the cells wherever the layout puts them
        beside = 0.12 / layout.sides[0]
        after = MARGIN / layout.sides[0] if len(grid.margins[0]) else 0.0
        scale = axes.inset_axes((1 + beside + after, 0.0, beside, 1.0))
        figure.colorbar(image, cax=scale, label=value_label(value, limits)).outline.set_visible(False)
    _draw_margins(axes, grid, layout.sides)
    if marks:
        color = hex_color(MARK)
        if max(height, width) <= _FRAMED:
            for row, column in marks:
                axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=color, linewidth=1.8))
        else:
            rows, columns = zip(*marks, strict=True)
            axes.plot(columns, rows, linestyle="", marker=".", markersize=1.6, color=color)


def _draw_margins(axes: "Axes", grid: Grid, sides: tuple[float, float]) -> None:
    """Bars with their numbers beside the rows and below the columns, of one scale."""
    most = max([abs(float(value)) for margin in grid.margins for value in margin] or [1.0]) or 1.0
    numbers = uniform([float(value) for margin in grid.margins for value in margin])
    length, gap = 0.62 * MARGIN, 0.06
    color = hex_color(series_color(0))
    for margin, upright in zip(grid.margins, (False, True), strict=True):
        if not len(margin):
            continue
        side = sides[1] if upright else sides[0]
        place = (
            (0.0, -(length + gap) / side, 1.0, length / side) if upright else (1 + gap / side, 0.0, length / side, 1.0)
        )
        strip = axes.inset_axes(place)
        heights = [float(value) for value in margin]
        if upright:
            bars = strip.bar(range(len(heights)), heights, 0.7, color=color, alpha=0.75)
            strip.set(xlim=(-0.5, len(heights) - 0.5), ylim=(1.35 * most, 0))
        else:
            bars = strip.barh(range(len(heights)), heights, 0.7, color=color, alpha=0.75)
            strip.set(ylim=(len(heights) - 0.5, -0.5), xlim=(0, 1.35 * most))
        strip.bar_label(bars, [numbers.text(value) for value in heights], fontsize=7, padding=1)
        strip.set_axis_off()


def value_label(value: str, limits: grids.Limits) -> str:
    """What stands beside the color bar."""
    return ", ".join(each for each in (value, limits.label) if each)


def _label(axis: "Axis", labels: Sequence[str], count: int, font: float, every: bool) -> None:
    if not len(labels):
        from matplotlib.ticker import MaxNLocator

        axis.set_major_locator(MaxNLocator(nbins=min(count, 12), integer=True))
        return
    positions = grids.are_positions(labels)
    step = 1 if every or font >= _READABLE else math.ceil(_READABLE / font)
    if positions:
        step = 1 if count <= _LABELED else grids.round_up(math.ceil(count / _POSITIONS))
    axis.set_ticks(
        range(0, count, step),
        [fit(visible(label), LONGEST_LABEL) for label in labels[::step]],
        fontsize="medium" if count <= 24 else _SMALL if positions else font * step,
    )


def _write_numbers(axes: "Axes", values: grids.Cells, limits: grids.Limits) -> None:
    """The number in each cell of a small grid; in a large one only where a color cannot say it."""
    form = uniform(grids.shown(values))
    small = math.prod(grids.shape(values)) <= _NUMBERED
    for row, line in enumerate(values):
        for column, value in enumerate(line):
            if value is None or (math.isfinite(value) and not small):
                continue
            fraction = limits.fraction(value)
            ink = "black" if math.isnan(fraction) else hex_color(readable_on(ramp(fraction, signed=limits.signed)))
            text = form.text(value) if math.isfinite(value) else nonfinite(value)
            label = axes.text(column, row, text, ha="center", va="center", color=ink, fontsize=8 if small else 4)
            if math.isnan(value):
                label.set_bbox({"facecolor": "white", "edgecolor": "none"})


def draw_heads(panel: Panel, abreast: int | None = None) -> "Figure":
    """Small maps in rows of `abreast`; token labels at the left and the top of all, where they can be read."""
    from matplotlib.colors import PowerNorm

    heads = [part for part in panel.pictures if isinstance(part, Grid)]
    limits = grids.limits([row for grid in heads for row in grid.values], signed=isinstance(heads[0], SignedGrid))
    side = next(
        side for most, side in ((4, 3.0), (16, 2.2), (48, 1.5), (96, 1.05), (1 << 30, 0.8)) if len(heads) <= most
    )
    height, width = grids.shape(heads[0].values)
    # the longer side is `side`, the other no thinner than a fourth of that
    tall, wide = (max(side * count / max(height, width, 1), side / 4) for count in (height, width))
    if abreast is None:  # in rows of similar length
        most = max(int((WIDEST - 1.5) / (wide + 0.12)), 1)
        abreast = min(most, len(heads), math.ceil(math.sqrt(len(heads) * 1.5)))
        abreast = math.ceil(len(heads) / math.ceil(len(heads) / abreast))
    down = math.ceil(len(heads) / abreast)
    labeled = side >= _LABELED_SIDE
    fonts = (_font(tall, height), _font(wide, width)) if labeled else (0.0, 0.0)
    left, above = (
        max((display_width(fit(label, _LONGEST_SMALL_LABEL)) for label in labels), default=0)
        * ((font or _SMALLEST_FONT) * _LETTER / POINTS if labeled else 0.0)
        for labels, font in zip((heads[0].row_labels, heads[0].column_labels), fonts, strict=True)
    )
    across = abreast * (wide + 0.12) + left + 0.9
    hidden = any(value is None for grid in heads for row in grid.values for value in row)
    note = wrap(f"{heads[0].note}{'; gray: hidden' if hidden else ''}", max(int(across / 0.075), 20))
    title = title_lines(panel.title, across)
    high = down * (tall + (0.3 if labeled else 0.2)) + above + 0.16 * len(note) + 0.28 + LARGE_LINE * len(title)
    figure = constrained((across, high), 0.06, 0.04, wspace=0.01, hspace=0.01)
    places = figure.subplots(down, abreast, squeeze=False)
    norm = PowerNorm(limits.power, limits.low, limits.high)
    for number, axes in enumerate(places.flat):
        if number >= len(heads):
            axes.set_axis_off()
            continue
        values = np.ma.masked_invalid(np.array(heads[number].values, dtype=float))
        image = axes.imshow(values, cmap=colormap(limits.signed), norm=norm, aspect="auto", interpolation="nearest")
        axes.set_box_aspect(tall / wide)
        first_row, first_column = labeled and number < abreast, labeled and number % abreast == 0
        _finish(axes, heads[number], fonts, (tall, wide), first_row=first_row, first_column=first_column)
    down_name, across_name, _ = heads[0].names
    if labeled and down_name:
        figure.supylabel(down_name, fontsize="small")
        places[0, 0].set_title(across_name, fontsize=8, pad=3)
    if title:
        figure.suptitle("\n".join(title), fontsize="large")
    figure.supxlabel("\n".join(note), fontsize="small")
    scale = figure.colorbar(image, ax=places, shrink=min(1.0, 2.2 / high + 0.3), aspect=24, pad=0.015)
    scale.outline.set_visible(False)
    scale.set_label(value_label(heads[0].names[2], limits), fontsize="small")
    scale.ax.tick_params(labelsize="small")
    finish_texts(figure)
    return figure


def _font(length: float, count: int) -> float:
    """The largest letters that fit beside the cells; 0 where none can be read."""
    size = min(length * POINTS / max(count, 1) * 0.85, _LARGEST_FONT)
    return size if size >= _SMALLEST_FONT else 0.0


def _finish(
    axes: "Axes",
    grid: Grid,
    fonts: tuple[float, float],
    sides: tuple[float, float],
    *,
    first_row: bool,
    first_column: bool,
) -> None:
    axes.patch.set(facecolor=HIDDEN)
    axes.spines[:].set_visible(False)
    axes.set_xlabel(f"head {grid.title}" if grid.title.isdecimal() else grid.title, fontsize=7, labelpad=2)
    axes.xaxis.set_label_position("bottom")
    axes.xaxis.tick_top()
    axes.tick_params(length=0, pad=1)
    for axis, labels, font, labeled, side in (
        (axes.yaxis, grid.row_labels, fonts[0], first_column, sides[0]),
        (axes.xaxis, grid.column_labels, fonts[1], first_row, sides[1]),
    ):
        if labeled and not font and grids.are_positions(labels):
            step = math.ceil(len(labels) / _SMALL_POSITIONS)
            axis.set_ticks(range(0, len(labels), step), labels[::step], fontsize=6)
        elif labeled and not font:  # tokens as far apart as letters are high
            step = math.ceil(len(labels) * _SMALLEST_FONT / POINTS / 0.85 / side)
            texts = [fit(visible(label), _LONGEST_SMALL_LABEL) for label in labels[::step]]
            axis.set_ticks(range(0, len(labels), step), texts, fontsize=_SMALLEST_FONT)
        elif labeled and font:
            texts = [fit(visible(label), _LONGEST_SMALL_LABEL) for label in labels]
            axis.set_ticks(range(len(labels)), texts, fontsize=font)
        else:
            axis.set_ticks([])
    for text in axes.get_xticklabels():
        text.set(rotation=90)
