"""An explanation as text for a terminal and as Markdown, whose arithmetic is code and needs no extension."""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from regard.inspection.explain.notation import Math, column, typeset
from regard.inspection.explain.record import Explanation, Matrix, Step, Worked
from regard.inspection.text import display_width, fit, left, right, visible

_INDENT = "   "
_GAP = "    "
_NARROWEST = 40
_LONGEST_LABEL = 20
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#!|~$&@:.^])")


def text(explanation: Explanation, width: int = 100) -> str:
    """The whole explanation in lines of at most `width` columns, as far as single formulas allow."""
    width = max(width, _NARROWEST)
    lines = [explanation.title, "=" * display_width(explanation.title)]
    for note in explanation.notes:
        lines += textwrap.wrap(note, width)
    lines.append(f"Worked out below: the query {fit(visible(explanation.row_label), _LONGEST_LABEL)}.")
    for index, step in enumerate(explanation.steps, 1):
        lines += ["", *_step(index, step, width, explanation.digits)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _step(index: int, step: Step, width: int, digits: int) -> list[str]:
    heading = f"{index}. {step.title}"
    lines = [heading if step.formula is None else f"{heading}    {step.formula.text}"]
    room = width - len(_INDENT)
    lines += textwrap.wrap(step.sentence, width, initial_indent=_INDENT, subsequent_indent=_INDENT)
    for block in _arranged([part for table in step.tables for part in _table(table, digits, room)], room):
        lines += ["", *(_INDENT + line for line in block)]
    if step.worked:
        lines += ["", *_worked(step.worked, room)]
    return lines


def _table(matrix: Matrix, digits: int, room: int) -> list[list[str]]:
    """The matrix as blocks of lines, cut into groups of columns where it is too wide."""
    shown = cells(matrix, digits)
    name, named = shown.name.text, any(shown.rows)
    labels = [name, *(fit(visible(label), _LONGEST_LABEL) for label in shown.rows)] if named else []
    corner = max(map(display_width, labels), default=0)
    columns = [_column(shown, at) for at in range(shown.width)]
    blocks, start = [], 0
    while start < len(columns):
        stop, used = start, corner
        while stop < len(columns) and (stop == start or used + 2 + display_width(columns[stop][0]) <= room):
            used += 2 + display_width(columns[stop][0])
            stop += 1
        part = [[left(label, corner) for label in labels]] if named else []
        lines = ["  ".join(texts) for texts in zip(*part, *columns[start:stop], strict=True)]
        blocks.append(lines if named else [name, *lines[1:]])
        start = stop
    return blocks


def _column(shown: "Cells", at: int) -> list[str]:
    """The heading and the numbers of one column, all of one width."""
    heading = fit(visible(shown.columns[at]), _LONGEST_LABEL) if shown.columns else ""
    texts = [heading, *(typeset(row[at]).text for row in shown.values)]
    width = max(map(display_width, texts))
    return [right(each, width) for each in texts]


def _arranged(blocks: Sequence[list[str]], room: int) -> list[list[str]]:
    """Neighbors side by side while they fit and are of similar height."""
    arranged: list[list[str]] = []
    for block in blocks:
        width = max(map(display_width, block))
        if arranged and max(map(display_width, arranged[-1])) + len(_GAP) + width <= room:
            arranged[-1] = _beside(arranged[-1], block)
        else:
            arranged.append(block)
    return arranged


def _beside(one: list[str], other: list[str]) -> list[str]:
    width = max(map(display_width, one))
    return [left(a, width) + _GAP + b for a, b in zip_longest(one, other, fillvalue="")]


def _worked(worked: Sequence[Worked], room: int) -> list[str]:
    labels = [fit(visible(each.label), room // 2) for each in worked]
    width = max(map(display_width, labels))
    lines = []
    for label, each in zip(labels, worked, strict=True):
        first = _INDENT + left(label, width) + "  "
        lines += textwrap.wrap(
            each.math.text,
            room + len(_INDENT),
            initial_indent=first,
            subsequent_indent=" " * display_width(first) + "  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return lines


@dataclass(frozen=True)
class Cells:
    """A matrix whose numbers are ASCII text; labels are as they came and must be escaped."""

    name: Math
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[str]]

    @property
    def width(self) -> int:
        """Columns of numbers."""
        return len(self.values[0]) if self.values else 0

    def part(self, start: int, stop: int) -> "Cells":
        """Some of the columns."""
        return Cells(self.name, self.rows, self.columns[start:stop], [row[start:stop] for row in self.values])


def cells(matrix: Matrix, digits: int) -> Cells:
    """The numbers of a matrix to `digits` decimals."""
    width = len(matrix.values[0]) if matrix.values else 0
    texts = column([value for row in matrix.values for value in row], digits)
    rows = [texts[at * width : (at + 1) * width] for at in range(len(matrix.values))]
    return Cells(matrix.name, matrix.rows or [""] * len(rows), matrix.columns, rows)


def markdown(explanation: Explanation) -> str:
    """One second-level heading for the whole, a third-level heading per step."""
    parts = [f"## {_escaped(explanation.title)}"]
    parts.append("\n".join(f"- {_escaped(note)}" for note in explanation.notes))
    parts[-1] += f"\n- Worked out below: the query {markdown_text(explanation.row_label)}."
    for index, step in enumerate(explanation.steps, 1):
        parts += _markdown_step(index, step, explanation.digits)
    return "\n\n".join(parts) + "\n"


def _escaped(text: str) -> str:
    """Sentences of our own: markup characters in them come from the names of parts, such as `<2×2 float64>`."""
    return "".join("\\" + each if each in "\\`*_<>|[]&$~" else each for each in text)


def _markdown_step(index: int, step: Step, digits: int) -> list[str]:
    parts = [f"### {index}. {_escaped(step.title)}"]
    if step.formula is not None:
        parts.append(f"`{step.formula.text}`")
    parts.append(_escaped(step.sentence))
    parts += [_markdown_table(table, digits) for table in step.tables]
    if step.worked:
        parts.append("\n".join(f"- {markdown_text(each.label)}: `{each.math.text}`" for each in step.worked))
    return parts


def _markdown_table(matrix: Matrix, digits: int) -> str:
    shown = cells(matrix, digits)
    headings = [markdown_text(label) for label in shown.columns] or [" "] * shown.width
    lines = [[_escaped(shown.name.text) or " ", *headings], ["---", *["---:"] * shown.width]]
    for label, row in zip(shown.rows, shown.values, strict=True):
        lines.append([markdown_text(label) or " ", *(typeset(cell).text for cell in row)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it is, in a table cell too; nothing in it becomes markup, HTML or a link."""
    return _MARKDOWN.sub(r"\\\1", visible(text))
