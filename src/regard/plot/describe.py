"""What is seen in a picture, in words: for readers who cannot see it."""

import math

from regard.inspection.number import short
from regard.inspection.records import Bars, Diagram, Grid, Image, Line, Lines, Panel, Picture
from regard.inspection.text import visible

_EACH_BAR = 16  # bars that are told one by one
_TURN = 0.05  # of the height of a curve: less is no turn


def describe(picture: Picture) -> str:
    """Kind and title of the picture and what its numbers show, as text without markup."""
    match picture:
        case Panel():
            parts = [describe(part) for part in picture.pictures]
            said = " ".join(f"{number}. {part}" for number, part in enumerate(parts, 1)) if len(parts) > 1 else parts[0]
            text = f"{picture.title}. {said}" if picture.title else said
        case Grid():
            text = _grid(picture)
        case Lines():
            text = _lines(picture)
        case Bars():
            text = _bars(picture)
        case Diagram():
            text = _diagram(picture)
        case Image():
            text = _image(picture)
    return visible(" ".join(text.split()))


def _named(kind: str, title: str) -> str:
    return f"{kind}, {title}:" if title else f"{kind}:"


def _grid(grid: Grid) -> str:
    cells = [
        (float(value), row, column)
        for row, line in enumerate(grid.values)
        for column, value in enumerate(line)
        if value is not None and math.isfinite(value)
    ]
    text = (
        f"{_named('Heat map', grid.title)} {len(grid.values)} rows, {len(grid.values[0]) if grid.values else 0} columns"
    )
    hidden = sum(value is None for line in grid.values for value in line)
    text += f", {hidden} cells empty" if hidden else ""
    if cells:
        places = [
            f"{end} {short(value)} at {_label(grid.row_labels, row)}, {_label(grid.column_labels, column)}"
            for end, (value, row, column) in (("largest", max(cells)), ("smallest", min(cells)))
        ]
        text += f"; {'; '.join(places)}" if max(cells)[0] > min(cells)[0] else f"; all {short(cells[0][0])}"
    for name, margin in zip(("rows", "columns"), grid.margins, strict=True):
        if len(margin):
            text += f"; bars at the {name} from {short(min(margin))} to {short(max(margin))}"
    return f"{text}."


def _label(labels: object, index: int) -> str:
    names = list(labels) if hasattr(labels, "__iter__") else []
    return f"“{names[index]}”" if names else str(index + 1)


def _lines(lines: Lines) -> str:
    kind = "Histograms" if lines.histogram else "Line chart"
    told = " ".join(each for line in lines.lines if (each := _curve(line, lines.histogram)))
    return f"{_named(kind, lines.title)} {lines.y_label} against {lines.x_label}. {told}"


def _curve(line: Line, histogram: bool) -> str:
    points = [(float(x), float(y)) for x, y in zip(line.x, line.y, strict=True) if math.isfinite(y)]
    name = f"{line.name}: " if line.name else ""
    if not points:
        return ""
    high = max(points, key=lambda point: point[1])
    if histogram:
        inside = [x for x, y in points if y > high[1] / 2]
        return f"{name}highest at {short(high[0])}, above half of that from {short(inside[0])} to {short(inside[-1])}."
    first, last, low = points[0], points[-1], min(points, key=lambda point: point[1])
    text = f"{name}{_point(first)}"
    reach = _TURN * (high[1] - low[1])
    turns = sorted(
        {
            (point, word)
            for point, word, beyond in (
                (high, "highest", high[1] - max(first[1], last[1])),
                (low, "lowest", min(first[1], last[1]) - low[1]),
            )
            if beyond > reach
        }
    )
    text += "".join(f", {word} {_point(point)}" for point, word in turns)
    return f"{text}, {_point(last)}." if len(points) > 1 else f"{text}."


def _point(point: tuple[float, float]) -> str:
    return f"{short(point[1])} at {short(point[0])}"


def _bars(bars: Bars) -> str:
    told = []
    for name, heights in bars.series.items():
        pairs = list(zip(heights, bars.labels, strict=True))
        if len(bars.labels) * len(bars.series) <= _EACH_BAR:
            said = ", ".join(f"{label} {short(height)}" for height, label in pairs)
        else:
            ends = (("highest", max(pairs)), ("lowest", min(pairs)))
            said = ", ".join(f"{word} {label} with {short(height)}" for word, (height, label) in ends)
        told.append(f"{name}: {said}." if name else f"{said}.")
    return f"{_named('Bar chart', bars.title)} {bars.y_label}. {' '.join(told)}"


def _image(image: Image) -> str:
    size = f"{len(image.pixels)} × {len(image.pixels[0]) if len(image.pixels) else 0} pixels"
    framed = [f"{_label(image.row_labels, row)}, {_label(image.column_labels, column)}" for row, column in image.marks]
    told = [f"framed: {' and '.join(framed)}"] if framed else []
    return f"{_named('Image', image.title)} {'; '.join([size, *told, *([image.note] if image.note else [])])}."


def _diagram(diagram: Diagram) -> str:
    names = [" ".join(box.text.split()) for box in diagram.boxes]
    joined = {end for arrow in diagram.arrows for end in (arrow.start, arrow.stop)}
    told = [name for number, name in enumerate(names) if number not in joined and name]
    told += [
        f"{names[arrow.start]} → {f'({arrow.text}) ' if arrow.text else ''}{names[arrow.stop]}"
        for arrow in diagram.arrows
    ]
    return f"{_named('Diagram', diagram.title)} {'; '.join(told)}."
