"""Bars in a terminal: one line for each bar, its number before it, negative bars to the left of the zero."""

import math
from dataclasses import dataclass

from regard.inspection.number import alike
from regard.inspection.records import Bars
from regard.inspection.text import display_width, left, right
from regard.plot.color import Depth
from regard.plot.series import checked_bars, fill, legend, series_color
from regard.plot.span import Line, Span, paragraph, prose

_WIDEST = 100
_EIGHTHS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True)
class _Ruler:
    """Where bars begin and end: `low` ≤ 0 ≤ `high`, over `room` columns."""

    low: float
    high: float
    room: int

    def sides(self, height: float, block: str) -> tuple[str, str]:
        """What stands left and right of zero; an infinite bar is as long as the longest, not-a-number has none."""
        # halved, because the difference of two large numbers can exceed the largest
        span = (self.high / 2 - self.low / 2) or 1.0
        zero = round(self.room * (-self.low / 2 / span))
        share = 0.0 if math.isnan(height) else abs(min(max(height, self.low), self.high)) / 2 / span
        if height < 0:
            return (block * min(round(self.room * share), zero)).rjust(zero), ""
        eighths = min(round(self.room * share * 8), (self.room - zero) * 8)
        if block == "█":
            return " " * zero, block * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
        return " " * zero, block * ((eighths + 4) // 8)


def bar_chart(bars: Bars, width: int, depth: Depth) -> list[Line]:
    """The bars in at most `width` columns."""
    checked_bars(bars)
    width = min(width, _WIDEST)
    heights = [[float(height) for height in series] for series in bars.series.values()]
    finite = [height for series in heights for height in series if math.isfinite(height)]
    texts = alike([height for group in zip(*heights, strict=True) for height in group])
    labels = [prose(label, depth) for label in bars.labels]
    margin = min(max(map(display_width, labels), default=0), width // 3)
    digits = max(map(len, texts), default=0)
    ruler = _Ruler(min([0.0, *finite]), max([0.0, *finite]), max(width - margin - digits - 3, 1))
    wall = "|" if depth is Depth.PLAIN else "│"
    body: list[Line] = []
    for group, label in enumerate(labels):
        if group and len(heights) > 1:
            body.append([])
        for index, series in enumerate(heights):
            below, above = ruler.sides(series[group], fill(index, depth))
            edge = left(label if index == 0 else "", margin)
            color = series_color(index)
            number = right(texts[group * len(heights) + index], digits)
            body.append([Span(f"{edge} {number} "), Span(below, color), Span(wall), Span(above, color)])
    names = list(bars.series)
    signs = [fill(index, depth) for index in range(len(names))]
    return [
        *paragraph(bars.title, width, depth),
        *paragraph(bars.y_label, width, depth),
        *(legend(names, signs, width, depth) if len(names) > 1 else []),
        *body,
    ]
