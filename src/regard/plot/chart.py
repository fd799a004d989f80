"""Curves with intervals and markers between two axes: in a terminal of braille dots, and as a figure."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from regard.inspection.number import short, uniform
from regard.inspection.records import Line as Curve
from regard.inspection.records import Lines
from regard.inspection.text import center, fit, right, visible
from regard.plot.figure import draw_frame, draw_legend
from regard.plot.terminal import Line, Span, legend, paragraph, prose
from regard.plot.theme import Depth, hex_color, marker, series_color, shading

if TYPE_CHECKING:
    import matplotlib.axis
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure, SubFigure

_LONGEST = 9  # characters of a tick's label
_HAIR = 0.05  # of a step
_FIGURE_MARKERS = "o^sDvP*"
_MEASURED = 10  # values on a logarithmic axis that are written instead of powers


@dataclass(frozen=True)
class Axis:
    """From `low` to `high`, both finite and different; a logarithmic axis is positive."""

    low: float
    high: float
    log: bool = False

    def holds(self, value: float) -> bool:
        """Whether the axis has a place for this value at all."""
        return math.isfinite(value) and (value > 0 or not self.log)

    def at(self, value: float) -> float:
        """The place of `value`: 0 at low, 1 at high."""
        low, high, place = (_place(v, self.log) for v in (self.low, self.high, value))
        return min(max((place - low) / (high - low), 0.0), 1.0)

    def rounded(self, count: int) -> "Axis":
        """The axis extended to the next round values, if it is straight."""
        step = self._step(count)
        if self.log or step <= 0:
            return self
        low = math.floor(self.low / step + _HAIR) * step
        high = math.ceil(self.high / step - _HAIR) * step
        # a value a hair beyond a round one stays on the axis without a whole step for it
        low, high = min(low, self.low), max(high, self.high)
        return Axis(low, high) if math.isfinite(low) and math.isfinite(high) else self

    def ticks(self, count: int) -> list[float]:
        """About `count` round values inside the axis; its ends where there are none."""
        ticks = self._powers(count) if self.log else self._multiples(count)
        return ticks if len(ticks) > 1 else [self.low, self.high]

    def labels(self, ticks: Iterable[float]) -> list[str]:
        """The ticks in digits, alike on a straight axis."""
        ticks = list(ticks)
        if self.log or len(ticks) < 2:
            return [short(tick) for tick in ticks]
        gap = min(abs(b - a) for a, b in pairwise(ticks))
        # a hair more than the gap, so that a step of 0.1 a rounding below asks for one decimal, not two
        form = uniform(ticks, resolution=gap * 1.001 or 1.0)
        labels = [form.text(tick) for tick in ticks]
        return labels if max(map(len, labels)) <= _LONGEST else [short(tick) for tick in ticks]

    def _step(self, count: int) -> float:
        span = self.high / count - self.low / count
        if not span > 1e-300:
            return 0.0
        power = 10.0 ** math.floor(math.log10(span))
        return next((power * factor for factor in (1, 2, 5, 10) if power * factor >= span * 0.999), 0.0)

    def _multiples(self, count: int) -> list[float]:
        step = self._step(count)
        if step <= 0:
            return []
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, min(last, first + 4 * count) + 1)]

    def _powers(self, count: int) -> list[float]:
        first, last = math.floor(math.log10(self.low)), min(math.ceil(math.log10(self.high)), 308)
        stride = max(1, math.ceil((last - first) / count))
        factors = (1, 2, 5) if last - first <= 2 else (1,)
        values = (factor * 10.0**power for power in range(first, last + 1, stride) for factor in factors)
        return [value for value in values if self.low * (1 - 1e-9) <= value <= self.high * (1 + 1e-9)]


def axis_over(values: Iterable[float], log: bool) -> Axis:
    """The axis that reaches from the least to the greatest of the values it can hold."""
    shown = [float(value) for value in values if math.isfinite(value) and (value > 0 or not log)]
    low, high = min(shown, default=1.0), max(shown, default=1.0)
    if _place(low, log) < _place(high, log):
        return Axis(low, high, log)
    if log:
        return Axis(max(low / 2, 5e-324), min(high * 2, 1e308), log)
    room = abs(low) / 2 or 1.0
    return Axis(low - room if low > -1e308 else low, high + room if high < 1e308 else high)


def _place(value: float, log: bool) -> float:
    # quartered, because the distance between two large numbers can exceed the largest
    return math.log10(value) if log else value / 4


_BRAILLE = 0x2800
# the bit of each dot in a braille character, by row and column
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))

Place = tuple[int, int]  # column and row of a character, from the top left


@dataclass(frozen=True)
class Frame:
    """The area of a chart: its size in characters and its axes."""

    width: int
    height: int
    x: Axis
    y: Axis

    def column(self, x: float) -> int:
        """The column of dots at `x`; a character has two."""
        return round(self.x.at(x) * (2 * self.width - 1))

    def row(self, y: float) -> int:
        """The row of dots at `y`, from the top; a character has four."""
        return round((1 - self.y.at(y)) * (4 * self.height - 1))


@dataclass
class Canvas:
    """A chart being drawn: per character its dots, a glyph that replaces them, and the series that came last."""

    frame: Frame
    depth: Depth
    dots: dict[Place, int] = field(default_factory=dict)
    glyphs: dict[Place, str] = field(default_factory=dict)
    owner: dict[Place, int] = field(default_factory=dict)

    def span(self, place: Place) -> Span:
        """The finished character in the color of its series."""
        if place not in self.owner:
            return Span(" ")
        dots = self.dots.get(place, 0)
        drawn = "." if self.depth is Depth.PLAIN else chr(_BRAILLE + dots)
        return Span(self.glyphs.get(place) or drawn, series_color(self.owner[place]))

    def band(self, curve: Curve, series: int) -> None:
        """Shade the interval of a curve; dots drawn later cover it."""
        for (x0, low0, high0), (x1, low1, high1) in pairwise(zip(curve.x, curve.low, curve.high, strict=False)):
            if not self._holds((x0, low0), (x0, high0), (x1, low1), (x1, high1)):
                continue
            lows = self._steps((x0, low0), (x1, low1))
            highs = dict(self._steps((x0, high0), (x1, high1)))
            for column, bottom in lows:
                for row in range(highs.get(column, bottom) // 4, bottom // 4 + 1):
                    self.glyphs[column // 2, row] = shading(self.depth)
                    self.owner[column // 2, row] = series

    def curve(self, curve: Curve, series: int) -> int:
        """Draw lines between neighboring points; returns how many points have no place on the axes."""
        points = list(zip(curve.x, curve.y, strict=True))
        for start, stop in pairwise(points):
            if self._holds(start, stop):
                for column, row in self._segment(start, stop):
                    self._dot(column, row, series)
        for point in curve.points:
            if self._holds(point):
                self._dot(self.frame.column(point[0]), self.frame.row(point[1]), series)
        return sum(not self._holds(point) for point in points)

    def markers(self, curve: Curve, series: int) -> None:
        """Put the sign of the series on its points, at least four columns apart."""
        last = -8
        for x, y in zip(curve.x, curve.y, strict=True):
            if self._holds((x, y)) and abs(self.frame.column(x) - last) >= 8:
                last = self.frame.column(x)
                place = last // 2, self.frame.row(y) // 4
                self.glyphs[place] = marker(series, self.depth)
                self.owner[place] = series

    def _holds(self, *points: tuple[float, float]) -> bool:
        return all(self.frame.x.holds(x) and self.frame.y.holds(y) for x, y in points)

    def _dot(self, column: int, row: int, series: int) -> None:
        place = column // 2, row // 4
        self.glyphs.pop(place, None)
        self.dots[place] = self.dots.get(place, 0) | _DOTS[row % 4][column % 2]
        self.owner[place] = series

    def _segment(self, start: tuple[float, float], stop: tuple[float, float]) -> Iterator[Place]:
        left, top = self.frame.column(start[0]), self.frame.row(start[1])
        right, bottom = self.frame.column(stop[0]), self.frame.row(stop[1])
        count = max(abs(right - left), abs(bottom - top), 1)
        for step in range(count + 1):
            yield left + round((right - left) * step / count), top + round((bottom - top) * step / count)

    def _steps(self, start: tuple[float, float], stop: tuple[float, float]) -> list[Place]:
        """One row for each column of dots between two points."""
        return list(dict(self._segment(start, stop)).items())


_WIDEST = 100
_TICKS = 5


def chart(lines: Lines, width: int, depth: Depth) -> list[Line]:
    """The curves in at most `width` columns."""
    check_lines(lines)
    width = min(width, _WIDEST)
    x_axis = axis_over((x for curve in lines.lines for x in curve.x), lines.log_x)
    y_axis = axis_over((y for curve in lines.lines for y in _heights(curve)), lines.log_y)
    y_axis = y_axis.rounded(_TICKS)
    margin = max(map(len, y_axis.labels(y_axis.ticks(_TICKS)))) + 1
    frame = Frame(max(width - margin - 1, 1), max(10, min(width // 4, 20)), x_axis, y_axis)
    canvas = Canvas(frame, depth)
    for index, curve in enumerate(lines.lines):
        canvas.band(curve, index)
    missing = sum(canvas.curve(curve, index) for index, curve in enumerate(lines.lines))
    for index, curve in enumerate(lines.lines):
        canvas.markers(curve, index)
    banded = f"   {shading(depth)} interval" if any(len(curve.low) for curve in lines.lines) else ""
    if not banded and any(curve.points for curve in lines.lines):
        banded = "   dots: runs"
    signs = [marker(index, depth) for index in range(len(lines.lines))]
    remark = f"{missing} points have no place here: not finite, or not positive on a log axis." if missing else ""
    return [
        *paragraph(lines.title, width, depth),
        *legend([curve.name for curve in lines.lines], signs, width, depth),
        [Span(fit(prose(lines.y_label, depth), width - len(banded)) + banded)],
        *_body(canvas, margin, depth),
        *_floor(lines, frame, margin, depth),
        [Span(" " * (margin + 1) + center(fit(prose(lines.x_label, depth), frame.width), frame.width))],
        *paragraph(remark, width, depth),
    ]


def _heights(curve: Curve) -> tuple[float, ...]:
    return (*curve.y, *curve.low, *curve.high, *(y for _, y in curve.points))


def _body(canvas: Canvas, margin: int, depth: Depth) -> list[Line]:
    frame = canvas.frame
    ticks = frame.y.ticks(_TICKS)
    marked = dict(zip((frame.row(tick) // 4 for tick in ticks), frame.y.labels(ticks), strict=True))
    wall, notch = ("|", "+") if depth is Depth.PLAIN else ("│", "┤")
    return [
        [
            Span(right(marked.get(row, ""), margin) + (notch if row in marked else wall)),
            *(canvas.span((column, row)) for column in range(frame.width)),
        ]
        for row in range(frame.height)
    ]


def _floor(lines: Lines, frame: Frame, margin: int, depth: Depth) -> list[Line]:
    """The lower axis and the values below it; measured points are marked if they are few."""
    corner, ground, notch = ("+", "-", "+") if depth is Depth.PLAIN else ("└", "─", "┬")
    floor = [ground] * frame.width
    texts = ""
    for tick, label in _x_ticks(lines, frame.x):
        column = frame.column(tick) // 2
        start = min(max(column - len(label) // 2, 0), max(frame.width - len(label), 0))
        if (texts and start <= len(texts)) or start + len(label) > frame.width:
            continue
        floor[column] = notch
        texts = texts.ljust(start) + label
    indent = " " * margin
    return [[Span(indent + corner + "".join(floor))], [Span(indent + " " + texts)]]


def _x_ticks(lines: Lines, axis: Axis) -> list[tuple[float, str]]:
    measured = sorted({float(x) for curve in lines.lines for x in curve.x if axis.holds(x)})
    if 0 < len(measured) <= 2 * _TICKS:
        return [(x, short(x)) for x in measured]
    ticks = axis.ticks(_TICKS)
    return list(zip(ticks, axis.labels(ticks), strict=True))


def check_lines(lines: Lines) -> None:
    """Raise unless every curve has a y, and an interval or none, for each x."""
    for curve in lines.lines:
        sizes = len(curve.x), len(curve.y), len(curve.low), len(curve.high)
        if sizes[1] != sizes[0] or sizes[2] not in (0, sizes[0]) or sizes[3] != sizes[2]:
            raise ValueError(
                f"a Line has a y for each x, and low and high for each or for none; line {curve.name!r} has "
                f"{sizes[0]} x, {sizes[1]} y, {sizes[2]} low, {sizes[3]} high"
            )


def draw_chart(figure: "Figure | SubFigure", record: Lines) -> None:
    """Curves with a marker each and their intervals as bands, or single runs as small points."""
    check_lines(record)
    axes = figure.subplots()
    draw_frame(axes, record)
    axes.set_xlabel(visible(record.x_label))
    axes.grid(alpha=0.3)
    handles: list[Artist | tuple[Artist, ...]] = []
    for index, curve in enumerate(record.lines):
        color = hex_color(series_color(index))
        x, y = _drawable(curve.x, record.log_x), _drawable(curve.y, record.log_y)
        if record.histogram:
            axes.fill_between(x, y, step="mid", color=color, alpha=0.25, linewidth=0)
            handles += axes.plot(x, y, color=color, drawstyle="steps-mid", linewidth=1.2)
            continue
        mark = _FIGURE_MARKERS[index % len(_FIGURE_MARKERS)] if len(x) <= 40 else ""
        handles += axes.plot(x, y, color=color, marker=mark, markersize=4)
        if len(curve.low):
            low, high = _drawable(curve.low, False), _drawable(curve.high, False)
            axes.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0)
        if curve.points:
            runs = zip(*curve.points, strict=True)
            at, to = (_drawable(run, log) for run, log in zip(runs, (record.log_x, record.log_y), strict=True))
            axes.scatter(at, to, s=9, color=color, alpha=0.45, linewidths=0)
    xs = {float(x) for curve in record.lines for x in curve.x if math.isfinite(x) and x > 0}
    ys = {float(y) for curve in record.lines for y in curve.y if math.isfinite(y) and y > 0}
    if record.log_x and xs:
        axes.set_xscale("log")
        _plain_powers(axes.xaxis)
        if len(xs) <= _MEASURED:
            axes.set_xticks(sorted(xs), [short(x) for x in sorted(xs)])
            axes.xaxis.minorticks_off()
    if record.log_y and ys:
        axes.set_yscale("log")
        _plain_powers(axes.yaxis)
    if record.histogram:
        axes.set_ylim(bottom=0)
    draw_legend(axes, handles, record)


def _plain_powers(axis: "matplotlib.axis.Axis") -> None:
    """Write the ticks of a logarithmic axis as in the terminal; matplotlib's own are formulas."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axis.set_minor_formatter(NullFormatter())


def _drawable(values: Sequence[float], log: bool) -> list[float]:
    """The values with a gap where the axis has no place for one."""
    return [float(v) if math.isfinite(v) and (v > 0 or not log) else math.nan for v in values]
