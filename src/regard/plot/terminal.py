"""The terminal canvas: colored spans form lines, lines form blocks that stand side by side, then escape codes."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from regard.inspection.text import display_width, fit, visible, wrap
from regard.plot.theme import RGB, Depth, nearest_256, series_color

NARROWEST, SHORTEST = 20, 8  # columns and lines of a picture
_PLAIN_SIGNS = str.maketrans(
    {"×": "x", "÷": "/", "√": "sqrt ", "²": "^2", "−": "-", "·": "*", "∂": "d", "τ": "tau", "≤": "<=", "≥": ">="}
)


def window() -> tuple[int, int | None]:
    """Columns and lines of the terminal, less one for the prompt; no limit of lines where output is not a terminal."""
    size = shutil.get_terminal_size()
    return max(size.columns, NARROWEST), max(size.lines - 1, SHORTEST) if sys.stdout.isatty() else None


def check_window(width: int, height: int | None) -> None:
    """Raise if a picture has too little room."""
    if width < NARROWEST or (height is not None and height < SHORTEST):
        raise ValueError(
            f"a picture needs {NARROWEST} columns and {SHORTEST} lines at least, got {width} columns and {height} lines"
        )


@dataclass(frozen=True)
class Span:
    """Text with the color of its letters (`ink`) and of what is behind them (`paper`); None is the terminal's own."""

    text: str
    ink: RGB | None = None
    paper: RGB | None = None


Line = Sequence[Span]
Block = Sequence[Line]


def line_width(line: Line) -> int:
    """Columns the line takes."""
    return sum(display_width(span.text) for span in line)


def block_width(block: Block) -> int:
    """Columns of the widest line."""
    return max((line_width(line) for line in block), default=0)


def paragraph(text: str, width: int, depth: Depth) -> list[Line]:
    """Untrusted prose in lines of at most `width` columns."""
    return [[Span(line)] for line in wrap(prose(text, depth), width)]


def prose(text: str, depth: Depth) -> str:
    """Untrusted text made safe to print at this depth; on a plain terminal, signs of formulas are spelled in ASCII."""
    plain = depth is Depth.PLAIN
    text = text.replace("\n", " ")
    return visible(text.translate(_PLAIN_SIGNS) if plain else text, ascii_only=plain)


def padded(block: Block, width: int) -> list[Line]:
    """Every line filled with spaces to exactly `width` columns."""
    return [[*line, Span(" " * (width - line_width(line)))] for line in block]


def beside(blocks: Sequence[Block], gap: int) -> list[Line]:
    """The blocks next to each other, tops aligned."""
    height = max((len(block) for block in blocks), default=0)
    columns = [padded([*block, *([[]] * (height - len(block)))], block_width(block)) for block in blocks]
    joined: list[Line] = []
    for lines in zip(*columns, strict=True):
        row: list[Span] = []
        for line in lines:
            row += [Span(" " * gap), *line] if row else line
        joined.append(row)
    return joined


def written(block: Block, depth: Depth) -> str:
    """The block as a string: lines of equal display width, colors as escape codes that end with each line."""
    text = "\n".join(_line(line, depth) for line in padded(block, block_width(block)))
    return text.replace("…", "~") if depth is Depth.PLAIN else text


def _line(line: Line, depth: Depth) -> str:
    if not depth.colored:
        return "".join(span.text for span in line)
    parts: list[str] = []
    for (ink, paper), spans in groupby(line, key=lambda span: (span.ink, span.paper)):
        text = "".join(span.text for span in spans)
        codes = ";".join(
            f"{ground};5;{nearest_256(color)}" if depth is Depth.PALETTE else f"{ground};2;{';'.join(map(str, color))}"
            for ground, color in ((38, ink), (48, paper))
            if color is not None
        )
        parts.append(f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text)
    return "".join(parts)


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
