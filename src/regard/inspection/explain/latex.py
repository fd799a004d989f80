"""An explanation as LaTeX: plain article and amsmath, any engine; arrays are cut so that they fit a page."""

import unicodedata
from collections.abc import Iterator

from regard.inspection.explain.notation import typeset
from regard.inspection.explain.record import Explanation, Matrix, Step
from regard.inspection.explain.text import Cells, cells
from regard.inspection.text import visible

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


_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"''",
    "`": r"\`{}",
    "-": r"{-}",  # not a ligature: -- would become a dash
    "[": r"{[}",  # not the argument of the command before it
    "]": r"{]}",
    "ß": r"\ss{}",
    "æ": r"\ae{}",
    "Æ": r"\AE{}",
    "œ": r"\oe{}",
    "Œ": r"\OE{}",
    "ø": r"\o{}",
    "Ø": r"\O{}",
    "ł": r"\l{}",
    "Ł": r"\L{}",
    "ı": r"\i{}",
    "‘": "`",
    "’": "'",
    "“": "``",
    "”": "''",
    "–": "--",
    "—": "---",
    "…": r"\dots{}",
    "▁": r"\_",  # how sentencepiece writes a space
    "§": r"\S{}",
    "−": "$-$",
    "·": r"$\cdot$",
    "×": r"$\times$",
    "→": r"$\to$",
    "±": r"$\pm$",
    "√": r"$\surd$",
    "∞": r"$\infty$",
    "τ": r"$\tau$",
    "φ": r"$\varphi$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "≠": r"$\ne$",
    "₁": "$_1$",
    "₂": "$_2$",
}
# Accents that every LaTeX font has, by the combining character they decompose into.
_ACCENTS = {
    "\u0300": "`",
    "\u0301": "'",
    "\u0302": "^",
    "\u0303": "~",
    "\u0304": "=",
    "\u0306": "u",
    "\u0307": ".",
    "\u0308": '"',
    "\u030a": "r",
    "\u030b": "H",
    "\u030c": "v",
    "\u0327": "c",
}


def latex_text(text: str) -> str:
    """Text that any LaTeX shows, pdfLaTeX included; a letter without a command appears by its number, U+4F60."""
    return "".join(_latex_character(each) for each in unicodedata.normalize("NFC", visible(text)))


def _latex_character(character: str) -> str:
    if character in _LATEX:
        return _LATEX[character]
    if character.isascii():
        return character
    parts = unicodedata.normalize("NFD", character)
    if len(parts) == 2 and parts[0].isascii() and parts[0].isalpha() and parts[1] in _ACCENTS:
        return rf"\{_ACCENTS[parts[1]]}{{{parts[0]}}}"
    return rf"\texttt{{U+{ord(character):04X}}}"
