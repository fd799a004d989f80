"""Checking words: answers that name words of a map, in any order, with help for those that are not in it."""

import difflib
from collections.abc import Sequence


def listed(value: object) -> list[object] | None:
    """The entries of a list, or None for anything else."""
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else None


def unknown(word: object, rows: Sequence[str], columns: Sequence[str], wanted: str) -> str:
    """What is wrong with a word that should be one of the rows or of the columns; empty if nothing is.

    `wanted` is "row" or "column".
    """
    right, other = (rows, columns) if wanted == "row" else (columns, rows)
    if word in right:
        return ""
    if not isinstance(word, str):
        return f"words are text, got {word!r}"
    if word in other:
        kinds = {"row": "row, a word that looks", "column": "column, a word that is looked at"}
        return f"{word!r} is no {kinds[wanted]}; the {wanted}s are {', '.join(right)}"
    alike = [each for each in right if each.lower() == word.lower()]
    near = alike or difflib.get_close_matches(word, right, n=1)
    if near:
        return f"{word!r} is not in the map; did you mean {near[0]!r}?"
    return f"{word!r} is not in the map; the {wanted}s are {', '.join(right)}"


def some(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`, each in quotes."""
    quoted = [f"{word!r}" for word in words]
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)
