"""An explanation as LaTeX: plain article and amsmath, any engine; arrays are cut so that they fit a page."""

from collections.abc import Iterator

from regard.inspection.explanation.escape import latex_text
from regard.inspection.explanation.notation import typeset
from regard.inspection.explanation.record import Explanation, Matrix, Step
from regard.inspection.explanation.tables import Cells, cells

_COLUMNS = 8  # of numbers that fit beside a label
_HEAD = r"""\documentclass{article}
\usepackage{amsmath}
\begin{document}
"""
_FOOT = "\n\\end{document}\n"


def latex(explanation: Explanation, *, document: bool = True) -> str:
    """A whole document, or the part between its begin and end, which an article that uses amsmath can include."""
    parts = [rf"\section*{{{latex_text(explanation.title)}}}"]
    notes = [*(latex_text(note) for note in explanation.notes)]
    notes.append(f"Worked out below: the query {latex_text(explanation.row_label)}.")
    parts.append("\n\n".join(notes))
    for index, step in enumerate(explanation.steps, 1):
        parts += _step(index, step, explanation.digits)
    body = "\n\n".join(parts) + "\n"
    return _HEAD + body + _FOOT if document else body


def _step(index: int, step: Step, digits: int) -> Iterator[str]:
    yield rf"\subsection*{{{index}. {latex_text(step.title)}}}"
    if step.formula is not None:
        yield rf"\[ {step.formula.latex} \]"
    yield latex_text(step.sentence)
    for table in step.tables:
        yield from _arrays(table, digits)
    if step.worked:
        lines = [rf"\item {latex_text(each.label)}: ${each.math.latex}$" for each in step.worked]
        yield "\n".join([r"\begin{itemize}", *lines, r"\end{itemize}"])


def _arrays(matrix: Matrix, digits: int) -> Iterator[str]:
    shown = cells(matrix, digits)
    if not matrix.rows:
        yield _plain(shown)
        return
    for start in range(0, shown.width, _COLUMNS):
        yield _array(shown.part(start, start + _COLUMNS))


def _plain(shown: Cells) -> str:
    """A matrix in brackets, for numbers whose rows have no names."""
    lines = [" & ".join(typeset(cell).latex for cell in row) + r" \\" for row in shown.values]
    opening = rf"{shown.name.latex} = \left(\begin{{array}}{{{'r' * shown.width}}}"
    return "\n".join([r"\[", opening, *lines, r"\end{array}\right)", r"\]"])


def _array(shown: Cells) -> str:
    lines = []
    if shown.columns or shown.name.latex:
        headings = [rf"\text{{{latex_text(label)}}}" for label in shown.columns] or [""] * shown.width
        lines.append(" & ".join([shown.name.latex, *headings]) + r" \\ \hline")
    for label, row in zip(shown.rows, shown.values, strict=True):
        lines.append(" & ".join([rf"\text{{{latex_text(label)}}}", *(typeset(cell).latex for cell in row)]) + r" \\")
    return "\n".join([r"\[", rf"\begin{{array}}{{l|{'r' * shown.width}}}", *lines, r"\end{array}", r"\]"])
