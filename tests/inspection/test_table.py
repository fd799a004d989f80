"""Tables sort, filter, print with digits that mean something, and convert to other formats."""

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.inspection.records import Estimate, Table
from regard.inspection.table import text_table
from regard.inspection.text import display_width

SMALL = Table(("layer", "head", "entropy"), [("a", 0, 0.5), ("a", 1, float("nan")), ("b", 0, 2.0), ("b", 1, 0.5)])
ESTIMATED = Table(("head", "change"), [(0, Estimate(1.0, 0.5, 1.5)), (1, Estimate(2.0, 1.0, 3.0))])


def test_sorting_puts_the_largest_first_and_nan_last() -> None:
    assert [row["head"] for row in SMALL.sort("entropy")] == [0, 0, 1, 1]
    assert SMALL.sort("entropy")["entropy"][:3] == [2.0, 0.5, 0.5]
    assert SMALL.sort("entropy", ascending=True)["entropy"][:3] == [0.5, 0.5, 2.0]
    assert SMALL.sort("entropy", ascending=True).rows[-1][:2] == ("a", 1)
    assert ESTIMATED.sort("change")["head"] == [1, 0]


def test_rows_and_columns() -> None:
    assert len(SMALL) == 4
    assert SMALL["layer"] == ["a", "a", "b", "b"]
    assert SMALL.where(layer="b", head=1)["entropy"] == [0.5]
    assert len(SMALL.head(2)) == 2
    with pytest.raises(KeyError, match="no column 'size'; there are layer, head, entropy"):
        SMALL["size"]


def test_text_keeps_both_ends_of_a_long_table() -> None:
    long = Table(("n",), [(n,) for n in range(270)])
    lines = repr(long).splitlines()
    assert "… 230 more rows …" in lines
    assert lines[2].strip() == "0"
    assert lines[-1].strip() == "269"
    assert len(long.text().splitlines()) == 272


def test_what_is_printed_can_be_rounded_and_left_out() -> None:
    exact = Table(("name", "share"), [("a", 1e-9), ("b", 0.12345)], decimals=3)
    assert repr(exact).splitlines()[2:] == ["a      0.00", "b      0.12"]
    assert exact["share"] == [1e-9, 0.12345]
    assert exact.without("name").rows == [[1e-9], [0.12345]]


def test_csv_json_and_files(tmp_path: Path) -> None:
    assert ESTIMATED.to_csv() == "head,change,change low,change high\n0,1.0,0.5,1.5\n1,2.0,1.0,3.0\n"
    text = SMALL.to_json()
    assert text is not None
    assert json.loads(text)[1] == {"layer": "a", "head": 1, "entropy": None}
    for suffix in ("csv", "json", "txt"):
        SMALL.save(tmp_path / f"t.{suffix}")
    assert (tmp_path / "t.csv").read_text() == SMALL.to_csv()
    assert (tmp_path / "t.json").read_text() == text
    assert (tmp_path / "t.txt").read_text() == repr(SMALL) + "\n"
    with pytest.raises(ValueError, match="one of csv, json, txt"):
        SMALL.save(tmp_path / "t.xls")


def test_pandas() -> None:
    pytest.importorskip("pandas")
    frame = ESTIMATED.to_pandas()
    assert list(frame.columns) == ["head", "change", "change low", "change high"]
    assert len(frame) == 2
    assert list(Table(("a", "b"), []).to_pandas().columns) == ["a", "b"]


def test_html_escapes() -> None:
    assert "<td>&lt;b&gt;</td>" in Table(("<i>",), [("<b>",)])._repr_html_()


def test_words_left_numbers_right_estimates_with_intervals() -> None:
    record = Table(
        ["score", "entropy", "n", "time"],
        [["dot", Estimate(1.5234, 1.31, 1.742), 12, 0.52], ["additive", Estimate(0.21, 0.2, 0.22), 1024, 120.3]],
        title="Scores",
    )
    assert text_table(record).split("\n") == [
        "Scores",
        "score                  entropy     n   time",
        "--------  --------------------  ----  -----",
        "dot          1.52 [1.31, 1.74]    12    0.5",
        "additive  0.210 [0.200, 0.220]  1024  120.3",
    ]


def test_wide_characters_stay_aligned_and_escapes_are_spelled_out() -> None:
    lines = text_table(Table(["token", "n"], [["你好", 1], ["\x1b[31m", 22]])).split("\n")
    assert lines[2] == "你好       1"
    assert lines[3] == r"\x1b[31m  22"
    assert len({display_width(line) for line in lines}) == 1


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="one cell per column, got 1 cells for 2 columns"):
        text_table(Table(["a", "b"], [["x"]]))


def test_a_table_without_rows_shows_its_columns() -> None:
    assert text_table(Table(["a", "bc"], [])) == "a  bc\n-  --"


cells = st.text(max_size=9) | st.integers() | st.floats() | st.builds(Estimate, *[st.floats()] * 3) | st.booleans()


@given(st.lists(st.tuples(cells, cells), max_size=6), st.text(max_size=20))
def test_any_cells_make_a_table(rows: list[tuple[str | int | float | Estimate, ...]], title: str) -> None:
    lines = text_table(Table(["one", "two"], rows, title)).split("\n")
    assert len(lines) == len(rows) + 2 + bool(title)
    assert "".join(lines).isprintable()


MIXED = Table(
    ("n", "share", "what", "some", "change"),
    [(1, 2, "a", True, Estimate(1.0, 0.5, 1.5)), (2, 0.5, 3, False, 4.0), (3, float("nan"), 0.5, True, 5.0)],
)


class Stream:
    """A table of another library: its columns, and what a consumer of Arrow asks of it."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.columns = columns

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.columns, requested_schema


@pytest.mark.parametrize("library", ["pyarrow", "polars"])
def test_arrow_gets_columns_of_one_type(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType(library)
    module.table = module.DataFrame = Stream
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, library, module)
    stream: Any = MIXED.__arrow_c_stream__("schema")
    columns, schema = stream
    assert schema == "schema"
    assert list(columns) == ["n", "share", "what", "some", "change", "change low", "change high"]
    assert columns["n"] == [1, 2, 3]
    assert columns["share"][:2] == [2.0, 0.5]
    assert all(type(share) is float for share in columns["share"])
    assert columns["what"] == ["a", "3", "0.5"]
    assert columns["some"] == [True, False, True]
    assert (columns["change"], columns["change low"]) == ([1.0, 4.0, 5.0], [0.5, None, None])
    empty: Any = Table(("a", "b"), []).__arrow_c_stream__()
    assert empty[0] == {"a": [], "b": []}


def test_arrow_needs_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("pyarrow", "polars"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match="Arrow needs pyarrow: pip install pyarrow; or use to_pandas, to_csv or"):
        SMALL.__arrow_c_stream__()


def test_arrow() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table(MIXED)
    assert table.column_names[:4] == ["n", "share", "what", "some"]
    assert list(map(str, table.schema.types[:4])) == ["int64", "double", "string", "bool"]
    assert table.num_rows == 3


def test_polars() -> None:
    polars = pytest.importorskip("polars")
    assert polars.DataFrame(MIXED)["n"].to_list() == [1, 2, 3]


def test_save_returns_the_path(tmp_path: Path) -> None:
    path = SMALL.save(str(tmp_path / "heads.csv"))
    assert path == tmp_path / "heads.csv"
    assert path.exists()


def test_columns_without_room_go_on_below() -> None:
    table = Table(["layer", "head", "a", "long_name", "b"], [[0, 1, 0.5, 2.0, 3.0], [1, 1, 1.5, 2.0, 3.0]])
    assert table.text(24, keys=("layer", "head")).splitlines() == [
        "layer  head    a",
        "-----  ----  ---",
        "    0     1  0.5",
        "    1     1  1.5",
        "",
        "layer  head  long_name",
        "-----  ----  ---------",
        "    0     1          2",
        "    1     1          2",
        "",
        "layer  head  b",
        "-----  ----  -",
        "    0     1  3",
        "    1     1  3",
    ]
    assert table.text(80, keys=("layer", "head")) == table.text()
    assert max(map(len, table.text(5).splitlines())) == 9  # no column is cut
