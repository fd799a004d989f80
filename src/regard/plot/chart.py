"""Lines in a terminal: curves, their intervals and markers between two axes."""

from regard.inspection.number import short
from regard.inspection.records import Lines
from regard.inspection.text import center, fit, right
from regard.plot.axis import Axis, axis_over
from regard.plot.canvas import Canvas, Frame
from regard.plot.color import Depth
from regard.plot.series import checked_lines, legend, marker, shading
from regard.plot.span import Line, Span, paragraph, prose

_WIDEST = 100
_TICKS = 5


def chart(lines: Lines, width: int, depth: Depth) -> list[Line]:
    """The curves in at most `width` columns."""
    checked_lines(lines)
    width = min(width, _WIDEST)
    x_axis = axis_over((x for curve in lines.lines for x in curve.x), lines.log_x)
    y_axis = axis_over((y for curve in lines.lines for y in (*curve.y, *curve.low, *curve.high)), lines.log_y)
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
