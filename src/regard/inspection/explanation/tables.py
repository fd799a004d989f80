"""Tables of an explanation as strings: numbers that stand together share their decimals."""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.inspection.explanation.notation import Math, column
from regard.inspection.explanation.record import Matrix


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
