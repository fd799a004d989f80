"""Explanation: the steps of one attention with their numbers, as text, Markdown, LaTeX, HTML and JSON."""

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from regard.inspection.explain.notation import Math, column, latex_text, markdown_text, typeset
from regard.inspection.records import Grid
from regard.inspection.text import display_width, fit, left, right, visible

_INDENT = "   "
_GAP = "    "
_NARROWEST = 40
_LONGEST_LABEL = 20
_COLUMNS = 8  # of numbers that fit beside a label on a page
_LATEX_HEAD = r"""\documentclass{article}
\usepackage{amsmath}
\begin{document}
"""
_LATEX_FOOT = "\n\\end{document}\n"


@dataclass(frozen=True)
class Matrix:
    """Numbers under a name; None is a hidden pair. Labels are empty where rows or columns have no name of their own."""

    name: Math
    values: tuple[tuple[float | None, ...], ...]
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Columns of numbers."""
        return len(self.values[0]) if self.values else 0

    @property
    def grid(self) -> Grid:
        """The same as a picture's record: `regard.plot.render(matrix.grid)`."""
        return Grid(self.values, self.rows, self.columns, self.name.text)

    def cells(self, digits: int) -> list[list[Math]]:
        """The numbers to `digits` decimals."""
        texts = iter(column([value for row in self.values for value in row], digits))
        return [[typeset(next(texts)) for _ in row] for row in self.values]

    def to_dict(self) -> dict[str, object]:
        """Plain lists; null is a hidden pair."""
        return {
            "name": self.name.text,
            "rows": list(self.rows),
            "columns": list(self.columns),
            "values": [
                [value if value is None or math.isfinite(value) else str(value) for value in row] for row in self.values
            ],
        }


@dataclass(frozen=True)
class Worked:
    """One line of arithmetic. The label says for which query and key; it may hold tokens, the formula never does."""

    label: str
    math: Math


@dataclass(frozen=True)
class Step:
    """What is done, in a formula and a sentence; the numbers before or after it; and one row worked out."""

    title: str
    formula: Math | None
    sentence: str
    tables: tuple[Matrix, ...] = ()
    worked: tuple[Worked, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Plain dictionaries and lists."""
        return {
            "title": self.title,
            "formula": {"text": self.formula.text, "latex": self.formula.latex} if self.formula else None,
            "sentence": self.sentence,
            "tables": [table.to_dict() for table in self.tables],
            "worked": [{"label": line.label, "text": line.math.text, "latex": line.math.latex} for line in self.worked],
        }


@dataclass(frozen=True, repr=False)
class Explanation:
    """Every step of one attention, for one batch row and head. `print` it, or ask for another format.

    `weights` and `output` are the results before rounding for the eye: the numbers of `attend(…, engine="reference")`.
    The worked lines belong to the query `row_label`.
    """

    title: str
    notes: tuple[str, ...]
    row_label: str
    steps: tuple[Step, ...]
    weights: Matrix
    output: Matrix
    digits: int

    def text(self, width: int = 100) -> str:
        """For a terminal, in lines of at most `width` columns, as far as single formulas allow."""
        width = max(width, _NARROWEST)
        lines = [self.title, "=" * display_width(self.title)]
        for note in self.notes:
            lines += textwrap.wrap(note, width)
        lines.append(f"Worked out below: the query {fit(visible(self.row_label), _LONGEST_LABEL)}.")
        for index, step in enumerate(self.steps, 1):
            lines += ["", *_text_step(index, step, width, self.digits)]
        return "\n".join(line.rstrip() for line in lines) + "\n"

    def markdown(self) -> str:
        """GitHub's Markdown: a second-level heading, and a third-level heading per step. Arithmetic is code."""
        notes = [*map(_escaped, self.notes), f"Worked out below: the query {markdown_text(self.row_label)}."]
        parts = [f"## {_escaped(self.title)}", "\n".join(f"- {note}" for note in notes)]
        for index, step in enumerate(self.steps, 1):
            parts.append(f"### {index}. {_escaped(step.title)}")
            if step.formula is not None:
                parts.append(f"`{step.formula.text}`")
            parts.append(_escaped(step.sentence))
            parts += [_markdown_table(table, self.digits) for table in step.tables]
            if step.worked:
                parts.append("\n".join(f"- {markdown_text(line.label)}: `{line.math.text}`" for line in step.worked))
        return "\n\n".join(parts) + "\n"

    def latex(self, *, document: bool = True) -> str:
        """A document that any LaTeX compiles, or the part of it to include in an article that uses amsmath."""
        notes = [*self.notes, f"Worked out below: the query {self.row_label}."]
        parts = [rf"\section*{{{latex_text(self.title)}}}", *map(latex_text, notes)]
        for index, step in enumerate(self.steps, 1):
            parts.append(rf"\subsection*{{{index}. {latex_text(step.title)}}}")
            if step.formula is not None:
                parts.append(rf"\[ {step.formula.latex} \]")
            parts.append(latex_text(step.sentence))
            for table in step.tables:
                parts += _latex_arrays(table, self.digits)
            if step.worked:
                lines = [rf"\item {latex_text(line.label)}: ${line.math.latex}$" for line in step.worked]
                parts.append("\n".join([r"\begin{itemize}", *lines, r"\end{itemize}"]))
        body = "\n\n".join(parts) + "\n"
        return _LATEX_HEAD + body + _LATEX_FOOT if document else body

    def html(self) -> str:
        """A document of one file: every step folds, and so does the arithmetic of the worked row."""
        from regard.inspection.explain.html import document

        return document(self)

    def to_dict(self) -> dict[str, object]:
        """Plain dictionaries, lists, strings and numbers; null is a hidden pair; `inf`, `-inf`, `nan` are strings."""
        return {
            "title": self.title,
            "notes": list(self.notes),
            "row": self.row_label,
            "steps": [step.to_dict() for step in self.steps],
            "weights": self.weights.to_dict(),
            "output": self.output.to_dict(),
        }

    def _repr_markdown_(self) -> str:
        return self.markdown()

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"Explanation({self.title!r}, {len(self.steps)} steps; print it to read them)"


def _text_step(index: int, step: Step, width: int, digits: int) -> list[str]:
    heading = f"{index}. {step.title}"
    lines = [heading if step.formula is None else f"{heading}    {step.formula.text}"]
    lines += textwrap.wrap(step.sentence, width, initial_indent=_INDENT, subsequent_indent=_INDENT)
    room = width - len(_INDENT)
    for block in _side_by_side([block for table in step.tables for block in _text_blocks(table, digits, room)], room):
        lines += ["", *(_INDENT + line for line in block)]
    labels = [fit(visible(line.label), room // 2) for line in step.worked]
    label_width = max(map(display_width, labels), default=0)
    lines += [""] if labels else []
    for label, line in zip(labels, step.worked, strict=True):
        first = _INDENT + left(label, label_width) + "  "
        lines += textwrap.wrap(
            line.math.text,
            width,
            initial_indent=first,
            subsequent_indent=" " * display_width(first) + "  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return lines


def _text_blocks(matrix: Matrix, digits: int, room: int) -> list[list[str]]:
    """The matrix as blocks of lines, cut into groups of columns where it is too wide."""
    name, cells, named = matrix.name.text, matrix.cells(digits), any(matrix.rows)
    labels = [name, *(fit(visible(label), _LONGEST_LABEL) for label in matrix.rows)] if named else []
    corner = max(map(display_width, labels), default=0)
    columns = []
    for at in range(matrix.width):
        heading = fit(visible(matrix.columns[at]), _LONGEST_LABEL) if matrix.columns else ""
        texts = [heading, *(row[at].text for row in cells)]
        width = max(map(display_width, texts))
        columns.append([right(text, width) for text in texts])
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


def _side_by_side(blocks: Sequence[list[str]], room: int) -> list[list[str]]:
    """The blocks, neighbors side by side while they fit."""
    arranged: list[list[str]] = []
    for block in blocks:
        width = max(map(display_width, arranged[-1])) if arranged else room
        if width + len(_GAP) + max(map(display_width, block)) <= room:
            arranged[-1] = [left(a, width) + _GAP + b for a, b in zip_longest(arranged[-1], block, fillvalue="")]
        else:
            arranged.append(block)
    return arranged


def _escaped(text: str) -> str:
    """Sentences of our own: markup characters in them come from the names of parts, such as `<2×2 float64>`."""
    return "".join("\\" + each if each in "\\`*_<>|[]&$~" else each for each in text)


def _markdown_table(matrix: Matrix, digits: int) -> str:
    headings = [markdown_text(label) for label in matrix.columns] or [" "] * matrix.width
    lines = [[_escaped(matrix.name.text) or " ", *headings], ["---", *["---:"] * matrix.width]]
    for label, row in zip(matrix.rows or [""] * len(matrix.values), matrix.cells(digits), strict=True):
        lines.append([markdown_text(label) or " ", *(cell.text for cell in row)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _latex_arrays(matrix: Matrix, digits: int) -> Iterator[str]:
    """A matrix in brackets if its rows have no names; otherwise tables, cut so that they fit a page."""
    cells = [[cell.latex for cell in row] for row in matrix.cells(digits)]
    if not matrix.rows:
        opening = rf"{matrix.name.latex} = \left(\begin{{array}}{{{'r' * matrix.width}}}"
        lines = [" & ".join(row) + r" \\" for row in cells]
        yield "\n".join([r"\[", opening, *lines, r"\end{array}\right)", r"\]"])
        return
    for start in range(0, matrix.width, _COLUMNS):
        part = slice(start, min(start + _COLUMNS, matrix.width))
        width, lines = part.stop - start, []
        if matrix.columns or matrix.name.latex:
            headings = [rf"\text{{{latex_text(label)}}}" for label in matrix.columns[part]] or [""] * width
            lines.append(" & ".join([matrix.name.latex, *headings]) + r" \\ \hline")
        for label, row in zip(matrix.rows, cells, strict=True):
            lines.append(" & ".join([rf"\text{{{latex_text(label)}}}", *row[part]]) + r" \\")
        yield "\n".join([r"\[", rf"\begin{{array}}{{l|{'r' * width}}}", *lines, r"\end{array}", r"\]"])
