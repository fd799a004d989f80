"""Notation: formulas that are text and LaTeX at once, numbers as a reader writes them, and escaped labels."""

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from regard.inspection.number import nonfinite, scientific, trimmed
from regard.inspection.text import visible

# How loosely a formula binds, which decides where brackets are needed.
ATOM, PRODUCT, SUM, NEGATIVE = range(4)
MOST_TERMS = 8  # of a sum that are written out; of more, the first ones and the last

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SUBSCRIPT = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


@dataclass(frozen=True)
class Math:
    """A formula as plain text (`1/√2 = 0.7071`) and as LaTeX for math mode."""

    text: str
    latex: str
    rank: int = field(default=ATOM, compare=False)


def decimal(value: float, digits: int) -> str:
    """The value to `digits` decimals in ASCII; exact ones lose their zeros, tiny and huge ones get an exponent.

    `0.5` is a half, `0.5000` is a number near it.
    """
    if not math.isfinite(value):
        return nonfinite(value)
    if value == 0:
        return "0"
    if not 10.0**-digits <= abs(value) < 1e6 and not _is_exact(value, digits):
        return scientific(value, max(digits - 1, 0))
    fixed = f"{value:.{digits}f}"
    return trimmed(fixed) if _is_exact(value, digits) else fixed


def _is_exact(value: float, digits: int) -> bool:
    """Whether rounding to `digits` decimals takes away no more than the noise of float32."""
    return abs(value - round(value, digits)) <= min(1e-6 * abs(value), 10.0**-digits / 100) and abs(value) < 1e15


def column(values: Iterable[float | None], digits: int) -> list[str]:
    """Numbers that stand together share their decimals, except zeros; a hidden pair is `hidden`."""
    texts = ["hidden" if value is None else decimal(value, digits) for value in values]
    places = max((len(text.partition(".")[2]) for text in texts if "e" not in text), default=0)
    for at, text in enumerate(texts):
        if places and text != "0" and not text.strip("-0123456789."):
            whole, _, part = text.partition(".")
            texts[at] = f"{whole}.{part:0<{places}}"
    return texts


def typeset(text: str) -> Math:
    """What `decimal` or `column` wrote, with a real minus, × 10ⁿ and ∞."""
    if text in ("inf", "-inf"):
        sign = text.removesuffix("inf")
        return Math(sign.replace("-", "−") + "∞", sign + r"\infty", NEGATIVE if sign else ATOM)
    if text in ("nan", "hidden"):
        return Math(text, rf"\text{{{text}}}")
    mantissa, _, exponent = text.partition("e")
    rank = NEGATIVE if text.startswith("-") else PRODUCT if exponent else ATOM
    shown, latex = mantissa.replace("-", "−"), mantissa
    if exponent:
        shown += "×10" + exponent.translate(_SUPERSCRIPT)
        latex += rf" \times 10^{{{exponent}}}"
    return Math(shown, latex, rank)


def number(value: float, digits: int) -> Math:
    """One number of a formula."""
    return typeset(decimal(float(value), digits))


def word(text: str, latex: str | None = None) -> Math:
    """A symbol or a formula written by hand."""
    return Math(text, text if latex is None else latex)


def subscripted(letter: str, number: int) -> Math:
    """S₁ for 1; the letter alone for 0."""
    return word(letter + str(number).translate(_SUBSCRIPT), f"{letter}_{{{number}}}") if number else word(letter)


def bracketed(formula: Math, least: int = SUM) -> Math:
    """In brackets if it binds as loosely as `least`, or more so."""
    if formula.rank < least:
        return formula
    return Math(f"({formula.text})", rf"\left({formula.latex}\right)")


def times(left: Math, right: Math) -> Math:
    """left · right."""
    a, b = bracketed(left), bracketed(right)
    return Math(f"{a.text}·{b.text}", rf"{a.latex} \cdot {b.latex}", PRODUCT)


def plus(terms: Sequence[Math]) -> Math:
    """The sum of the terms; `− 2` rather than `+ (−2)`, and `…` for the middle of a long one."""
    if len(terms) > MOST_TERMS:
        terms = [*terms[: MOST_TERMS - 2], word("…", r"\dots"), terms[-1]]
    if not terms:
        return word("0")
    text, latex = terms[0].text, terms[0].latex
    for term in terms[1:]:
        sign = "−" if term.rank == NEGATIVE else "+"
        text += f" {sign} {term.text.removeprefix('−')}"
        latex += f" {sign.replace('−', '-')} {term.latex.removeprefix('-')}"
    return Math(text, latex, SUM if len(terms) > 1 else terms[0].rank)


def minus(left: Math, right: Math) -> Math:
    """left − right."""
    b = bracketed(right)
    return Math(f"{left.text} − {b.text}", f"{left.latex} - {b.latex}", SUM)


def negated(of: Math) -> Math:
    """−of."""
    inner = bracketed(of)
    return Math(f"−{inner.text}", f"-{inner.latex}", NEGATIVE)


def both(first: Math, second: Math) -> Math:
    """Two formulas on one line."""
    return Math(f"{first.text}; {second.text}", rf"{first.latex};\ {second.latex}", NEGATIVE)


def integer(value: int) -> str:
    """A whole number in a label, with a real minus."""
    return str(value).replace("-", "−")


def over(top: Math, bottom: Math) -> Math:
    """top / bottom."""
    a, b = bracketed(top), bracketed(bottom, PRODUCT)
    return Math(f"{a.text}/{b.text}", rf"\frac{{{top.latex}}}{{{bottom.latex}}}", PRODUCT)


def root(of: Math) -> Math:
    """√of."""
    inner = bracketed(of, PRODUCT)
    return Math(f"√{inner.text}", rf"\sqrt{{{of.latex}}}")


def square(of: Math) -> Math:
    """of²."""
    inner = bracketed(of, PRODUCT)
    return Math(f"{inner.text}²", f"{inner.latex}^{{2}}")


def exp(of: Math) -> Math:
    """e^of."""
    inner = bracketed(of, PRODUCT)
    return Math(f"e^{inner.text}", f"e^{{{of.latex}}}")


def absolute(of: Math) -> Math:
    """|of|."""
    return Math(f"|{of.text}|", rf"\left|{of.latex}\right|")


def call(name: str, *arguments: Math) -> Math:
    """name(arguments)."""
    known = {"tanh": r"\tanh", "max": r"\max", "ln": r"\ln"}.get(name, rf"\operatorname{{{name}}}")
    text, latex = (", ".join(getattr(each, kind) for each in arguments) for kind in ("text", "latex"))
    return Math(f"{name}({text})", rf"{known}\left({latex}\right)")


def dot(left: Sequence[Math], right: Sequence[Math]) -> Math:
    """a₁·b₁ + a₂·b₂ + …"""
    return plus([times(a, b) for a, b in zip(left, right, strict=True)])


def equals(*parts: Math) -> Math:
    """a = b = c; a part that only repeats the one before is left out."""
    kept = [part for index, part in enumerate(parts) if index == 0 or part.text != parts[index - 1].text]
    return Math(" = ".join(part.text for part in kept), " = ".join(part.latex for part in kept), NEGATIVE)


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


def latex_text(text: str) -> str:
    """Text that any LaTeX shows, pdfLaTeX included; a letter without a command appears by its number, U+4F60."""
    characters = []
    for character in unicodedata.normalize("NFC", visible(text)):
        parts = unicodedata.normalize("NFD", character)
        if character in _LATEX:
            characters.append(_LATEX[character])
        elif character.isascii():
            characters.append(character)
        elif len(parts) == 2 and parts[0].isascii() and parts[0].isalpha() and parts[1] in _ACCENTS:
            characters.append(rf"\{_ACCENTS[parts[1]]}{{{parts[0]}}}")
        else:
            characters.append(rf"\texttt{{U+{ord(character):04X}}}")
    return "".join(characters)


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it is, in a table cell too; nothing in it becomes markup, HTML or a link."""
    return _MARKDOWN.sub(r"\\\1", visible(text))
