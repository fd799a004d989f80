"""Explanation: the steps of one attention with their numbers, and the formats it can be written in."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from regard.inspection.explain.notation import Math
from regard.inspection.records import Grid


@dataclass(frozen=True)
class Matrix:
    """Numbers under a name; None is a hidden pair. Labels are empty where rows or columns have no name of their own."""

    name: Math
    values: tuple[tuple[float | None, ...], ...]
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    @property
    def grid(self) -> Grid:
        """The same as a picture's record: `regard.plot.render(matrix.grid)`."""
        return Grid(self.values, self.rows, self.columns, self.name.text)

    def to_dict(self) -> dict[str, object]:
        """Plain lists; null is a hidden pair."""
        return {
            "name": self.name.text,
            "rows": list(self.rows),
            "columns": list(self.columns),
            "values": [_values(row) for row in self.values],
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
        """For a terminal of `width` columns."""
        from regard.inspection.explain.text import text

        return text(self, width)

    def markdown(self) -> str:
        """GitHub's Markdown, with tables."""
        from regard.inspection.explain.text import markdown

        return markdown(self)

    def latex(self, *, document: bool = True) -> str:
        """A document that any LaTeX compiles, or the part of it to include in an article that uses amsmath."""
        from regard.inspection.explain.latex import latex

        return latex(self, document=document)

    def to_dict(self) -> dict[str, object]:
        """Plain dictionaries, lists, strings and numbers; null is a hidden pair; `inf`, `-inf`, `nan` are strings."""
        return {
            "title": self.title,
            "notes": list(self.notes),
            "row": self.row_label,
            "steps": [_step(step) for step in self.steps],
            "weights": self.weights.to_dict(),
            "output": self.output.to_dict(),
        }

    def _repr_markdown_(self) -> str:
        return self.markdown()

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"Explanation({self.title!r}, {len(self.steps)} steps; print it to read them)"


def _step(step: Step) -> dict[str, object]:
    formula = {"text": step.formula.text, "latex": step.formula.latex} if step.formula else None
    worked = [{"label": each.label, "text": each.math.text, "latex": each.math.latex} for each in step.worked]
    return {
        "title": step.title,
        "formula": formula,
        "sentence": step.sentence,
        "tables": [table.to_dict() for table in step.tables],
        "worked": worked,
    }


def _values(row: Sequence[float | None]) -> list[float | str | None]:
    return [value if value is None or math.isfinite(value) else str(value) for value in row]
