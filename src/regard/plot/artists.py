"""Records on matplotlib axes. Only `figure` imports this file, when the first figure is drawn."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from regard.inspection.number import alike, nonfinite, short, uniform
from regard.inspection.records import Bars, Grid, Lines
from regard.inspection.text import display_width, fit, visible
from regard.plot import grids
from regard.plot.color import MARK, RAMP, RGB, ramp, readable_on
from regard.plot.layout import are_positions
from regard.plot.series import checked_bars, checked_lines, series_color
from regard.plot.size import (
    LETTER,
    LONGEST_LABEL,
    NUMBERED_BARS,
    box_aspect,
    cell_size,
    labels_fit_across,
    note_lines,
    sides,
    size,
    title_lines,
)

_NUMBERED = 400  # cells; more, and numbers are too small to read
_LABELED = 60
_POSITIONS = 16  # written where there are too many for all
_FRAMED = 60  # cells at a side; more, and marks are dots
_MEASURED = 10  # values on a logarithmic axis that are written instead of powers
_SMALL, _POINTS = 8.5, 72  # points: letters of many labels, and an inch
_MARKERS = "o^sDvP*"
_LEGEND_LINE = 0.11  # of the height of a chart of bars


def _web(color: RGB) -> str:
    return "#{:02x}{:02x}{:02x}".format(*color)


def heatmap(figure: Figure | SubFigure, grid: Grid) -> Axes:
    """Colored cells with rows downward as in a matrix; hidden pairs are hatched gray."""
    values = grids.cells(grid)
    height, width = grids.shape(values)
    axes = figure.subplots()
    axes.set_title("\n".join(title_lines(grid)))
    axes.set_xlabel("\n".join(note_lines(grid)), fontsize="small")
    axes.set_anchor("N")
    if not height or not width:
        axes.set_axis_off()
        axes.text(0.5, 0.5, f"empty: {height} rows, {width} columns", ha="center", va="center")
        return axes
    limits = grids.limits(grid, values)
    # infinities take the color at their end; only hidden pairs and not-a-number show the paper
    numbers = np.array([[np.nan if value is None else value for value in row] for row in values], dtype=float)
    image = axes.imshow(
        np.ma.masked_invalid(np.clip(numbers, limits.low, limits.high)),
        cmap=LinearSegmentedColormap.from_list("regard", [_web(color) for color in RAMP]),
        norm=PowerNorm(limits.power, limits.low, limits.high),
        aspect="equal" if max(height, width) <= 4 * min(height, width) else "auto",
        interpolation="nearest",
    )
    axes.patch.set(facecolor="#eeeeee", edgecolor="#c8c8c8", hatch="////", linewidth=0)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("bottom")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    font = min(cell_size(grid) * _POINTS * 0.85, _SMALL)
    _label(axes.xaxis, grid.column_labels, width, font)
    _label(axes.yaxis, grid.row_labels, height, font)
    if not labels_fit_across(grid):
        # side by side, slanted lines of text stand closer than upright ones
        upright = 24 < len(grid.column_labels) <= _LABELED and not are_positions(grid.column_labels)
        for text in axes.get_xticklabels():
            text.set(rotation=90 if upright else 45, ha="left", va="center" if upright else "baseline")
            text.set_rotation_mode("anchor")
    if not grids.is_pattern(values):
        _write_numbers(axes, values, limits)
        # an inset stays beside the cells wherever the layout puts them
        across = sides(grid)[0]
        scale = axes.inset_axes((1 + 0.12 / across, 0.0, 0.12 / across, 1.0))
        figure.colorbar(image, cax=scale, label=grids.scale_label(limits)).outline.set_visible(False)
    return axes


def marked(figure: Figure | SubFigure, grid: Grid, marks: Sequence[tuple[float, float]]) -> None:
    """The heatmap with places (row, column) marked: frames around cells, or dots where cells are small."""
    axes = heatmap(figure, grid)
    if not marks:
        return
    color = _web(MARK)
    if max(grids.shape(grid.values)) <= _FRAMED:
        for row, column in marks:
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=color, linewidth=1.8))
    else:
        rows, columns = zip(*marks, strict=True)
        axes.plot(columns, rows, linestyle="", marker=".", markersize=1.6, color=color)


def _label(axis: Axis, labels: Sequence[str], count: int, font: float) -> None:
    if not len(labels):
        axis.set_major_locator(MaxNLocator(nbins=min(count, 12), integer=True))
        return
    step = math.ceil(count / _LABELED)
    if step > 1 and are_positions(labels):
        step = _round_up(math.ceil(count / _POSITIONS))
    axis.set_ticks(
        range(0, count, step),
        [fit(visible(label), LONGEST_LABEL) for label in labels[::step]],
        fontsize="medium" if count <= 24 else _SMALL if are_positions(labels) else font,
    )


def _round_up(step: int) -> int:
    """The next of 1, 2, 5, 10, 20, 50, …"""
    power = int(10 ** (len(str(step)) - 1))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= step)


def _write_numbers(axes: Axes, values: grids.Cells, limits: grids.Limits) -> None:
    """The number in each cell of a small grid; in a large one only where a color cannot say it."""
    form = uniform(grids.shown(values))
    small = math.prod(grids.shape(values)) <= _NUMBERED
    for row, line in enumerate(values):
        for column, value in enumerate(line):
            if value is None or (math.isfinite(value) and not small):
                continue
            fraction = limits.fraction(value)
            ink = "black" if math.isnan(fraction) else _web(readable_on(ramp(fraction)))
            text = form.text(value) if math.isfinite(value) else nonfinite(value)
            label = axes.text(column, row, text, ha="center", va="center", color=ink, fontsize=8 if small else 4)
            if math.isnan(value):
                label.set_bbox({"facecolor": "white", "edgecolor": "none"})


def lines(figure: Figure | SubFigure, record: Lines) -> None:
    """Curves with a marker each and their intervals as bands."""
    checked_lines(record)
    axes = figure.subplots()
    _frame(axes, record)
    axes.set_xlabel(visible(record.x_label))
    axes.grid(alpha=0.3)
    handles: list[Artist | tuple[Artist, ...]] = []
    for index, curve in enumerate(record.lines):
        color = _web(series_color(index))
        x, y = _drawable(curve.x, record.log_x), _drawable(curve.y, record.log_y)
        mark = _MARKERS[index % len(_MARKERS)] if len(x) <= 40 else ""
        handles += axes.plot(x, y, color=color, marker=mark, markersize=4)
        if len(curve.low):
            low, high = _drawable(curve.low, False), _drawable(curve.high, False)
            axes.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0)
    xs = {float(x) for curve in record.lines for x in curve.x if math.isfinite(x) and x > 0}
    ys = {float(y) for curve in record.lines for y in curve.y if math.isfinite(y) and y > 0}
    if record.log_x and xs:
        axes.set_xscale("log")
        _plain_powers(axes.xaxis)
        if len(xs) <= _MEASURED:
            axes.set_xticks(sorted(xs), [short(x) for x in sorted(xs)])
            axes.xaxis.set_minor_locator(NullLocator())
    if record.log_y and ys:
        axes.set_yscale("log")
        _plain_powers(axes.yaxis)
    _legend(axes, handles, [curve.name for curve in record.lines])


def _plain_powers(axis: Axis) -> None:
    """Write the ticks of a logarithmic axis as in the terminal; matplotlib's own are formulas."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axis.set_minor_formatter(NullFormatter())


def _drawable(values: Sequence[float], log: bool) -> list[float]:
    """The values with a gap where the axis has no place for one."""
    return [float(v) if math.isfinite(v) and (v > 0 or not log) else math.nan for v in values]


def bars(figure: Figure | SubFigure, record: Bars) -> None:
    """Groups of upright bars; a height that is not finite is written at the foot of its place."""
    checked_bars(record)
    axes = figure.subplots()
    _frame(axes, record)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    width = 0.8 / max(len(record.series), 1)
    numbers = iter(alike([float(height) for heights in record.series.values() for height in heights]))
    few = len(record.labels) * len(record.series) <= NUMBERED_BARS
    handles: list[Artist | tuple[Artist, ...]] = []
    for index, heights in enumerate(record.series.values()):
        places = [place + (index - (len(record.series) - 1) / 2) * width for place in range(len(heights))]
        drawn = [float(height) if math.isfinite(height) else 0.0 for height in heights]
        container = axes.bar(places, drawn, width, color=_web(series_color(index)))
        handles.append(container)
        texts = [text if few or not math.isfinite(h) else "" for h, text in zip(heights, numbers, strict=False)]
        axes.bar_label(container, texts, fontsize="small", padding=2)
    labels = [fit(visible(label), LONGEST_LABEL) for label in record.labels]
    axes.set_xticks(range(len(labels)), labels)
    if (sum(map(display_width, labels)) + 2 * len(labels)) * LETTER > size(record, part=True)[0] - 0.9:
        for text in axes.get_xticklabels():
            text.set(rotation=30, ha="right", rotation_mode="anchor")
    lines = math.ceil(len(record.series) / 2) if len(record.series) > 1 else 0
    margin = 0.1 + _LEGEND_LINE * lines  # for the numbers on the bars, and the legend above them
    below = any(value < 0 for values in record.series.values() for value in values)
    axes.margins(
        y=margin / (1 - margin) if below else margin
    )  # below 0 there is a margin as well: the same share on top
    axes.axhline(0, color="black", linewidth=0.8)
    _legend(axes, handles, list(record.series), columns=2 if lines else 1)


def _frame(axes: Axes, record: Lines | Bars) -> None:
    axes.set_title("\n".join(title_lines(record)))
    axes.set_ylabel(visible(record.y_label))
    axes.set_box_aspect(box_aspect(record))
    axes.set_anchor("N")
    axes.spines[["top", "right"]].set_visible(False)


def _legend(axes: Axes, handles: Sequence[Artist | tuple[Artist, ...]], names: Sequence[str], columns: int = 1) -> None:
    if len(names) > 1 or any(names):
        axes.legend(
            list(handles),
            [visible(name) for name in names],
            loc="upper right" if columns > 1 else "best",
            ncols=columns,
            fontsize="small",
            edgecolor="none",
            framealpha=0.7,
        )
