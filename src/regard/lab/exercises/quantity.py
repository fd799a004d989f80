"""Checking numbers: not only whether they are right, but which known mistake leads to the ones that were given."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from regard.lab.exercises.exercise import Answer, Verdict
from regard.lab.exercises.numbers import Numbers, close, coarse, read, rounded, slack, tensor, whole

__all__ = ["Mistake", "Quantity", "number", "numbers"]


@dataclass(frozen=True, eq=False)
class Mistake:
    """The numbers that one particular error leads to, and the words that explain the error."""

    value: Tensor
    text: str


@dataclass(frozen=True, eq=False)
class Quantity:
    """A number, a list of numbers or a matrix that is asked: how to get it, and where one can go wrong.

    `axes` names what stands along each axis: nothing for a number, (row, column) for a matrix. `follows` computes it
    from another part that the student may have given too; `rows_sum` is what each row must add up to, if anything.
    Two decimals are enough, or `digits` significant ones where that says too little or too much.
    """

    name: str
    axes: tuple[str, ...]
    asks: str
    truth: Tensor
    mistakes: tuple[Mistake, ...] = ()
    follows: tuple[str, Callable[[Tensor], Tensor]] | None = None
    rows_sum: float | None = None
    digits: int | None = None

    @property
    def right(self) -> object:
        """The truth, to four decimals or significant digits."""
        return rounded(self.truth, self.digits)

    def check(self, given: object, answer: Answer) -> Verdict:
        """The verdict on what was given for this quantity."""
        found, problem = read(given, self.truth.ndim)
        if found is None:
            return Verdict(self.name, False, problem)
        if self._is(found, self.truth):
            return Verdict(self.name, True, "right")
        text = self._diagnosis(found, answer) if found.shape == self.truth.shape else self._shape(found)
        return Verdict(self.name, False, text)

    def _is(self, found: Tensor, value: Tensor) -> bool:
        return close(found, value, slack(value, self.digits))

    def _mistake(self, found: Tensor) -> str:
        return next((mistake.text for mistake in self.mistakes if self._is(found, mistake.value)), "")

    def _shape(self, found: Tensor) -> str:
        size = [*self.truth.shape]
        if len(size) == 1:
            wanted, came = f"{size[0]} numbers, one for each {self.axes[0]}", f"wrong length: {len(found)}"
        else:
            wanted = f"{size[0]} × {size[1]}: a row for each {self.axes[0]}, a column for each {self.axes[1]}"
            came = f"wrong shape: {found.shape[0]} × {found.shape[1]}"
            if self._is(found.mT, self.truth):
                came = "the numbers are right but transposed"
        return f"{self._mistake(found) or came}; wanted is {wanted}"

    def _diagnosis(self, found: Tensor, answer: Answer) -> str:
        given = found, self.truth, self.digits
        if text := coarse(*given) or self._mistake(found) or whole(*given):
            return text
        share = bool(((self.truth >= 0) & (self.truth <= 1)).all())
        if share and self._is(found / 100, self.truth):
            return "these are percentages; give shares of 1"
        if self.follows and self._follows(found, answer, *self.follows):
            return f"this follows correctly from your {self.follows[0]!r}, which is not right: repair that first"
        if self.rows_sum is not None and (law := _sums(found, self.truth, self.rows_sum)):
            return f"{law}; {self.asks}"
        if self._is(-found, self.truth):
            return f"right but for the sign; {self.asks}"
        if found.ndim == 2 and found.shape == self.truth.mT.shape and self._is(found.mT, self.truth):
            return f"transposed: rows are for each {self.axes[0]}, columns for each {self.axes[1]}"
        return f"{_where(found, self.truth, slack(self.truth, self.digits))}; {self.asks}"

    def _follows(self, found: Tensor, answer: Answer, name: str, compute: Callable[[Tensor], Tensor]) -> bool:
        if name not in answer:
            return False
        for axes in range(3):
            source, _ = read(answer[name], axes)
            if source is not None:
                break
        else:
            return False
        try:
            return self._is(found, compute(source))
        except (RuntimeError, IndexError):  # shapes that do not fit
            return False


def number(
    name: str,
    asks: str,
    truth: Numbers,
    *mistakes: tuple[Numbers, str],
    digits: int | None = None,
    follows: tuple[str, Callable[[Tensor], Tensor]] | None = None,
) -> Quantity:
    """A quantity that is one number."""
    return Quantity(name, (), asks, tensor(truth), _mistakes(mistakes), follows, digits=digits)


def numbers(
    name: str,
    axes: Sequence[str],
    asks: str,
    truth: Numbers,
    *mistakes: tuple[Numbers, str],
    follows: tuple[str, Callable[[Tensor], Tensor]] | None = None,
    rows_sum: float | None = None,
    digits: int | None = None,
) -> Quantity:
    """A quantity that is a list of numbers, or a matrix."""
    return Quantity(name, tuple(axes), asks, tensor(truth), _mistakes(mistakes), follows, rows_sum, digits)


def _mistakes(given: Sequence[tuple[Numbers, str]]) -> tuple[Mistake, ...]:
    return tuple(Mistake(tensor(value), text) for value, text in given)


def _sums(found: Tensor, truth: Tensor, wanted: float) -> str:
    """The first row that breaks the law of sums, if any; rounding may move a sum a little."""
    if bool((truth >= 0).all()) and bool((found < 0).any()):
        return "a weight is negative, and no exponential is"
    rows = found.reshape(-1, found.shape[-1])
    for index, total in enumerate(rows.sum(1).tolist(), 1):
        if abs(total - wanted) > 0.005 * found.shape[-1] + 1e-9:
            row = f"row {index} sums" if found.ndim == 2 else "the numbers sum"
            return f"{row} to {total:.4g}, not to {wanted:g}"
    return ""


def _where(found: Tensor, truth: Tensor, allowed: Tensor) -> str:
    """Which rows or entries are right, and where the others are off the most."""
    if found.ndim == 0:
        return "too large" if found > truth else "too small"
    off, place = (found - truth).abs(), int((found - truth).abs().argmax())
    good = (off <= allowed).reshape(len(truth), -1).all(1)
    right = [index for index, each in enumerate(good.tolist(), 1) if each]
    what, worst = "number", f"number {place + 1} is off the most"
    if found.ndim == 2:
        row, column = divmod(place, truth.shape[1])
        what, worst = "row", f"the entry in row {row + 1}, column {column + 1} is off the most"
    if not right:
        return f"no {what} is right; {worst}"
    return f"{what}{'s' * (len(right) > 1)} {' and '.join(map(str, right))} right, {worst}"
