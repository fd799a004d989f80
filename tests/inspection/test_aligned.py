"""Tables: aligned, with digits that mean something."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.inspection.aligned import aligned
from regard.inspection.records import Estimate, Table
from regard.inspection.text import display_width


def test_words_left_numbers_right_estimates_with_intervals() -> None:
    record = Table(
        ["score", "entropy", "n", "time"],
        [["dot", Estimate(1.5234, 1.31, 1.742), 12, 0.52], ["additive", Estimate(0.21, 0.2, 0.22), 1024, 120.3]],
        title="Scores",
    )
    assert aligned(record).split("\n") == [
        "Scores",
        "score                  entropy     n   time",
        "--------  --------------------  ----  -----",
        "dot          1.52 [1.31, 1.74]    12    0.5",
        "additive  0.210 [0.200, 0.220]  1024  120.3",
    ]


def test_wide_characters_stay_aligned_and_escapes_are_spelled_out() -> None:
    lines = aligned(Table(["token", "n"], [["你好", 1], ["\x1b[31m", 22]])).split("\n")
    assert lines[2] == "你好       1"
    assert lines[3] == r"\x1b[31m  22"
    assert len({display_width(line) for line in lines}) == 1


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="one cell per column, got 1 cells for 2 columns"):
        aligned(Table(["a", "b"], [["x"]]))


def test_a_table_without_rows_shows_its_columns() -> None:
    assert aligned(Table(["a", "bc"], [])) == "a  bc\n-  --"


cells = st.text(max_size=9) | st.integers() | st.floats() | st.builds(Estimate, *[st.floats()] * 3) | st.booleans()


@given(st.lists(st.tuples(cells, cells), max_size=6), st.text(max_size=20))
def test_any_cells_make_a_table(rows: list[tuple[str | int | float | Estimate, ...]], title: str) -> None:
    lines = aligned(Table(["one", "two"], rows, title)).split("\n")
    assert len(lines) == len(rows) + 2 + bool(title)
    assert "".join(lines).isprintable()
