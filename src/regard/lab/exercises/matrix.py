"""Checking a matrix: not only whether it is right, but which known mistake leads to the one that was given."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.lab.exercises.exercise import Answer, Verdict
from regard.lab.exercises.words import listed

TOLERANCE = 0.005 + 1e-9  # two decimals are enough


@dataclass(frozen=True, eq=False)
class Mistake:
    """A matrix that one particular error leads to, and the words that explain the error."""

    value: Tensor
    text: str


@dataclass(frozen=True, eq=False)
class Quantity:
    """What is asked, (row, column), how to get it, and where one can go wrong.

    `follows` computes it from another part that the student may have given too; `rows_sum` is what each row must add
    up to, if anything.
    """

    name: str
    rows: str
    columns: str
    recipe: str
    truth: Tensor
    mistakes: tuple[Mistake, ...] = ()
    follows: tuple[str, Callable[[Tensor], Tensor]] | None = None
    rows_sum: float | None = None

    def check(self, given: object, answer: Answer) -> Verdict:
        """The verdict on what was given for this quantity."""
        matrix, problem = as_matrix(given)
        if matrix is None:
            return self._wrong(problem)
        if matrix.shape != self.truth.shape:
            return self._wrong(self._shape(matrix))
        if close(matrix, self.truth):
            return Verdict(self.name, True, "right")
        return self._wrong(self._diagnosis(matrix, answer))

    def _wrong(self, text: str) -> Verdict:
        return Verdict(self.name, False, text)

    def _shape(self, matrix: Tensor) -> str:
        height, width = self.truth.shape
        wanted = f"{height} × {width}: a row for each {self.rows}, a column for each {self.columns}"
        for mistake in self.mistakes:
            if mistake.value.shape == matrix.shape and close(matrix, mistake.value):
                return f"{mistake.text}; wanted is {wanted}"
        if matrix.shape == self.truth.mT.shape and close(matrix, self.truth.mT):
            return f"the numbers are right but transposed; wanted is {wanted}"
        return f"wrong shape: {matrix.shape[0]} × {matrix.shape[1]}; wanted is {wanted}"

    def _diagnosis(self, matrix: Tensor, answer: Answer) -> str:
        coarse = _coarse(matrix, self.truth)
        if coarse:
            return coarse
        for mistake in self.mistakes:
            if mistake.value.shape == matrix.shape and close(matrix, mistake.value):
                return mistake.text
        if close(matrix / 100, self.truth):
            return "these are percentages; give shares of 1"
        if self.follows and self._follows(matrix, answer, *self.follows):
            return f"this follows correctly from your {self.follows[0]!r}, which are not right: repair those first"
        if self.rows_sum is not None and (law := _sums(matrix, self.rows_sum)):
            return f"{law}; {self.recipe}"
        if matrix.shape == self.truth.mT.shape and close(matrix, self.truth.mT):
            return f"transposed: rows are for each {self.rows}, columns for each {self.columns}"
        return f"{_rows(matrix, self.truth)}; {self.recipe}"

    def _follows(self, matrix: Tensor, answer: Answer, name: str, compute: Callable[[Tensor], Tensor]) -> bool:
        source, _ = as_matrix(answer.get(name))
        if source is None:
            return False
        try:
            return close(matrix, compute(source))
        except RuntimeError:  # shapes that do not multiply
            return False


def as_matrix(given: object) -> tuple[Tensor | None, str]:
    """The matrix that was given, or what keeps it from being one."""
    rows: list[list[object]] = []
    for entry in listed(given) or [given]:
        row = listed(entry)
        if row is None:
            return None, "give a list of rows, as in [[1, 2], [3, 4]]"
        rows.append(row)
    if not rows[0]:
        return None, "the matrix is empty"
    if len({len(row) for row in rows}) > 1:
        return None, f"rows must be equally long, got lengths {', '.join(str(len(row)) for row in rows)}"
    for entry in (entry for row in rows for entry in row):
        if isinstance(entry, bool) or not isinstance(entry, int | float):
            return None, f"entries must be numbers, got {entry!r}"
    try:
        matrix = torch.tensor(rows, dtype=torch.float64)
    except OverflowError:  # an integer beyond any float
        return None, "entries must be finite numbers"
    if not bool(matrix.isfinite().all()):
        return None, "entries must be finite numbers"
    return matrix, ""


def close(matrix: Tensor, other: Tensor) -> bool:
    """Whether every entry agrees to two decimals."""
    return matrix.shape == other.shape and bool(((matrix - other).abs() <= TOLERANCE).all())


def _coarse(matrix: Tensor, truth: Tensor) -> str:
    """Right numbers with too few digits, or cut off where they should be rounded."""
    for decimals in (1, 0):
        if bool(((matrix - truth.round(decimals=decimals)).abs() < 1e-9).all()):
            return "right as far as it goes, but rounded too coarsely: give at least two decimals"
    if bool(((matrix - (truth * 100).floor() / 100).abs() < 1e-9).all()):
        return "right as far as it goes, but cut off after two decimals: round instead"
    return ""


def _sums(matrix: Tensor, wanted: float) -> str:
    """The first row that breaks the law of sums, if any; rounding may move a sum a little."""
    if bool((matrix < 0).any()):
        return "a weight is negative, and no exponential is"
    for number, total in enumerate(matrix.sum(1).tolist(), 1):
        if abs(total - wanted) > TOLERANCE * matrix.shape[1]:
            return f"row {number} sums to {total:.4g}, not to {wanted:g}"
    return ""


def _rows(matrix: Tensor, truth: Tensor) -> str:
    """Which rows are right, and where the others are off the most."""
    off = (matrix - truth).abs()
    wrong = [number for number, row in enumerate(off, 1) if bool((row > TOLERANCE).any())]
    right = [number for number in range(1, len(truth) + 1) if number not in wrong]
    place = int(off.argmax())
    worst = f"the entry in row {place // truth.shape[1] + 1}, column {place % truth.shape[1] + 1} is off the most"
    if not right:
        return f"no row is right; {worst}"
    return f"row{'s' * (len(right) > 1)} {' and '.join(map(str, right))} right, {worst}"
