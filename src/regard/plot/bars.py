"""Bars: in a terminal one line for each bar, negative ones left of the zero; in a figure groups of upright bars."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard.inspection.number import alike
from regard.inspection.records import Bars
from regard.inspection.text import display_width, fit, left, right, visible
from regard.plot.figure import LETTER, LONGEST_LABEL, NUMBERED_BARS, draw_frame, draw_legend, size
from regard.plot.terminal import Line, Span, legend, paragraph, prose
from regard.plot.theme import Depth, fill, hex_color, series_color

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure, SubFigure

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
    check_bars(bars)
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


def check_bars(bars: Bars) -> None:
    """Raise unless every series has a height for each label."""
    for name, heights in bars.series.items():
        if len(heights) != len(bars.labels):
            raise ValueError(
                f"Bars have a height for each label; series {name!r} has {len(heights)} for {len(bars.labels)} labels"
            )


def draw_bars(figure: "Figure | SubFigure", record: Bars) -> None:
    """Groups of upright bars; a height that is not finite is written at the foot of its place."""
    check_bars(record)
    axes = figure.subplots()
    draw_frame(axes, record)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    width = 0.8 / max(len(record.series), 1)
    numbers = iter(alike([float(height) for heights in record.series.values() for height in heights]))
    few = len(record.labels) * len(record.series) <= NUMBERED_BARS
    handles: list[Artist | tuple[Artist, ...]] = []
    for index, heights in enumerate(record.series.values()):
        places = [place + (index - (len(record.series) - 1) / 2) * width for place in range(len(heights))]
        drawn = [float(height) if math.isfinite(height) else 0.0 for height in heights]
        container = axes.bar(places, drawn, width, color=hex_color(series_color(index)))
        handles.append(container)
        texts = [text if few or not math.isfinite(h) else "" for h, text in zip(heights, numbers, strict=False)]
        axes.bar_label(container, texts, fontsize="small", padding=2)
    labels = [fit(visible(label), LONGEST_LABEL) for label in record.labels]
    axes.set_xticks(range(len(labels)), labels)
    if (sum(map(display_width, labels)) + 2 * len(labels)) * LETTER > size(record, part=True)[0] - 0.9:
        for text in axes.get_xticklabels():
            text.set(rotation=30, ha="right", rotation_mode="anchor")
    margin = 0.1  # for the numbers on the bars
    below = any(value < 0 for values in record.series.values() for value in values)
    # below 0 there is a margin as well: the same share on top
    axes.margins(y=margin / (1 - margin) if below else margin)
    axes.axhline(0, color="black", linewidth=0.8)
    draw_legend(axes, handles, record)
