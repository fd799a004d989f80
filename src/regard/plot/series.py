"""What pictures of several series share: checked data, a color and a sign for each series, a legend."""

from collections.abc import Sequence

from regard.inspection.records import Bars, Lines
from regard.inspection.text import fit
from regard.plot.color import RGB, SERIES, Depth
from regard.plot.span import Line, Span, line_width, prose

_MARKERS = "●▲■◆○△□"
_FILLS = "█▒░▓"
_PLAIN_MARKERS = "ox+*#@%"
_PLAIN_FILLS = "#=-+"


def series_color(index: int) -> RGB:
    """The color of a series, the same in every picture."""
    return SERIES[index % len(SERIES)]


def marker(index: int, depth: Depth) -> str:
    """The sign of a curve, so that color is never the only difference."""
    signs = _PLAIN_MARKERS if depth is Depth.PLAIN else _MARKERS
    return signs[index % len(signs)]


def fill(index: int, depth: Depth) -> str:
    """What a bar is made of: whole blocks where there is color, else a pattern for each series."""
    signs = _PLAIN_FILLS if depth is Depth.PLAIN else _FILLS[:1] if depth.colored else _FILLS
    return signs[index % len(signs)]


def shading(depth: Depth) -> str:
    """What the interval of a curve is filled with."""
    return ":" if depth is Depth.PLAIN else "░"


def legend(names: Sequence[str], signs: Sequence[str], width: int, depth: Depth) -> list[Line]:
    """Sign and name of each series in at most `width` columns; nothing for a single series without a name."""
    lines: list[list[Span]] = []
    if len(names) == 1 and not names[0]:
        return []
    for index, (name, sign) in enumerate(zip(names, signs, strict=True)):
        entry = [Span(sign, series_color(index)), Span(" " + fit(prose(name, depth), width - 2))]
        if lines and line_width(lines[-1]) + 3 + line_width(entry) <= width:
            lines[-1] += [Span("   "), *entry]
        else:
            lines.append(entry)
    return [*lines]


def checked_lines(lines: Lines) -> Lines:
    """The same lines, once it is certain that every curve has a y, and an interval or none, for each x."""
    for curve in lines.lines:
        sizes = len(curve.x), len(curve.y), len(curve.low), len(curve.high)
        if sizes[1] != sizes[0] or sizes[2] not in (0, sizes[0]) or sizes[3] != sizes[2]:
            raise ValueError(
                f"a Line has a y for each x, and low and high for each or for none; line {curve.name!r} has "
                f"{sizes[0]} x, {sizes[1]} y, {sizes[2]} low, {sizes[3]} high"
            )
    return lines


def checked_bars(bars: Bars) -> Bars:
    """The same bars, once it is certain that every series has a height for each label."""
    for name, heights in bars.series.items():
        if len(heights) != len(bars.labels):
            raise ValueError(
                f"Bars have a height for each label; series {name!r} has {len(heights)} for {len(bars.labels)} labels"
            )
    return bars
