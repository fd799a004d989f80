"""A table of findings: it sorts, filters, prints and goes to other programs."""

import json
from pathlib import Path

import pytest

from regard.inspection.records import Estimate
from regard.inspection.tidy import Tidy

SMALL = Tidy(("layer", "head", "entropy"), [("a", 0, 0.5), ("a", 1, float("nan")), ("b", 0, 2.0), ("b", 1, 0.5)])
ESTIMATED = Tidy(("head", "change"), [(0, Estimate(1.0, 0.5, 1.5)), (1, Estimate(2.0, 1.0, 3.0))])


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
    long = Tidy(("n",), [(n,) for n in range(270)])
    lines = repr(long).splitlines()
    assert "… 230 more rows …" in lines
    assert lines[2].strip() == "0"
    assert lines[-1].strip() == "269"
    assert len(long.text().splitlines()) == 272


def test_what_is_printed_can_be_rounded_and_left_out() -> None:
    exact = Tidy(("name", "share"), [("a", 1e-9), ("b", 0.12345)], decimals=3)
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
    assert list(Tidy(("a", "b"), []).to_pandas().columns) == ["a", "b"]


def test_html_escapes() -> None:
    assert "<td>&lt;b&gt;</td>" in Tidy(("<i>",), [("<b>",)])._repr_html_()
