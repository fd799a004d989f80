"""Digits that mean something."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.inspection.number import Format, alike, interval, short, uniform
from regard.inspection.records import Estimate

numbers = st.floats(allow_nan=True, allow_infinity=True)


@pytest.mark.parametrize(
    "value, text",
    [
        (0.0, "0"),
        (1.0, "1"),
        (1024.0, "1024"),
        (0.7, "0.7"),
        (0.12345, "0.123"),
        (12.345, "12.3"),
        (1234.5, "1234"),
        (2.5e-7, "2.5e-7"),
        (-3e9, "-3e9"),
        (math.nan, "nan"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
    ],
)
def test_short(value: float, text: str) -> None:
    assert short(value) == text


@given(st.floats(-1e300, 1e300))
def test_short_is_close(value: float) -> None:
    assert math.isclose(float(short(value)), value, rel_tol=5.1e-3, abs_tol=1e-300)


@pytest.mark.parametrize(
    "estimate, text",
    [
        (Estimate(1.5234, 1.31, 1.742), "1.52 [1.31, 1.74]"),
        (Estimate(0.0213, 0.0201, 0.0229), "0.0213 [0.0201, 0.0229]"),
        (Estimate(1234.5, 1100, 1350), "1234 [1100, 1350]"),
        (Estimate(0.0, -0.2, 0.2), "0.00 [-0.20, 0.20]"),
        (Estimate(2e-7, 1e-7, 3e-7), "2.0e-7 [1.0e-7, 3.0e-7]"),
        (Estimate(0.5, 0.5, 0.5), "0.5 [0.5, 0.5]"),
        (Estimate(0.5, math.nan, math.nan), "0.5 [nan, nan]"),
        (Estimate(1e-5, -0.1, 0.1), "0.00 [-0.10, 0.10]"),
    ],
)
def test_interval_decides_digits(estimate: Estimate, text: str) -> None:
    assert interval(estimate) == text


@pytest.mark.parametrize(
    "values, texts",
    [
        ([0.7, 0.05, 0.0], ["0.70", "0.05", "0.00"]),
        ([0.8, 0.1, 0.0], ["0.8", "0.1", "0.0"]),
        ([1.0, 0.0], ["1", "0"]),
        ([0.1 + 0.2, 0.1], ["0.3", "0.1"]),
        ([12.345, 1.0], ["12.3", "1.0"]),
        ([0.012, 0.003], ["0.012", "0.003"]),
        ([2.5e-9, 0.0], ["2.5e-9", "0"]),
        ([-0.001, 1.234], ["0.00", "1.23"]),
        ([math.nan, 0.25], ["nan", "0.25"]),
    ],
)
def test_numbers_shown_together_share_decimals(values: list[float], texts: list[str]) -> None:
    assert [uniform(values).text(value) for value in values] == texts


@given(st.lists(numbers, max_size=20))
def test_any_numbers_have_a_format(values: list[float]) -> None:
    form = uniform(values)
    assert all(len(form.text(value)) <= form.width(values) for value in values)
    assert len(alike(values)) == len(values)


@given(st.lists(st.floats(0, 1), min_size=1))
def test_weights_without_leading_zero_are_equally_wide(values: list[float]) -> None:
    form = Format(2, leading_zero=False)
    assert {len(form.text(value)) for value in values} == {3}
    assert all(abs(float(form.text(value)) - value) <= 0.05 for value in values)


def test_a_column_keeps_a_digit_of_its_smallest_number() -> None:
    assert alike([0.52, 120.3]) == ["0.5", "120.3"]
    assert alike([0.004, 3.0]) == ["0.004", "3.000"]
    assert alike([1e-7, 3.0]) == ["1e-7", "3"]
