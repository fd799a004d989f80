"""Fresh numbers: an exercise's file runs again with other inputs, drawn from a seed, and computes everything anew.

The file of an exercise names its inputs with the functions below. They return the printed numbers, or with a seed other
ones of the same shape; all that follows from them (task, answers, known mistakes, worked answer) is computed.
"""

import contextlib
import importlib
import importlib.util
import random
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, TypeVar

from regard.lab.exercises.exercise import Exercise, check
from regard.lab.exercises.numbers import slack
from regard.lab.exercises.questions import Quantity

Value = TypeVar("Value")
ATTEMPTS = 400  # of one seed, until an exercise comes out sound
_DRAWN: ContextVar[random.Random | None] = ContextVar("drawn", default=None)


@contextlib.contextmanager
def _drawing(name: str) -> Iterator[None]:
    token = _DRAWN.set(random.Random(name))
    try:
        yield
    finally:
        _DRAWN.reset(token)


def _below(stop: int) -> int:
    """A whole number from 0 to stop − 1, by `random()` alone: the one method that is the same in every Python."""
    drawn = _DRAWN.get()
    assert drawn is not None
    return int(drawn.random() * stop)


def one_of(printed: Value, *others: Value) -> Value:
    """The printed value, or any of all that are given."""
    return printed if _DRAWN.get() is None else (printed, *others)[_below(1 + len(others))]


def whole(printed: Any, low: int, high: int) -> Any:
    """Whole numbers from low to high, both included, in the shape of the printed ones: a number or lists of them."""
    if _DRAWN.get() is None:
        return printed
    if isinstance(printed, Sequence):
        return [whole(each, low, high) for each in printed]
    return low + _below(high - low + 1)


def distinct(printed: Sequence[int], low: int, high: int) -> list[int]:
    """As many whole numbers from low to high, none twice."""
    return list(printed) if _DRAWN.get() is None else shuffled(range(low, high + 1))[: len(printed)]


def shuffled(printed: Sequence[Value]) -> list[Value]:
    """The same values in another order."""
    values = list(printed)
    if _DRAWN.get() is not None:
        for last in range(len(values) - 1, 0, -1):
            other = _below(last + 1)
            values[last], values[other] = values[other], values[last]
    return values


def shares(printed: Sequence[float], least: int = 1) -> list[float]:
    """A row of weights in tenths that sums to 1, each at least `least` tenths."""
    if _DRAWN.get() is None:
        return list(printed)
    tenths = [least] * len(printed)
    for _ in range(10 - sum(tenths)):
        tenths[_below(len(tenths))] += 1
    return [each / 10 for each in tenths]


def redrawn(number: int, name: str, seed: int) -> Exercise:
    """The exercise of file `name` with numbers drawn from the seed: the same for the same seed, on any machine.

    Numbers with which two answers would look alike, or right ones like wrong ones, are drawn again.
    """
    printed: Exercise = importlib.import_module(f"regard.lab.exercises.{name}").EXERCISE
    source = importlib.util.find_spec(f"regard.lab.exercises.{name}")
    assert source is not None
    assert source.loader is not None
    for attempt in range(ATTEMPTS):
        with _drawing(f"exercise {number}, seed {seed}, attempt {attempt}"):
            module = importlib.util.module_from_spec(source)
            source.loader.exec_module(module)
        made: Exercise = module.EXERCISE
        if (made.task, made.picture) != (printed.task, printed.picture) and is_sound(made):
            return replace(made, seed=seed)
    raise ValueError(f"exercise {number} has no other numbers for seed {seed}; try another seed")


def is_sound(made: Exercise) -> bool:
    """Whether every wrong value can be told from the right one and from every other, and the example is wrong."""
    quantities = [part for part in made.parts.values() if isinstance(part, Quantity)]
    empty = any(part.right == [] for part in made.parts.values())
    return not empty and all(map(_told_apart, quantities)) and not any(each.right for each in check(made, made.wrong))


def _told_apart(part: Quantity) -> bool:
    values = [part.truth, *(mistake.value for mistake in part.mistakes)]
    if not all(bool(value.isfinite().all()) for value in values):
        return False
    if not all(map(part.names, part.mistakes)):
        return False
    return all(
        value.shape != other.shape
        or bool(((value - other).abs() > slack(value, part.digits) + slack(other, part.digits)).any())
        for index, value in enumerate(values)
        for other in values[:index]
    )
