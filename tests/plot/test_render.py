"""One call for every picture: safe, rectangular text of at most the asked width."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.inspection.records import Bars, Grid, Line, Lines, Panel, Picture, Table
from regard.inspection.text import display_width
from regard.plot import render

EVIL = "\x1b]0;owned\x07\x1b[2J\r\n"
GRID = Grid([[0.7, None], [0.2, 0.8]], ["猫", EVIL], [EVIL, "🐈"], title=EVIL, note=EVIL)
LINES = Lines([Line(EVIL, [1, 2], [3, 4])], EVIL, EVIL, title=EVIL)
BARS = Bars([EVIL, "b"], {EVIL: [1.0, 2.0], "x": [2.0, 3.0]}, EVIL, title=EVIL)
PICTURES = [GRID, LINES, BARS, Panel([GRID, LINES, Panel([BARS])], title=EVIL), Panel([])]


def without_colors(text: str) -> str:
    return re.sub(r"\x1b\[(?:[34]8;(?:2;\d+;\d+;\d+|5;\d+);?)+m|\x1b\[0m", "", text)


@settings(deadline=None)
@given(st.sampled_from(PICTURES), st.integers(20, 200), st.sampled_from(["truecolor", "256", "shade", "plain"]))
def test_lines_are_equally_wide_and_obey_nobody(picture: Picture, width: int, color: str) -> None:
    lines = without_colors(render(picture, width=width, color=color)).split("\n")
    assert len({display_width(line) for line in lines}) == 1
    assert display_width(lines[0]) <= width
    assert "".join(lines).isprintable()
    assert color != "plain" or "".join(lines).isascii()


def test_panels_stand_side_by_side_if_nothing_is_lost() -> None:
    small = Grid([[0.5, 0.5], [0.1, 0.9]], title="small")
    wide = Grid([[0.5] * 12] * 2, title="wide")
    assert render(Panel([small, small]), width=80, color="plain").count("\n") == 3
    together = render(Panel([wide, wide]), width=120, color="plain").split("\n")
    assert together[0].split() == ["wide", "wide"]
    apart = render(Panel([wide, wide], title="two"), width=60, color="plain").split("\n")
    assert [line.strip() for line in apart if line.strip() in ("two", "wide")] == ["two", "wide", "wide"]
    assert apart[4].split() == ["0", *[".5"] * 12]


def test_many_pictures_wrap_into_aligned_rows() -> None:
    several = [Grid([[0.25]], row_labels=["r" * k], title=f"head {k}") for k in range(1, 8)]
    rows = [line for line in render(Panel(several), width=40, color="plain").split("\n") if "head" in line]
    places = [[match.start() for match in re.finditer("head", row)] for row in rows]
    assert sum(map(len, places)) == 7
    assert all(place == places[0][: len(place)] for place in places)


def test_default_width_is_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    assert len(render(BARS, color="plain").split("\n")[0]) == 50
    monkeypatch.setenv("COLUMNS", "3")
    assert len(render(BARS, color="plain").split("\n")[0]) == 20


def test_wrong_arguments_are_explained() -> None:
    with pytest.raises(ValueError, match="at least 20 columns, got 19"):
        render(GRID, width=19)
    with pytest.raises(ValueError, match="color is one of auto"):
        render(GRID, color="rainbow")
    table: Any = Table(["a"], [])
    with pytest.raises(TypeError, match="Grid, Lines, Bars, Diagram, Image or Panel, got Table"):
        render(table)
