"""Fresh numbers: others than the printed ones, the same for the same seed, and with answers that can be told apart."""

import json

import pytest
import torch

from regard.lab.exercises import EXERCISES, exercise
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.fresh import distinct, is_sound, one_of, shares, shuffled, whole
from regard.lab.exercises.questions import Quantity


@pytest.mark.parametrize("number", EXERCISES)
def test_a_seed_gives_other_numbers_and_always_the_same(number: int) -> None:
    printed, one, again = exercise(number), exercise(number, 7), exercise(number, 7)
    assert (one.task, one.picture) != (printed.task, printed.picture)
    assert one.data() == again.data()
    assert one.seed == 7
    assert one.parts.keys() == printed.parts.keys()
    assert len({json.dumps(exercise(number, seed).data()["parts"]) for seed in range(6)}) >= 3


def test_the_printed_numbers_come_without_a_seed() -> None:
    assert whole([[1, 2], [3, 4]], 7, 9) == [[1, 2], [3, 4]]
    assert distinct([5, 6], 0, 1) == [5, 6]
    assert shuffled([3, 1, 2]) == [3, 1, 2]
    assert shares([0.2, 0.8]) == [0.2, 0.8]
    assert one_of(1, 2, 3) == 1


def test_the_first_numbers_of_a_seed_do_not_change() -> None:
    """Written down once: a seed in somebody's notes must go on to mean the same numbers."""
    assert "[2, 1, 0], already" in exercise(9, 1).task
    assert "at τ = 0.8" in exercise(9, 1).task
    assert "Word 1: [1, 2]     Word 2: [1, 1]     Word 3: [1, 1]" in exercise(1, 1).task


def made_of(right: float, wrong: float) -> Exercise:
    part = Quantity((right, "hint"), (wrong, "a mistake that has its words"))
    return Exercise(1, "", Chapter("", "", ()), "", {"part": part}, '{"part": 100}', ())


def test_answers_that_look_alike_are_not_sound() -> None:
    assert is_sound(made_of(0.5, 0.6))
    assert not is_sound(made_of(0.5, 0.506))
    assert not is_sound(made_of(100, 1))
    assert not is_sound(made_of(0.5, torch.inf))
