"""Exercises: found by number, complete, and strict about what an answer may hold."""

import json

import pytest

from regard.lab.exercises import EXERCISES, check, exercise


@pytest.mark.parametrize("number", EXERCISES)
def test_exercises_are_complete(number: int) -> None:
    chosen = exercise(number)
    assert chosen.number == number
    assert all(part.name in chosen.task for part in chosen.parts)
    assert max(map(len, chosen.task.split("\n"))) <= 80
    assert chosen.solution(80)


@pytest.mark.parametrize("number", EXERCISES)
def test_the_example_has_the_right_form_and_is_wrong(number: int) -> None:
    chosen = exercise(number)
    verdicts = check(chosen, json.loads(chosen.example))
    assert verdicts
    assert not any(verdict.right for verdict in verdicts)
    assert not any(verdict.text.startswith("give") for verdict in verdicts)


def test_unknown_numbers() -> None:
    with pytest.raises(ValueError, match="the exercises are 1, 2; got 3"):
        exercise(3)


@pytest.mark.parametrize("answer", [{}, [], 3, "weights", None])
def test_an_answer_names_parts(answer: object) -> None:
    with pytest.raises(ValueError, match="names at least one of scores, scaled, weights, outputs, as in"):
        check(exercise(1), answer)


@pytest.mark.parametrize("name, hint", [("weigths", "did you mean 'weights'"), ("zzz", "it asks for scores, scaled")])
def test_unknown_parts_get_a_hint(name: str, hint: str) -> None:
    with pytest.raises(ValueError, match=f"exercise 1 does not ask for '{name}'; {hint}"):
        check(exercise(1), {name: [[1]]})
