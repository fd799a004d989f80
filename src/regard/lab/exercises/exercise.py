"""Exercise: a task in parts, each with its right answer and known mistakes; `check` gives a verdict on each part."""

import difflib
import itertools
import json
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from regard import plot
from regard.inspection.explain import Explanation
from regard.inspection.records import Picture, Table
from regard.lab.exercises.numbers import close, coarse, read, rounded, same, slack
from regard.lab.exercises.worked import Numbers, tensor

Answer = Mapping[str, object]
Paragraph = str | Explanation | Table | Picture


class Judgement(NamedTuple):
    """Whether an answer is right and what to say about it; `follows` if it is right for a wrong earlier part."""

    right: bool
    text: str
    follows: bool = False


class Question(ABC):
    """One part of an exercise. `right` is the right answer as JSON holds it; `hint` leads to it."""

    right: object
    hint: str

    @abstractmethod
    def check(self, given: object, answer: Answer) -> Judgement:
        """Whether `given` is right, and what to say about it. `answer` holds all parts that were given."""


class Mistake(NamedTuple):
    """The numbers that one particular error leads to, and the words that explain the error."""

    value: Tensor
    text: str


class Quantity(Question):
    """A number, a list of numbers or a matrix: the right value with a hint, then mistakes, each with its explanation.

    `axes` names what stands along each axis: nothing for a number, (row, column) for a matrix. `follows` computes it
    from another part that the student may have given too; `rows_sum` is what each row must add up to, if anything.
    Two decimals are enough, or `digits` significant ones where that says too little or too much.
    """

    def __init__(
        self,
        right: tuple[Numbers, str],
        *mistakes: tuple[Numbers, str],
        axes: tuple[str, ...] = (),
        follows: tuple[str, Callable[[Tensor], Tensor]] | None = None,
        rows_sum: float | None = None,
        digits: int | None = None,
    ) -> None:
        self.truth, self.hint = tensor(right[0]), right[1]
        self.right = rounded(self.truth, digits)
        self.mistakes = tuple(Mistake(tensor(value), text) for value, text in mistakes)
        self.axes, self.follows, self.rows_sum, self.digits = axes, follows, rows_sum, digits

    def check(self, given: object, answer: Answer) -> Judgement:
        """Compare with the truth, then with an earlier part, then with what each known mistake leads to."""
        try:
            numbers = read(given, self.truth.ndim)
        except ValueError as error:
            return Judgement(False, str(error))
        if self._close(numbers, self.truth):
            return Judgement(True, "right")
        if numbers.shape != self.truth.shape:
            return Judgement(False, self._shape(numbers))
        if self.follows and self._follows(numbers, answer, *self.follows):
            text = f"this follows correctly from your {self.follows[0]!r}, which is not right: repair that first"
            return Judgement(False, text, follows=True)
        return Judgement(False, self._diagnosis(numbers))

    def _close(self, given: Tensor, value: Tensor) -> bool:
        return close(given, value, self.digits)

    def _mistake(self, given: Tensor) -> str:
        return next((mistake.text for mistake in self.mistakes if self._close(given, mistake.value)), "")

    def _shape(self, given: Tensor) -> str:
        size = self.truth.shape
        if len(size) == 1:
            expected, problem = f"{size[0]} numbers, one for each {self.axes[0]}", f"wrong length: {len(given)}"
        else:
            expected = f"{size[0]} × {size[1]}: a row for each {self.axes[0]}, a column for each {self.axes[1]}"
            problem = f"wrong shape: {given.shape[0]} × {given.shape[1]}"
            if self._close(given.mT, self.truth):
                problem = "the numbers are right but transposed"
        return f"{self._mistake(given) or problem}; wanted is {expected}"

    def _diagnosis(self, given: Tensor) -> str:
        if text := coarse(given, self.truth, self.digits) or self._mistake(given):
            return text
        if self.digits is None and same(given, self.truth.round()):
            return "right as far as it goes, but rounded too coarsely: give at least two decimals"
        if bool(((self.truth >= 0) & (self.truth <= 1)).all()) and self._close(given / 100, self.truth):
            return "these are percentages; give shares of 1"
        if text := self._sums(given):
            return f"{text}; {self.hint}"
        if self._close(-given, self.truth):
            return f"right but for the sign; {self.hint}"
        if given.ndim == 2 and self._close(given.mT, self.truth):
            return f"transposed: rows are for each {self.axes[0]}, columns for each {self.axes[1]}"
        return f"{self._place(given)}; {self.hint}"

    def _follows(self, given: Tensor, answer: Answer, name: str, compute: Callable[[Tensor], Tensor]) -> bool:
        for axes in range(3) if name in answer else ():
            try:
                return self._close(given, compute(read(answer[name], axes)))
            except ValueError:  # not of this form
                continue
            except (RuntimeError, IndexError):  # shapes that do not fit
                return False
        return False

    def _sums(self, given: Tensor) -> str:
        """The first row with a wrong sum, if any; rounding may move a sum a little."""
        if self.rows_sum is None:
            return ""
        if bool((self.truth >= 0).all()) and bool((given < 0).any()):
            return "a weight is negative, and no exponential is"
        for index, total in enumerate(given.reshape(-1, given.shape[-1]).sum(1).tolist(), 1):
            if abs(total - self.rows_sum) > 0.005 * given.shape[-1] + 1e-9:
                row = f"row {index} sums" if given.ndim == 2 else "the numbers sum"
                return f"{row} to {total:.4g}, not to {self.rows_sum:g}"
        return ""

    def _place(self, given: Tensor) -> str:
        """Which rows or entries are right, and where the others are off the most."""
        if given.ndim == 0:
            return "too large" if given > self.truth else "too small"
        error = (given - self.truth).abs()
        place = int(error.argmax())
        unit, worst = "number", f"number {place + 1} is off the most"
        if given.ndim == 2:
            row, column = divmod(place, given.shape[1])
            unit, worst = "row", f"the entry in row {row + 1}, column {column + 1} is off the most"
        right_rows = (error <= slack(self.truth, self.digits)).reshape(len(given), -1).all(1).tolist()
        right = [str(index) for index, each in enumerate(right_rows, 1) if each]
        if not right:
            return f"no {unit} is right; {worst}"
        return f"{unit}{'s' * (len(right) > 1)} {' and '.join(right)} right, {worst}"


class Choice(Question):
    """One of a few words. Each option comes with what is said of it, in the order of the task."""

    def __init__(self, hint: str, *options: tuple[str, str], right: str) -> None:
        self.hint, self.options, self.right = hint, dict(options), right
        if right not in self.options:
            raise ValueError(f"{right!r} must be one of {', '.join(self.options)}")

    def __str__(self) -> str:
        return f"{self.right}; {self.options[str(self.right)]}"

    def check(self, given: object, answer: Answer) -> Judgement:
        """Compare without regard to case and spaces around the word."""
        words = ", ".join(repr(option) for option in self.options)
        if not isinstance(given, str):
            return Judgement(False, f"give one of {words}, got {given!r}")
        by_word = {option.casefold(): option for option in self.options}
        word = given.strip().casefold()
        if word not in by_word:
            near = difflib.get_close_matches(word, by_word, n=1)
            hint = f"did you mean {by_word[near[0]]!r}?" if near else f"choose from {words}"
            return Judgement(False, f"{given!r} is no option; {hint}")
        option = by_word[word]
        right = option == self.right
        return Judgement(right, f"{'right: ' * right}{self.options[option]}")


@dataclass(frozen=True)
class Chapter:
    """Where the matter is treated: a document of docs/seeds.md, its section, and the experiments that show it."""

    document: str
    section: str
    experiments: tuple[str, ...]

    def __str__(self) -> str:
        runs = " and ".join(f"`regard lab {name}`" for name in self.experiments)
        return f"{self.document}, {self.section}; {runs}"


@dataclass(frozen=True)
class Exercise:
    """`example` is an answer of the right form with wrong content; `solution` is the worked answer in paragraphs."""

    number: int
    title: str
    chapter: Chapter
    task: str
    parts: Mapping[str, Question]
    example: str
    solution: tuple[Paragraph, ...]
    picture: Picture | None = None

    @property
    def answer(self) -> dict[str, object]:
        """The right answer to every part, as `check` takes it."""
        return {name: part.right for name, part in self.parts.items()}

    def worked(self, width: int) -> str:
        """The worked answer as text, and at its end the answer in the form that `check` takes.

        Long sentences wrap; indented lines and tables stay as they are. So does JSON that is short enough.
        """
        text = "\n\n".join(_text(paragraph, width) for paragraph in self.solution)
        lines = [
            textwrap.wrap(line, width) if len(line) > width and not line.startswith(" ") else [line]
            for line in text.rstrip().split("\n")
        ]
        entries = [
            f"{json.dumps(name)}: {json.dumps(right, ensure_ascii=False)}" for name, right in self.answer.items()
        ]
        wrapped = [textwrap.fill(each, width - 3, subsequent_indent="   ", break_on_hyphens=False) for each in entries]
        return "\n".join([*itertools.chain(*lines), "", "The answer:", "", "{" + ",\n ".join(wrapped) + "}"])


def _text(paragraph: Paragraph, width: int) -> str:
    if isinstance(paragraph, str):
        return paragraph
    if isinstance(paragraph, Explanation):
        return paragraph.text(width).rstrip()
    return plot.table(paragraph) if isinstance(paragraph, Table) else plot.render(paragraph, width=max(width, 20))


@dataclass(frozen=True)
class Verdict:
    """Whether a part of the answer is right, what to say about it, and where to read more if it is not.

    `follows` marks a part that is wrong only because an earlier one is; it is no mistake of its own.
    """

    part: str
    right: bool
    text: str
    see: str = ""
    follows: bool = False

    @property
    def mark(self) -> str:
        """✓ right, ↳ follows from an earlier mistake, ✗ wrong."""
        return "✓" if self.right else "↳" if self.follows else "✗"

    def __str__(self) -> str:
        return f"{self.mark} {self.part}: {self.text}" + (f" (see {self.see})" if self.see else "")


def _is_right(parts: Mapping[str, Question], name: str, answer: Answer) -> bool:
    return parts[name].check(answer[name], answer).right


def check(exercise: Exercise, answer: object) -> tuple[Verdict, ...]:
    """A verdict for each part the answer holds, in the order of the task; None leaves a part open."""
    parts = exercise.parts
    if not isinstance(answer, Mapping) or not answer:
        raise ValueError(f"an answer names at least one of {', '.join(parts)}, as in {exercise.example}")
    for name in answer:
        if name not in parts:
            near = difflib.get_close_matches(str(name), parts, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]!r}?" if near else f"it asks for {', '.join(parts)}"
            raise ValueError(f"exercise {exercise.number} does not ask for {name!r}; {hint}")
    verdicts = []
    for name, part in parts.items():
        if name in answer and answer[name] is None:
            verdicts.append(Verdict(name, False, "still open: write your answer in place of None"))
        elif name in answer:
            right, text, follows = part.check(answer[name], answer)
            if follows and isinstance(part, Quantity) and part.follows and _is_right(parts, part.follows[0], answer):
                right, text, follows = True, f"right, from the rounded {part.follows[0]!r}", False
            verdicts.append(Verdict(name, right, text, "" if right else str(exercise.chapter), follows))
    return tuple(verdicts)
