"""Tables as text: names over rules, words to the left, numbers to the right, an estimate with its interval."""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.inspection.number import alike, interval
from regard.inspection.records import Cell, Estimate, Table
from regard.inspection.text import display_width, left, right, visible

_GAP = "  "


def aligned(table: Table) -> str:
    """The table in aligned columns; numbers of a column share their decimals where their sizes allow it."""
    columns = columns_of(table)
    lines = [" ".join(visible(line) for line in table.title.splitlines())] if table.title else []
    for texts in zip(*(column.lines() for column in columns), strict=True):
        lines.append(_GAP.join(texts).rstrip())
    return "\n".join(lines)


def columns_of(table: Table) -> "list[Column]":
    """The columns as texts."""
    rows = checked_rows(table)
    return [_column(name, [row[index] for row in rows]) for index, name in enumerate(table.columns)]


def checked_rows(table: Table) -> Sequence[Sequence[Cell]]:
    """The rows, once it is certain that each has a cell for every column."""
    for row in table.rows:
        if len(row) != len(table.columns):
            raise ValueError(f"a Table has one cell per column, got {len(row)} cells for {len(table.columns)} columns")
    return table.rows


@dataclass(frozen=True)
class Column:
    """A column as texts; `words` stand to the left, numbers to the right."""

    name: str
    texts: Sequence[str]
    words: bool

    def lines(self) -> list[str]:
        """Name, rule and cells, equally wide."""
        width = max(map(display_width, [self.name, *self.texts]))
        place = left if self.words else right
        return [place(text, width) for text in (self.name, "-" * width, *self.texts)]


def _column(name: str, cells: Sequence[Cell]) -> Column:
    numbers = iter(alike([cell for cell in cells if isinstance(cell, float)]))
    texts = [next(numbers) if isinstance(cell, float) else _text(cell) for cell in cells]
    return Column(visible(name), texts, words=all(isinstance(cell, str | bool) for cell in cells))


def _text(cell: Cell) -> str:
    if isinstance(cell, Estimate):
        return interval(cell)
    return visible(cell) if isinstance(cell, str) else str(cell)
