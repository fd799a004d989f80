"""Notation: brackets where they are needed, digits that say what they know."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.inspection.explain import notation
from regard.inspection.explain.notation import column, decimal, number, typeset, word


@pytest.mark.parametrize(
    "value, text",
    [
        (0.0, "0"),
        (-0.0, "0"),
        (3.0, "3"),
        (-1.5, "-1.5"),
        (2**-0.5, "0.7071"),
        (0.99999, "1.0000"),
        (1 / 3 * 3, "1"),
        (1.2346e-7, "1.235e-7"),
        (-3e-5, "-3.000e-5"),
        (123456.78901, "123456.7890"),
        (1234567.0, "1234567"),
        (1234567.89012, "1.235e6"),
        (1e300, "1.000e300"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
    ],
)
def test_four_decimals(value: float, text: str) -> None:
    assert decimal(value, 4) == text


def test_a_half_and_a_number_near_it_look_different() -> None:
    assert [decimal(value, 4) for value in (0.5, 0.50001)] == ["0.5", "0.5000"]


@given(st.floats(-1e300, 1e300), st.integers(1, 10))
def test_the_text_is_the_value_rounded(value: float, digits: int) -> None:
    shown = float(decimal(value, digits))
    assert abs(shown - value) <= 0.51 * max(10.0**-digits, abs(value) * 10.0 ** (1 - digits))


def test_a_column_shares_its_decimals_but_not_with_zeros() -> None:
    assert column([0.5, 0.0, -1.25, 3.0, None], 4) == ["0.50", "0", "-1.25", "3.00", "hidden"]
    assert column([1.0, 2.0], 4) == ["1", "2"]
    assert column([0.5, 1e-9, math.inf], 4) == ["0.5", "1.000e-9", "inf"]


@pytest.mark.parametrize(
    "ascii, text, latex",
    [
        ("-1.5", "−1.5", "-1.5"),
        ("1.234e-7", "1.234×10⁻⁷", r"1.234 \times 10^{-7}"),
        ("-inf", "−∞", r"-\infty"),
        ("hidden", "hidden", r"\text{hidden}"),
    ],
)
def test_typeset(ascii: str, text: str, latex: str) -> None:
    assert (typeset(ascii).text, typeset(ascii).latex) == (text, latex)


def test_brackets() -> None:
    two, less = number(2.0, 4), number(-3.0, 4)
    sum_ = notation.plus([two, less])
    assert sum_.text == "2 − 3"
    assert notation.times(less, sum_).text == "(−3)·(2 − 3)"
    assert notation.over(two, notation.times(two, two)).text == "2/(2·2)"
    assert notation.over(sum_, two).latex == r"\frac{2 - 3}{2}"
    assert notation.exp(less).text == "e^(−3)"
    assert notation.exp(number(1e-7, 4)).text == "e^(1.000×10⁻⁷)"
    assert notation.root(sum_).text == "√(2 − 3)"
    assert notation.square(less).text == "(−3)²"
    assert notation.minus(two, less).text == "2 − (−3)"
    assert notation.negated(notation.times(two, two)).text == "−2·2"


def test_long_sums_are_shortened() -> None:
    assert notation.plus([word(str(at)) for at in range(8)]).text == "0 + 1 + 2 + 3 + 4 + 5 + 6 + 7"
    assert notation.plus([word(str(at)) for at in range(9)]).text == "0 + 1 + 2 + 3 + 4 + 5 + … + 8"
    assert notation.plus([]).text == "0"


def test_repeated_parts_of_an_equation_are_left_out() -> None:
    assert notation.equals(word("a"), word("3"), word("3")).text == "a = 3"


def test_subscripts() -> None:
    assert notation.subscripted("S", 0) == word("S")
    assert notation.subscripted("S", 12) == word("S₁₂", "S_{12}")
