"""Exercise 1: right answers pass, and every mistake is told by its name."""

import pytest
import torch
from torch import Tensor

from regard.lab.exercises import check, exercise
from regard.lab.exercises.questions import Mistake
from regard.lab.exercises.three_words import OUTPUTS, PARTS, SCALED, SCORES, WEIGHTS, X

TRUTHS = {name: part.truth for name, part in PARTS.items()}
MISTAKES = [(name, mistake) for name, part in PARTS.items() for mistake in part.mistakes]


def said(name: str, matrix: object, **others: object) -> str:
    """The verdict on one part that must be wrong."""
    answer = {name: matrix.tolist() if isinstance(matrix, Tensor) else matrix, **others}
    verdict = next(each for each in check(exercise(1), answer) if each.part == name)
    assert not verdict.right
    return verdict.text


def test_the_truth_is_attention_in_plain_torch() -> None:
    scores = X @ X.mT
    assert torch.equal(SCORES, torch.tensor([[1, 0, 1], [0, 1, 1], [1, 1, 2]], dtype=torch.float64))
    weights = (scores / 2**0.5).softmax(-1)
    assert torch.allclose(WEIGHTS, weights, rtol=0, atol=1e-15)
    assert torch.allclose(OUTPUTS, weights @ X, rtol=0, atol=1e-15)
    # the same by hand: e^(1/√2) = 2.0281
    assert WEIGHTS[0].tolist() == pytest.approx([2.0281 / 5.0562, 1 / 5.0562, 2.0281 / 5.0562], abs=5e-5)


@pytest.mark.parametrize("decimals", [2, 4, 9])
def test_right_answers_pass_in_any_precision_from_two_decimals(decimals: int) -> None:
    answer = {name: truth.round(decimals=decimals).tolist() for name, truth in TRUTHS.items()}
    verdicts = check(exercise(1), answer)
    assert [(verdict.part, verdict.right) for verdict in verdicts] == [(name, True) for name in TRUTHS]


@pytest.mark.parametrize("name, mistake", MISTAKES)
@pytest.mark.parametrize("decimals", [2, 5])
def test_every_mistake_is_named(name: str, mistake: Mistake, decimals: int) -> None:
    text = said(name, mistake.value.round(decimals=decimals))
    assert text.startswith(mistake.text)


@pytest.mark.parametrize(
    "matrix, text",
    [
        (WEIGHTS.round(decimals=1), "rounded too coarsely: give at least two decimals"),
        ((WEIGHTS * 100).floor() / 100, "cut off after two decimals: round instead"),
        (WEIGHTS * 100, "these are percentages"),
        (WEIGHTS[:2], r"wrong shape: 2 × 3; wanted is 3 × 3: a row for each word, a column for each word"),
        (WEIGHTS * torch.tensor([[1.0], [1.2], [1.0]]), "row 2 sums to 1.2, not to 1; softmax: e^x of each entry"),
        (-WEIGHTS, "a weight is negative"),
        (WEIGHTS[[0, 1, 1]], "rows 1 and 2 right, the entry in row 3"),
        ([[0.4, "x"]], "expression such as 0.5, 1/2, e^2 or sqrt(2), got 'x'"),
        ([[0.4, True]], "entries must be numbers, got True"),
        ([[0.4], [0.4, 0.1]], "rows must be equally long, got lengths 1, 2"),
        ([0.4, 0.2], "give a list of rows"),
        ("0.4", "give a list of rows"),
        ([], "the matrix is empty"),
        ([[10**400]], "entries must be finite numbers"),
        ([[float("nan")] * 3] * 3, "entries must be finite numbers"),
    ],
)
def test_other_diagnoses(matrix: object, text: str) -> None:
    assert text in said("weights", matrix)


def test_transposed_outputs() -> None:
    assert "right but transposed" in said("outputs", OUTPUTS.mT)


def test_an_error_carried_along_is_not_blamed_twice() -> None:
    odd = SCALED + torch.tensor([[0.0, 0.3, 0.0]])
    wrong = odd.softmax(1)
    text = said("weights", wrong, scaled=odd.tolist())
    assert text == "this follows correctly from your 'scaled', which is not right: repair that first"
    assert "follows correctly from your 'weights'" in said("outputs", wrong @ X, weights=wrong.tolist())
    # a matrix of another shape cannot be followed
    assert "follows" not in said("outputs", wrong @ X, weights=[[1.0]])


def test_the_solution_shows_the_numbers() -> None:
    text = exercise(1).worked(80)
    for number in ("0.4011", "0.1978", "0.5035", "0.7517"):
        assert number in text
    assert "0.4011 and 0.2483" in text
