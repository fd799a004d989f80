"""Heatmaps: the right number and color in every cell, whatever the size and whatever the labels say."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.inspection.records import Grid
from regard.plot.heatmap import heatmap
from regard.plot.terminal import Line, Span, block_width, line_width
from regard.plot.theme import Depth, ramp

TOKENS = ["The", "cat", "sleeps", "on", "the", "mat"]
WEIGHTS: list[list[float | None]] = [
    [0.7, 0.1, 0.05, 0.05, 0.1, 0.0],
    [0.1, 0.6, 0.2, 0.05, 0.0, 0.05],
    [0.0, 0.3, 0.5, 0.1, 0.0, 0.1],
    [0.0, 0.1, 0.1, 0.6, 0.1, 0.1],
    [0.1, 0.0, 0.0, 0.1, 0.3, 0.5],
    [0.0, 0.05, 0.05, 0.1, 0.2, 0.6],
]
CAT = Grid(WEIGHTS, TOKENS, TOKENS, title="The cat sleeps on the mat")


def text(line: Line) -> str:
    return "".join(span.text for span in line)


def causal(size: int) -> Grid:
    rows = [[1 / (row + 1) if column <= row else None for column in range(size)] for row in range(size)]
    return Grid(rows, [f"q{i}" for i in range(size)], [f"k{i}" for i in range(size)])


def test_small_grid_has_labels_numbers_and_colors() -> None:
    lines = heatmap(CAT, 80, Depth.TRUECOLOR)
    assert text(lines[0]) == "The cat sleeps on the mat"
    assert text(lines[1]).split() == TOKENS
    for token, weights, line in zip(TOKENS, WEIGHTS, lines[2:8], strict=True):
        assert text(line[:1]).strip() == token
        assert [float(span.text) for span in line[1:]] == weights
        assert [span.paper for span in line[1:]] == [ramp((weight or 0.0) / 0.7) for weight in weights]
    assert text(lines[8]).split() == ["0", "0.7"]


def test_columns_stand_under_their_labels() -> None:
    _, header, *body = heatmap(CAT, 80, Depth.PLAIN)
    starts = [text(header).index(f" {token} ") for token in TOKENS]
    for line in body[:6]:
        edges = [len(text(line[: index + 1])) for index in range(len(TOKENS))]
        assert all(edge <= start + 1 < edge + len(line[1].text) for edge, start in zip(edges, starts, strict=True))


def test_shades_stand_beside_numbers_and_weak_ones_stay_quiet() -> None:
    line = heatmap(CAT, 80, Depth.SHADE)[2]
    assert line[1].text == "██0.70█"
    assert line[2].text == "  0.10 "
    assert all(span.ink is span.paper is None for span in line)


def test_hidden_pairs_are_blank_and_zeros_are_not() -> None:
    grid = Grid([[0.0, None], [0.5, 0.5]])
    for depth in Depth:
        row = heatmap(grid, 80, depth)[1]
        assert row[1].text.strip() == "0.0"
        assert row[2].text.strip() == ""
        assert row[2].paper is None
    assert heatmap(grid, 80, Depth.TRUECOLOR)[1][1].paper == ramp(0.0)
    assert any("blank: hidden" in text(line) for line in heatmap(grid, 80, Depth.PLAIN))


def pattern(size: int) -> Grid:
    return Grid([[1.0 if j <= i else None for j in range(size)] for i in range(size)], limits=(0.0, 1.0))


@pytest.mark.parametrize("depth, filled", [(Depth.PLAIN, "##"), (Depth.SHADE, "██"), (Depth.TRUECOLOR, "  ")])
def test_a_pattern_has_neither_numbers_nor_scale(depth: Depth, filled: str) -> None:
    ruler, *body, note = heatmap(pattern(4), 80, depth)
    assert text(ruler).split() == ["0", "1", "2", "3"]
    assert [span.text for span in body[1][1:]] == [filled, filled, "  ", "  "]
    assert [span.paper is not None for span in body[1][1:]] == [depth.colored] * 2 + [False] * 2
    assert text(note) == "blank: hidden"
    assert len(heatmap(Grid([[1.0] * 3] * 3), 80, depth)) == 4, "nothing is hidden, so nothing has to be said"


def test_a_long_pattern_shows_shares_and_their_scale() -> None:
    lines = heatmap(pattern(128), 80, Depth.SHADE)
    assert [span.text for span in lines[2][1:5]] == ["██", "▓▓", "  ", "  "]
    assert text(lines[-2]) == "0 ·░▒▓█ 1  blank: hidden"
    assert text(lines[-1]) == "Each cell is the visible share of 4 × 4 pairs (rows × columns)."


def test_positions_stand_to_the_right_and_now_and_then_above() -> None:
    grid = Grid([[1.0] * 12] * 3, ["8", "9", "10"], [str(j) for j in range(90, 102)])
    ruler, *body = heatmap(grid, 80, Depth.SHADE)
    assert text(ruler).split() == ["90", "92", "94", "96", "98", "100"]
    assert [line[0].text for line in body] == [" 8 ", " 9 ", "10 "]


def test_tight_cells_leave_the_leading_zero_out() -> None:
    rows = heatmap(causal(16), 80, Depth.SHADE)[1:17]
    assert [span.text.strip("█▓▒░ ") for span in rows[2][1:4]] == [".33", ".33", ".33"]


def test_without_room_for_numbers_labels_run_downward() -> None:
    lines = heatmap(causal(30), 80, Depth.TRUECOLOR)
    header = [text(line)[4:] for line in lines[:3]]
    assert ["".join(line[2 * column : 2 * column + 2] for line in header).split() for column in (0, 12)] == [
        ["k", "0"],
        ["k", "1", "2"],
    ]
    assert {len(span.text) for line in lines[3:33] for span in line[1:]} == {2}


def test_half_blocks_hold_two_rows_in_one_line() -> None:
    lines = heatmap(Grid([[1.0, None], [0.0, 0.5]] * 50), 80, Depth.TRUECOLOR)
    assert [text(line)[:3].strip() for line in lines[1:51]] == [str(row) for row in range(0, 100, 2)]
    assert list(lines[1][1:]) == [Span("▀", ramp(1.0), ramp(0.0)), Span("▄", ramp(0.5))]


def test_an_odd_last_row_has_nothing_below_it() -> None:
    lines = heatmap(Grid([[1.0, 0.0]] * 65), 80, Depth.TRUECOLOR)
    assert list(lines[33][1:]) == [Span("▀", ramp(1.0)), Span("▀", ramp(0.0))]


def test_pooled_grid_says_so_and_what_it_hides() -> None:
    rows = [[0.0] * 300 for _ in range(300)]
    rows[7][9] = 0.9
    lines = heatmap(Grid(rows), 80, Depth.TRUECOLOR)
    note = " ".join(map(text, lines[-2:]))
    assert "mean of 4 × 4 values" in note
    assert "largest single value is 0.9" in note
    assert len(lines) < 45


def test_column_numbers_stand_above_their_columns() -> None:
    header, *body = heatmap(Grid([[0.5] * 60] * 60), 80, Depth.TRUECOLOR)
    line, margin = text(header), len(body[0][0].text)
    assert all(line[margin + number :].startswith(str(number)) for number in range(0, 60, 5))


@pytest.mark.parametrize("size", [3, 30, 70])
@pytest.mark.parametrize("depth", list(Depth))
def test_what_is_not_finite_is_shown(size: int, depth: Depth) -> None:
    rows = [[0.5] * size for _ in range(size)]
    rows[0][0], rows[size // 2][size // 2], rows[-1][-1] = math.nan, math.inf, -math.inf
    picture = "\n".join(map(text, heatmap(Grid(rows), 200, depth)))
    assert "nan" in picture
    assert "inf" in picture.replace("-inf", "")
    assert "-inf" in picture


def test_labels_of_wide_characters_stay_aligned() -> None:
    grid = Grid([[0.9, 0.1], [0.2, 0.8]], ["你好", "a"], ["世界", "🐈🐈"])
    lines = heatmap(grid, 80, Depth.TRUECOLOR)
    assert len({line_width(line) for line in lines[:3]}) == 1


def test_empty_grids_say_so() -> None:
    assert "0 rows, 0 columns" in text(heatmap(Grid([]), 80, Depth.SHADE)[0])
    assert "3 rows, 0 columns" in text(heatmap(Grid([[], [], []]), 80, Depth.SHADE)[0])


sizes = st.integers(0, 24) | st.sampled_from([64, 65, 128, 129, 200])
numbers = st.none() | st.floats() | st.floats(0, 1)


@settings(deadline=None)
@given(st.data(), sizes, sizes, st.integers(20, 120), st.sampled_from(Depth))
def test_any_grid_fits_its_width(data: st.DataObject, height: int, columns: int, width: int, depth: Depth) -> None:
    palette = data.draw(st.lists(numbers, min_size=1, max_size=9))
    labels = data.draw(st.lists(st.text(max_size=12), min_size=1, max_size=5))
    grid = Grid(
        [[palette[(7 * i + 5 * j) % len(palette)] for j in range(columns)] for i in range(height)],
        [labels[i % len(labels)] for i in range(height)] if data.draw(st.booleans()) else (),
        [labels[j % len(labels)] for j in range(columns)] if data.draw(st.booleans()) else (),
        title=data.draw(st.text(max_size=40)),
        note=data.draw(st.text(max_size=40)),
    )
    lines = heatmap(grid, width, depth)
    assert block_width(lines) <= width
    everything = "".join(map(text, lines))
    assert everything.isprintable()
    assert depth is not Depth.PLAIN or everything.replace("…", "~").isascii()
