r"""Escapes: token text that Markdown or LaTeX shows and never obeys.

Tokens come from documents nobody has read. First everything unprintable is spelled out (a line break becomes `\n`),
then what is special in the format is escaped.
"""

import re
import unicodedata

from regard.inspection.text import visible

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#!|~$&@:.^])")

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


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it is, in a table cell too; nothing in it becomes markup, HTML or a link."""
    return _MARKDOWN.sub(r"\\\1", visible(text))


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
