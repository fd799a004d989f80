"""Bars as long as their numbers, from a common zero."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.inspection.records import Bars
from regard.plot.bars import bar_chart
from regard.plot.terminal import Line, block_width
from regard.plot.theme import SERIES, Depth


def text(line: Line) -> str:
    return "".join(span.text for span in line)


def test_lengths_follow_heights_from_one_zero() -> None:
    bars = Bars(["half", "whole", "minus"], {"": [0.5, 1.0, -0.5]}, "share", title="Bars")
    title, caption, *rows = map(text, bar_chart(bars, 70, Depth.PLAIN))
    assert (title, caption) == ("Bars", "share")
    assert [row.split()[:2] for row in rows] == [["half", "0.5"], ["whole", "1.0"], ["minus", "-0.5"]]
    zero = {row.index("|") for row in rows}
    assert len(zero) == 1
    half, whole, minus = (row.count("#") for row in rows)
    assert abs(whole - 2 * half) <= 1
    assert abs(half - minus) <= 1
    assert len(rows[1]) == 70


def test_eighths_of_a_block_tell_near_heights_apart() -> None:
    rows = [text(row) for row in bar_chart(Bars(["a", "b"], {"": [8.0, 7.95]}, "ms"), 60, Depth.SHADE)]
    assert rows[-2].count("█") - rows[-1].count("█") == 1
    assert rows[-1][-1] in "▏▎▍▌▋▊▉"


def test_groups_have_a_legend_and_a_bar_for_each_series() -> None:
    bars = Bars(["dot", "additive"], {"forward": [1, 2], "backward": [3, 4]}, "ms")
    rows = bar_chart(bars, 60, Depth.TRUECOLOR)
    assert text(rows[1]) == "█ forward   █ backward"
    assert [span.ink for span in rows[1] if span.text == "█"] == [SERIES[0], SERIES[1]]
    assert [text(row).split()[0] for row in rows[2:] if row] == ["dot", "3", "additive", "4"]
    without = bar_chart(bars, 60, Depth.SHADE)
    assert text(without[1]) == "█ forward   ▒ backward"
    assert "▒▒" in text(without[3])


def test_what_is_not_finite_has_its_name_for_a_bar() -> None:
    bars = Bars(["a", "b", "c"], {"": [math.nan, math.inf, 1.0]}, "y")
    rows = [text(row) for row in bar_chart(bars, 60, Depth.PLAIN)[1:]]
    assert rows[0].split() == ["a", "nan", "|"]
    assert rows[1].split()[1] == "inf"
    assert rows[1].count("#") == rows[2].count("#")


def test_a_missing_height_is_refused() -> None:
    with pytest.raises(ValueError, match="series 'forward' has 1 for 2 labels"):
        bar_chart(Bars(["a", "b"], {"forward": [1.0]}, "ms"), 60, Depth.SHADE)


@given(
    st.lists(st.tuples(st.text(max_size=30), st.floats(), st.floats()), max_size=6),
    st.integers(20, 120),
    st.sampled_from(Depth),
)
def test_any_bars_fit_their_width(groups: list[tuple[str, float, float]], width: int, depth: Depth) -> None:
    labels = [label for label, _, _ in groups]
    series: dict[str, Sequence[float]] = {
        "one": [one for _, one, _ in groups],
        "\x1b[2J": [other for _, _, other in groups],
    }
    rows = bar_chart(Bars(labels, series, "y", "title"), width, depth)
    assert block_width(rows) <= width
    assert "".join(map(text, rows)).isprintable()
