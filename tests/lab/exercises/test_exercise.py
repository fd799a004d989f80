"""Every exercise: complete, solved by its own answer, and able to name each mistake it knows."""

import importlib
import json
import re

import pytest
import torch

from regard.lab.exercises import EXERCISES, Exercise, check, exercise
from regard.lab.exercises.numbers import rounded, slack
from regard.lab.exercises.questions import Choice, Mistake, Quantity

PRINTED = [exercise(number) for number in EXERCISES]
ALL = PRINTED + [exercise(number, seed) for number in EXERCISES for seed in (1, 2)]
QUANTITIES = [(of, name, part) for of in ALL for name, part in of.parts.items() if isinstance(part, Quantity)]
CHOICES = [(of, name, part) for of in ALL for name, part in of.parts.items() if isinstance(part, Choice)]
MISTAKES = [(of, name, part, mistake) for of, name, part in QUANTITIES for mistake in part.mistakes]
DOCUMENTS = ("mini-course", "score functions", "important concepts", "experiment results")


def named(value: object) -> str:
    if isinstance(value, Exercise):
        return f"{value.number}" if value.seed is None else f"{value.number}, seed {value.seed}"
    return value if isinstance(value, str) else ""


def verdict(of: Exercise, part: str, given: object) -> tuple[bool, str]:
    (result,) = check(of, {part: given})
    return result.right, result.text


@pytest.mark.parametrize("of", ALL, ids=named)
def test_exercises_are_complete(of: Exercise) -> None:
    assert EXERCISES[of.number] in EXERCISES.values()
    assert all(re.search(rf"^ +{name} ", of.task, re.MULTILINE) for name in of.parts)
    assert max(map(len, of.task.split("\n"))) <= 80
    assert of.chapter.document in DOCUMENTS
    assert of.chapter.experiments
    assert all(part.hint for part in of.parts.values())


def test_chapters_follow_one_another() -> None:
    documents = [DOCUMENTS.index(of.chapter.document) for of in PRINTED]
    assert [of.number for of in PRINTED] == list(range(1, len(PRINTED) + 1))
    assert documents == sorted(documents)
    sections = {of.chapter.section.split(".")[0] for of in PRINTED if of.chapter.document == "important concepts"}
    assert sections == {str(section) for section in range(1, 11)}


@pytest.mark.parametrize("of", ALL, ids=named)
def test_the_worked_answer_ends_in_an_answer_that_is_right(of: Exercise) -> None:
    body, _, answer = of.worked(80).partition("The answer:\n\n")
    assert body
    verdicts = check(of, json.loads(answer))
    assert [each.part for each in verdicts] == list(of.parts)
    assert all(each.right for each in verdicts)
    assert all(each.see == "" for each in verdicts)


@pytest.mark.parametrize("of", ALL, ids=named)
def test_the_worked_answer_shows_how_it_gets_its_numbers(of: Exercise) -> None:
    """Each number of the answer stands in the text before it, in some of the usual ways to print it."""
    body = of.worked(80).partition("The answer:\n\n")[0].replace("−", "-").replace("\n", " ")
    for name, part in of.parts.items():
        if isinstance(part, Choice):
            assert str(part) in of.worked(300)
        if isinstance(part, Quantity):
            for number in part.truth.flatten().tolist():
                forms = {f"{number:.4f}", f"{number:,.4f}".rstrip("0").rstrip("."), f"{number:.2e}", f"{number:.1f}"}
                assert any(form in body for form in forms), (name, number)


@pytest.mark.parametrize("of", ALL, ids=named)
def test_the_example_has_the_right_form_and_is_wrong(of: Exercise) -> None:
    verdicts = check(of, json.loads(of.example))
    assert verdicts
    for each in verdicts:
        assert not each.right
        assert not each.text.startswith(("give", "wrong shape", "wrong length", "entries"))
        assert f"regard lab {of.chapter.experiments[0]}" in each.see
        assert str(each).startswith((f"✗ {each.part}: ", f"↳ {each.part}: "))


@pytest.mark.parametrize("of, name, part, mistake", MISTAKES, ids=named)
def test_every_mistake_is_named(of: Exercise, name: str, part: Quantity, mistake: Mistake) -> None:
    for given in (mistake.value.tolist(), rounded(mistake.value, part.digits)):
        right, text = verdict(of, name, given)
        assert not right
        assert text.startswith(mistake.text)


@pytest.mark.parametrize("of, name, part", QUANTITIES, ids=named)
def test_mistakes_cannot_be_confused(of: Exercise, name: str, part: Quantity) -> None:
    """No two of them, and none and the truth, are so near that one rounded answer could mean both."""
    assert len(part.mistakes) >= 2
    values = [part.truth, *(mistake.value for mistake in part.mistakes)]
    for index, value in enumerate(values):
        for other in values[:index]:
            if value.shape == other.shape:
                both = slack(value, part.digits) + slack(other, part.digits)
                assert bool(((value - other).abs() > both).any()), (value, other)


@pytest.mark.parametrize("of, name, part", QUANTITIES, ids=named)
def test_mistakes_say_why(of: Exercise, name: str, part: Quantity) -> None:
    for mistake in part.mistakes:
        assert len(mistake.text) > 15
        assert not mistake.text.endswith(".")


@pytest.mark.parametrize("of, name, part", CHOICES, ids=named)
def test_every_choice_has_a_reason(of: Exercise, name: str, part: Choice) -> None:
    assert len(part.options) > 1
    for option, reason in part.options.items():
        assert option in of.task
        right, text = verdict(of, name, option)
        assert right == (option == part.right)
        assert text == (f"right: {reason}" if right else reason)


@pytest.mark.parametrize("of", ALL, ids=named)
@pytest.mark.parametrize(
    "given", [None, True, "x", {}, [], [[]], [None], [[None]], [[1, 2], [3]], "two words", -1e300, 10**400]
)
def test_garbage_is_wrong_and_said_so(of: Exercise, given: object) -> None:
    for name in of.parts:
        right, text = verdict(of, name, given)
        assert not right
        assert len(text) > 10


def test_unknown_numbers() -> None:
    with pytest.raises(ValueError, match=f"the exercises are 1 to {len(EXERCISES)}, or their names; got 99"):
        exercise(99)
    with pytest.raises(ValueError, match="got temprature; did you mean temperature"):
        exercise("temprature")
    assert exercise("two-blocks") is exercise(16)


@pytest.mark.parametrize("answer", [{}, [], 3, "weights", None])
def test_an_answer_names_parts(answer: object) -> None:
    with pytest.raises(ValueError, match="names at least one of scores, scaled, weights, outputs, as in"):
        check(exercise(1), answer)


@pytest.mark.parametrize("name, hint", [("weigths", "did you mean 'weights'"), ("zzz", "it asks for scores, scaled")])
def test_unknown_parts_get_a_hint(name: str, hint: str) -> None:
    with pytest.raises(ValueError, match=f"exercise 1 does not ask for '{name}'; {hint}"):
        check(exercise(1), {name: [[1]]})


def test_working_out_draws_no_random_number() -> None:
    state = torch.get_rng_state()
    for of in PRINTED:
        importlib.reload(importlib.import_module(f"regard.lab.exercises.{EXERCISES[of.number]}")).EXERCISE.worked(80)
    assert torch.equal(torch.get_rng_state(), state)
