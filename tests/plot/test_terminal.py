"""Spans become escape codes only where the terminal has colors, and every line is as wide as the others."""

import re

from hypothesis import given
from hypothesis import strategies as st

from regard.inspection.text import display_width, visible
from regard.plot.terminal import Span, beside, block_width, line_width, paragraph, prose, written
from regard.plot.theme import Depth

colors = st.none() | st.tuples(*[st.integers(0, 255)] * 3)
spans = st.builds(Span, st.text(max_size=8).map(visible), colors, colors)
blocks = st.lists(st.lists(spans, max_size=4), max_size=4)


def without_colors(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@given(blocks, st.sampled_from(Depth))
def test_lines_are_equally_wide_and_end_without_color(block: list[list[Span]], depth: Depth) -> None:
    for line in written(block, depth).split("\n"):
        assert "\x1b" not in without_colors(line)
        assert display_width(without_colors(line)) == block_width(block)
        codes = re.findall(r"\x1b\[[0-9;]*m", line)
        assert depth.colored or not codes
        assert not codes or codes[-1] == "\x1b[0m"


def test_codes_of_24_bits_and_of_the_palette() -> None:
    block = [[Span("a", (255, 0, 0), (0, 0, 0)), Span("b")]]
    assert written(block, Depth.TRUECOLOR) == "\x1b[38;2;255;0;0;48;2;0;0;0ma\x1b[0mb"
    assert written(block, Depth.PALETTE) == "\x1b[38;5;196;48;5;16ma\x1b[0mb"
    assert written(block, Depth.SHADE) == "ab"


@given(st.lists(blocks, min_size=1, max_size=3), st.integers(0, 4))
def test_beside_keeps_every_block_in_its_columns(several: list[list[list[Span]]], gap: int) -> None:
    joined = beside(several, gap)
    assert len(joined) == max(map(len, several))
    width = sum(map(block_width, several)) + gap * (len(several) - 1)
    assert {line_width(line) for line in joined} <= {width}


def test_prose_is_made_safe_and_wrapped() -> None:
    lines = paragraph("one\ntwo \x1b[2J three", 9, Depth.TRUECOLOR)
    assert ["".join(span.text for span in line) for line in lines] == ["one two", r"\x1b[2J", "three"]


def test_a_plain_terminal_spells_the_signs_of_formulas() -> None:
    assert prose("÷ √d_k, 4 × 4, é", Depth.PLAIN) == r"/ sqrt d_k, 4 x 4, \xe9"
    assert prose("÷ √d_k", Depth.SHADE) == "÷ √d_k"
