"""Curves on a raster of characters: eight braille dots in each, or one full stop on a plain terminal."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from regard.inspection.records import Line as Curve
from regard.plot.axis import Axis
from regard.plot.color import Depth
from regard.plot.series import marker, series_color, shading
from regard.plot.span import Span

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
