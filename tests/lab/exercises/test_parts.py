"""Numbers, lists, matrices and choices: how they are read, and what is said when they are wrong."""

import math

import numpy as np
import pytest
import torch

from regard.lab.exercises import check, exercise
from regard.lab.exercises.numbers import read
from regard.lab.exercises.questions import Choice, Quantity

COUNT = Quantity((12, "count them"), (24, "each was counted twice"), (6, "half of them are missing"))
TINY = Quantity((4.54e-5, "nearly e^(−10)"), (0, "not zero"), digits=2)
SHARE = Quantity(([0.25, 0.75], "shares of 1"), ([0.75, 0.25], "the other way round"), axes=("key",), rows_sum=1.0)
SLOPES = Quantity(([[0.2, -0.2], [-0.2, 0.2]], "rows sum to 0"), axes=("weight", "score"), rows_sum=0.0)
JACOBIAN = [[0.09, -0.02, -0.07], [-0.02, 0.16, -0.14], [-0.07, -0.14, 0.21]]  # of the weights 0.1, 0.2 and 0.7
COLOR = Choice("look up", ("red", "that is the evening"), ("blue", "light is scattered"), right="blue")


@pytest.mark.parametrize(
    "part, given, text",
    [
        (COUNT, 12, "right"),
        (COUNT, 12.004, "right"),
        (COUNT, 24, "each was counted twice"),
        (COUNT, torch.tensor(12), "right"),
        (SHARE, np.array([0.25, 0.75]), "right"),
        (SHARE, [torch.tensor(0.25), np.float64(0.75)], "right"),
        (SLOPES, torch.tensor([[0.2, -0.2], [-0.2, 0.2]]), "right"),
        (SLOPES, torch.tensor([0.2, -0.2]), "give a list of rows, as in [[1, 2], [3, 4]]"),
        (COUNT, -12, "right but for the sign; count them"),
        (COUNT, 13, "too large; count them"),
        (COUNT, 11, "too small; count them"),
        (COUNT, [12], "give a number, not a list"),
        (COUNT, "12", "right"),
        (COUNT, "many", "give a number or an expression such as 0.5, 1/2, e^2 or sqrt(2), got 'many'"),
        (COUNT, True, "give a number, got True"),
        (COUNT, float("inf"), "entries must be finite numbers"),
        (TINY, 4.54e-5, "right"),
        (TINY, 4.5e-5, "right"),
        (TINY, 5e-5, "right as far as it goes, but rounded too coarsely: give at least 2 significant digits"),
        (TINY, 4.6e-5, "too large; nearly e^(−10)"),
        (TINY, 0, "not zero"),
        (SHARE, [0.25, 0.75], "right"),
        (SHARE, [0.3, 0.8], "right as far as it goes, but rounded too coarsely: give at least two decimals"),
        (SHARE, [0.3, 0.9], "the numbers sum to 1.2, not to 1; shares of 1"),
        (SHARE, [0.4, 0.6], "no number is right; number 1 is off the most; shares of 1"),
        (SHARE, [25, 75], "these are percentages; give shares of 1"),
        (SHARE, [0.75, 0.25], "the other way round"),
        (SHARE, [1], "wrong length: 1; wanted is 2 numbers, one for each key"),
        (SHARE, [[0.25, 0.75]], "give a list of numbers, as in [1, 2]"),
        (SHARE, [], "the list is empty"),
        (SHARE, [-0.25, 1.25], "a weight is negative, and no exponential is; shares of 1"),
        (SLOPES, [[-0.2, 0.2], [0.2, -0.2]], "right but for the sign; rows sum to 0"),
        (SLOPES, [[0.2, 0.2], [-0.2, 0.2]], "row 1 sums to 0.4, not to 0; rows sum to 0"),
        (SLOPES, [[0.2, -0.2]], "wrong shape: 1 × 2; wanted is 2 × 2: a row for each weight, a column for each score"),
        (
            SLOPES,
            [[0.2, -0.2], [-0.5, 0.5]],
            "row 1 right, the entry in row 2, column 1 is off the most; rows sum to 0",
        ),
        (COLOR, "blue", "right: light is scattered"),
        (COLOR, " Blue", "right: light is scattered"),
        (COLOR, "red", "that is the evening"),
        (COLOR, "bleu", "'bleu' is no option; did you mean 'blue'?"),
        (COLOR, "x", "'x' is no option; choose from 'red', 'blue'"),
        (COLOR, 3, "give one of 'red', 'blue', got 3"),
    ],
)
def test_verdicts(part: Quantity | Choice, given: object, text: str) -> None:
    assert part.check(given, {})[:2] == (text == "right" or text.startswith("right: "), text)


def test_a_choice_knows_its_right_option() -> None:
    with pytest.raises(ValueError, match="'green' must be one of red, blue"):
        Choice("look up", ("red", ""), ("blue", ""), right="green")


@pytest.mark.parametrize(
    "number, answer",
    [
        (5, {"weights": [0.1, 0.2, 0.7], "jacobian": JACOBIAN}),
        (8, {"lse": [2.0, 3.5], "gap": 1.5}),
        (15, {"token": 1000, "text": 8192 * 1000 / 2**30}),
        (18, {"entropy": 2.0, "keys": 7.389}),
    ],
)
def test_what_follows_from_a_wrong_part_is_not_blamed(number: int, answer: dict[str, object]) -> None:
    verdicts = check(exercise(number), answer)
    assert not any(verdict.right for verdict in verdicts)
    assert verdicts[1].text.startswith(f"this follows correctly from your {verdicts[0].part!r}")
    assert [verdict.follows for verdict in verdicts] == [False, True]
    assert str(verdicts[1]).startswith("↳")


def test_what_follows_from_a_rounded_right_part_is_right() -> None:
    right = exercise(18).answer
    entropy = round(float(str(right["entropy"])), 2)
    rounded = {"entropy": entropy, "keys": math.exp(entropy)}
    assert all(verdict.right for verdict in check(exercise(18), rounded))


@pytest.mark.parametrize(
    "text, value",
    [
        ("1/2", 0.5),
        ("e^2", math.e**2),
        ("e²", math.e**2),
        ("sqrt(2)", math.sqrt(2)),
        ("√2", math.sqrt(2)),
        ("√(2 + 2)", 2.0),
        ("−1.5", -1.5),
        ("2·3 × 4", 24.0),
        ("exp(-1) + ln(2)", math.exp(-1) + math.log(2)),
        ("1e-3", 1e-3),
        ("pi/2", math.pi / 2),
    ],
)
def test_expressions(text: str, value: float) -> None:
    assert float(read(text, 0)) == pytest.approx(value, rel=1e-15)
    assert read([text, 1], 1).tolist() == pytest.approx([value, 1.0])


@pytest.mark.parametrize(
    "text", ["", "x", "__import__('os')", "1/0", "9^9^9^9", "sqrt(-1)", "1,2", "True", "(" * 150, "1" * 300, "e.real"]
)
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"an expression such as 0\.5, 1/2, e\^2 or sqrt"):
        read(text, 0)


def test_two_digits_of_a_number_above_one_are_enough() -> None:
    keys = Quantity((math.e**2, "e to the entropy"))
    assert keys.check(7.4, {}).right
    assert keys.check(7.39, {}).right
    assert not keys.check(7, {}).right
    assert not keys.check(7.3, {}).right
    assert not Quantity((0.6652, "a share")).check(0.7, {}).right
