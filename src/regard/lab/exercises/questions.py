"""Questions: numbers, choices and selections, each with its right answer and known mistakes, as values and as JSON."""

import difflib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.lab.exercises.derived import Derived
from regard.lab.exercises.numbers import as_lists, close, coarse, read, rounded, rounds_to, slack
from regard.lab.exercises.worked import Numbers, tensor

Answer = Mapping[str, object]


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

    @abstractmethod
    def data(self) -> dict[str, object]:
        """Everything that a check needs, as JSON holds it (docs/exercises.md); `kind` says of which class it is."""


class Mistake(NamedTuple):
    """The numbers that one particular error leads to, and the words that explain the error."""

    value: Tensor
    text: str


class Quantity(Question):
    """A number, a list of numbers or a matrix: the right value with a hint, then mistakes, each with its explanation.

    `axes` names what stands along each axis: nothing for a number, (row, column) for a matrix. `follows` derives it
    from another part that the student may have given too; `rows_sum` is what each row must add up to, if anything.
    Two decimals are enough, or `digits` significant ones where that says too little or too much.
    """

    def __init__(
        self,
        right: tuple[Numbers, str],
        *mistakes: tuple[Numbers, str],
        axes: tuple[str, ...] = (),
        follows: Derived | None = None,
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
        if self.follows and self._follows(numbers, answer, self.follows):
            text = f"this follows correctly from your {self.follows.part!r}, which is not right: repair that first"
            return Judgement(False, text, follows=True)
        return Judgement(False, self._diagnosis(numbers))

    def names(self, mistake: Mistake) -> bool:
        """Whether a student who makes this mistake, exactly or rounded, is told of it and of no other."""
        given = (mistake.value.tolist(), rounded(mistake.value, self.digits))
        return all(self.check(each, {}).text.startswith(mistake.text) for each in given)

    def data(self) -> dict[str, object]:
        """`value` is exact, `right` is as it is printed; `accept` says to which decimals or digits it is compared."""
        return {
            "kind": "numbers",
            "hint": self.hint,
            "right": self.right,
            "value": self.truth.tolist(),
            "shape": list(self.truth.shape),
            "axes": list(self.axes),
            "accept": {"decimals": 2} if self.digits is None else {"digits": self.digits},
            "rows_sum": self.rows_sum,
            "follows": self.follows.data() if self.follows else None,
            "mistakes": [{"value": mistake.value.tolist(), "text": mistake.text} for mistake in self.mistakes],
        }

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
        if self.digits is None and rounds_to(given, self.truth, torch.ones_like(self.truth)):
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

    def _follows(self, given: Tensor, answer: Answer, follows: Derived) -> bool:
        for axes in range(3) if follows.part in answer else ():
            try:
                value = follows.value(read(answer[follows.part], axes))
            except ValueError:  # not of this form
                continue
            return value is not None and self._close(given, value)
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

    def data(self) -> dict[str, object]:
        """Each option with what is said of it."""
        options = [{"value": option, "text": text} for option, text in self.options.items()]
        return {"kind": "choice", "hint": self.hint, "right": self.right, "options": options}


Item = str | tuple[str, ...]


class Subset(Question):
    """Some of many words, or of many pairs of words, in any order.

    Each item comes with what is said if it is chosen and wrong, or right and missing; `form` shows an answer.
    `mistakes` are whole answers, each with its explanation.
    """

    def __init__(
        self,
        hint: str,
        form: str,
        items: Mapping[Item, str],
        *mistakes: tuple[Sequence[Item], str],
        right: Sequence[Item],
    ) -> None:
        self.hint, self.form, self.items = hint, form, dict(items)
        self.chosen = [item for item in items if item in right]
        self.right = [_listed(item) for item in self.chosen]
        self.mistakes = tuple((frozenset(values), text) for values, text in mistakes)
        if len(self.chosen) != len(right):
            raise ValueError(f"{right!r} must be among {', '.join(map(str, items))}")

    def check(self, given: object, answer: Answer) -> Judgement:
        """Wrong items first, then missing ones."""
        entries = as_lists(list(given.items()) if isinstance(given, Mapping) else given)
        if not isinstance(entries, list) or not all(map(self._fits, entries)):
            return Judgement(False, f"give {self.form}")
        chosen = [_item(entry) for entry in entries]
        for item in chosen:
            if item not in self.items:
                return Judgement(False, self._unknown(item))
        known = [text for values, text in self.mistakes if values == set(chosen)]
        wrong = [self.items[item] for item in chosen if item not in self.chosen]
        if known or wrong:
            return Judgement(False, known[0] if known else "; ".join(dict.fromkeys(wrong)))
        missing = [self.items[item] for item in self.chosen if item not in chosen]
        if missing:
            return Judgement(False, f"{len(missing)} missing: {'; '.join(dict.fromkeys(missing))}")
        return Judgement(True, "right")

    def data(self) -> dict[str, object]:
        """Each item with whether it is right and what is said of it."""
        items = [
            {"value": _listed(item), "right": item in self.chosen, "text": text} for item, text in self.items.items()
        ]
        mistakes = [
            {"value": [_listed(item) for item in self.items if item in values], "text": text}
            for values, text in self.mistakes
        ]
        return {
            "kind": "selection",
            "hint": self.hint,
            "right": self.right,
            "form": self.form,
            "items": items,
            "mistakes": mistakes,
        }

    def _fits(self, entry: object) -> bool:
        """Whether it is a word where words are asked for, and a pair where pairs are."""
        first = next(iter(self.items))
        if isinstance(first, str):
            return isinstance(entry, str)
        return isinstance(entry, list) and len(entry) == len(first) and all(isinstance(word, str) for word in entry)

    def _unknown(self, item: Item) -> str:
        near = difflib.get_close_matches(_name(item), map(_name, self.items), n=1)
        return f"{_name(item)!r} is not in the map" + (f"; did you mean {near[0]!r}?" if near else "")


def _item(entry: object) -> Item:
    return tuple(map(str, entry)) if isinstance(entry, list) else str(entry)


def _listed(item: Item) -> object:
    return item if isinstance(item, str) else list(item)


def _name(item: Item) -> str:
    return item if isinstance(item, str) else "–".join(item)
