"""Round ticks on straight and logarithmic axes."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.plot.axis import Axis, axis_over

finite = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    "axis, labels",
    [
        (Axis(0.0, 1.0), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (Axis(0.0, 0.31), ["0.0", "0.1", "0.2", "0.3"]),
        (Axis(-3.0, 12.0), ["0", "5", "10"]),
        (Axis(1.0, 1000.0, log=True), ["1", "10", "100", "1000"]),
        (Axis(16.0, 96.0, log=True), ["20", "50"]),
        (Axis(1e-12, 1.0, log=True), ["1e-12", "1e-9", "1e-6", "0.001", "1"]),
        (Axis(2.0, 3.0, log=True), ["2", "3"]),
        (Axis(1e303, 1.5e308, log=True), ["1e303", "1e304", "1e305", "1e306", "1e307", "1e308"]),
    ],
)
def test_ticks_are_round(axis: Axis, labels: list[str]) -> None:
    assert axis.labels(axis.ticks(5)) == labels


@pytest.mark.parametrize("log", [False, True])
@given(values=st.lists(st.floats(), max_size=10))
def test_every_axis_has_ticks_inside_and_places_in_order(log: bool, values: list[float]) -> None:
    axis = axis_over(values, log)
    held = sorted(value for value in values if axis.holds(value))
    places = [axis.at(value) for value in held]
    assert places == sorted(places)
    assert all(0 <= place <= 1 for place in places)
    for shown in (axis, axis.rounded(5)):
        ticks = shown.ticks(5)
        assert 2 <= len(ticks) <= 16
        assert ticks == sorted(ticks)
        assert max(map(len, shown.labels(ticks))) <= 10
        assert shown.at(axis.low) <= shown.at(axis.high)


@given(finite, finite)
def test_a_rounded_axis_reaches_at_least_as_far(one: float, other: float) -> None:
    axis = axis_over([one, other], log=False)
    rounded = axis.rounded(5)
    assert rounded.low <= axis.low
    assert rounded.high >= axis.high


def test_a_hair_beyond_a_round_value_costs_no_step() -> None:
    axis = axis_over([-0.00001, 1.00001], log=False).rounded(5)
    assert (axis.low, axis.high) == (-0.00001, 1.00001)
    assert axis.ticks(5)[0] == 0.0


def test_values_without_a_place_are_known() -> None:
    axis = axis_over([math.nan, -1.0, 0.0, 2.0, 8.0], log=True)
    assert (axis.low, axis.high) == (2.0, 8.0)
    assert [axis.holds(value) for value in (2.0, 0.0, -1.0, math.nan, math.inf)] == [True, False, False, False, False]
    assert axis.at(4.0) == pytest.approx(0.5, abs=1e-15)
