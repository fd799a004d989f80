"""Line charts: round ticks, points where the axes say, a sign for each series, and nothing dropped in silence."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.inspection.records import Line, Lines
from regard.plot.chart import Axis, axis_over, chart
from regard.plot.terminal import Line as Row
from regard.plot.terminal import block_width
from regard.plot.theme import SERIES, Depth

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


def text(line: Row) -> str:
    return "".join(span.text for span in line)


def picture(lines: Lines, depth: Depth = Depth.SHADE, width: int = 60) -> list[str]:
    return [text(line).rstrip() for line in chart(lines, width, depth)]


def test_markers_stand_at_the_points() -> None:
    rows = picture(Lines([Line("", [0, 1, 2], [0, 1, 0])], "x", "y"), Depth.PLAIN)
    top, bottom = (next(row for row in rows if row.strip().startswith(start)) for start in ("1.0+", "0.0+"))
    wall = top.index("+") + 1
    assert top[wall:].strip(". ") == "o"
    assert top.index("o") - wall in (27, 28)
    assert (bottom[wall], bottom[-1]) == ("o", "o")


def test_equal_ratios_are_equal_steps_on_a_log_axis() -> None:
    rows = picture(Lines([Line("", [1, 10, 100, 1000], [0, 1, 2, 3])], "n", "y", log_x=True), Depth.PLAIN)
    floor = next(row for row in rows if row.strip().startswith("++"))
    ticks = [index for index, sign in enumerate(floor) if sign == "+"][1:]
    assert len(ticks) == 4
    gaps = [b - a for a, b in pairwise(ticks)]
    assert max(gaps) - min(gaps) <= 1
    assert rows[rows.index(floor) + 1].split() == ["1", "10", "100", "1000"]


def test_each_series_has_its_color_and_sign_in_the_legend() -> None:
    lines = Lines([Line("dot", [0, 1], [0, 0]), Line("cosine", [0, 1], [1, 1])], "x", "y", title="Two")
    rows = chart(lines, 60, Depth.TRUECOLOR)
    assert text(rows[0]) == "Two"
    assert text(rows[1]) == "● dot   ▲ cosine"
    inks = {span.ink for row in rows[3:-3] for span in row if span.ink}
    assert inks == {SERIES[0], SERIES[1]}


def test_a_band_is_shaded_between_low_and_high() -> None:
    line = Line("", [0, 1, 2], [1, 1, 1], [0, 0, 0], [2, 2, 2])
    label, *rows = picture(Lines([line], "x", "y"))[:-3]
    assert label == "y   ░ interval"
    assert all("░" * 20 in row for row in rows if not any(sign in row for sign in "●⠤⠒"))
    assert not any("░" in row for row in picture(Lines([Line("", [0, 1], [0, 2])], "x", "y")))


def test_points_without_a_place_are_counted() -> None:
    line = Line("", [1, 2, 3, 4, 5], [1.0, math.nan, -1.0, math.inf, 2.0])
    assert picture(Lines([line], "x", "y", log_y=True), width=90)[-1].startswith("3 points have no place here")
    assert picture(Lines([line], "x", "y"), width=90)[-1].startswith("2 points")


def test_a_gap_is_not_bridged() -> None:
    rows = picture(Lines([Line("", [0, 1, 2, 3], [0, 0, math.nan, 0])], "x", "y", title=""))
    drawn = next(row for row in rows if "●" in row)
    first, second, third = (index for index, sign in enumerate(drawn) if sign == "●")
    assert " " not in drawn[first:second]
    assert set(drawn[second + 1 : third]) == {" "}


def test_a_line_with_a_missing_y_is_refused() -> None:
    with pytest.raises(ValueError, match="line 'dot' has 2 x, 1 y, 0 low, 0 high"):
        chart(Lines([Line("dot", [0, 1], [0])], "x", "y"), 60, Depth.SHADE)
    with pytest.raises(ValueError, match="2 low, 0 high"):
        chart(Lines([Line("dot", [0, 1], [0, 1], low=[0, 0])], "x", "y"), 60, Depth.SHADE)


points = st.lists(st.tuples(*[st.floats()] * 4), max_size=8)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.text(max_size=20), points), max_size=3),
    st.booleans(),
    st.booleans(),
    st.integers(20, 120),
    st.sampled_from(Depth),
)
def test_any_lines_fit_their_width(
    curves: list[tuple[str, list[tuple[float, ...]]]],
    log_x: bool,
    log_y: bool,
    width: int,
    depth: Depth,
) -> None:
    lines = [
        Line(name, [p[0] for p in several], [p[1] for p in several], [p[2] for p in several], [p[3] for p in several])
        for name, several in curves
    ]
    lines += [Line(curve.name, curve.x, curve.y, points=list(zip(curve.x, curve.low, strict=True))) for curve in lines]
    rows = chart(Lines(lines, "x\x1b[1m", "y\n", "title", log_x, log_y), width, depth)
    assert block_width(rows) <= width
    assert "".join(map(text, rows)).isprintable()
