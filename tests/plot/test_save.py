"""Files: the format by suffix, replaced whole or not at all, the same bytes for the same picture."""

import csv
import io
import json
import math
import os
import stat
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.inspection.records import Bars, Estimate, Grid, Line, Lines, Panel, Table
from regard.plot import save
from regard.plot.save import as_csv, as_json, save_as

GRID = Grid([[0.5, None], [0.25, 0.75]], ["猫", "b"], ["x", "y"], title="two <tokens>")
LINES = Lines([Line("dot", [1, 2, 4], [1, 2, 3], [0, 1, 2], [2, 3, 4])], "n", "ms", log_x=True)
PANEL = Panel([Grid([[0.5, None]], ["b"]), LINES, Bars(["a"], {"s": [1.0]}, "y")], title="all")
TABLE = Table(["name", "value"], [["a", Estimate(1.0, 0.5, 1.5)]])
STARTS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF", "txt": b"all\n", "json": b'{\n "kind": "Panel"'}


@pytest.mark.parametrize("form", STARTS)
def test_the_suffix_names_the_format_and_the_bytes_repeat(tmp_path: Path, form: str) -> None:
    first, second = tmp_path / f"one.{form}", tmp_path / f"two.{form.upper()}"
    save(PANEL, first)
    save(PANEL, str(second))
    assert first.read_bytes().startswith(STARTS[form])
    assert first.read_bytes() == second.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([first.name, second.name])


def test_one_drawing_gives_the_files_of_several(tmp_path: Path) -> None:
    paths = [tmp_path / f"once.{form}" for form in ("png", "svg", "pdf")]
    picture = Panel([Bars(["p", "q"], {"s": [1.0, 2.0]}, "y"), Grid([[0.25, 0.75]])], "both")
    save_as(picture, paths)
    for path in paths:
        save(picture, alone := path.with_stem("alone"))
        assert path.read_bytes() == alone.read_bytes()


def test_text_in_svg_stays_text(tmp_path: Path) -> None:
    save(GRID, tmp_path / "map.svg")
    content = (tmp_path / "map.svg").read_text(encoding="utf-8")
    assert ">猫</text>" in content
    assert ">two &lt;tokens&gt;</text>" in content
    assert "<dc:date>" not in content


def test_characters_without_a_font_are_one_warning(tmp_path: Path) -> None:
    rare = Grid([[0.5]], ["\N{LINEAR A SIGN AB001}\N{LINEAR A SIGN AB002}"])
    with pytest.warns(
        UserWarning, match=r"2 characters \(.*\) in no installed font .* boxes: apt install fonts-noto-core"
    ) as caught:
        save(rare, tmp_path / "map.png")
    assert len(caught) == 1
    assert caught[0].filename == __file__
    save(rare, tmp_path / "map.svg")


def test_text_files_have_shades_but_no_codes(tmp_path: Path) -> None:
    save(GRID, tmp_path / "map.txt")
    text = (tmp_path / "map.txt").read_text(encoding="utf-8")
    assert "\x1b" not in text
    assert "█0.75█" in text
    assert all(line == line.rstrip() for line in text.split("\n"))
    save(TABLE, tmp_path / "table.txt")
    assert "1.00 [0.50, 1.50]" in (tmp_path / "table.txt").read_text(encoding="utf-8")


def test_unknown_suffixes_and_wrong_records_write_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"one of png, svg, pdf, txt, json, csv; got 'map\.gif'"):
        save(GRID, tmp_path / "map.gif")
    with pytest.raises(ValueError, match="got 'map'"):
        save(GRID, tmp_path / "map")
    with pytest.raises(ValueError, match="a Table is saved as txt, json or csv, got png"):
        save(TABLE, tmp_path / "table.png")
    with pytest.raises(ValueError, match="csv holds a Grid or a Table"):
        save(LINES, tmp_path / "lines.csv")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["png", "svg", "txt", "json", "csv"])
def test_an_older_file_survives_a_failure(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"map.{form}"
    path.write_text("older", encoding="utf-8")
    broken: Any = object()
    with pytest.raises((TypeError, AttributeError)):
        save(Grid([[broken]]), path)
    assert path.read_text(encoding="utf-8") == "older"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_while_writing_leaves_the_older_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "map.json"
    path.write_text("older", encoding="utf-8")

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        save(GRID, path)
    assert path.read_text(encoding="utf-8") == "older"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="permissions and links of posix")
def test_links_and_permissions_stay(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    save(GRID, target)
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~umask
    target.chmod(0o640)
    link.symlink_to(target)
    save(Grid([[1.0]]), link)
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert '"values"' in target.read_text(encoding="utf-8")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        save(GRID, tmp_path / "nowhere" / "map.json")


def test_json_tells_hidden_from_zero_and_from_not_a_number() -> None:
    grid = Grid([[None, 0.0, math.nan, math.inf, -math.inf]], row_labels=["猫\x1b"], title="t")
    assert json.loads(as_json(grid)) == {
        "kind": "Grid",
        "values": [[None, 0.0, "nan", "inf", "-inf"]],
        "row_labels": ["猫\x1b"],
        "column_labels": [],
        "title": "t",
        "note": "",
        "limits": None,
        "names": ["", "", ""],
        "margins": [[], []],
    }


def test_json_holds_nested_records_and_any_kind_of_number() -> None:
    whole: Any = np.arange(2)
    half: Any = np.float32(0.5)
    lines = Lines([Line("a", whole, [half, True])], "x", "y")
    panel = json.loads(as_json(Panel([lines, Bars(["l"], {"s": [1]}, "y")])))
    assert panel["pictures"][0]["lines"][0]["x"] == [0, 1]
    assert panel["pictures"][0]["lines"][0]["y"] == [0.5, True]
    assert panel["pictures"][1]["series"] == {"s": [1]}
    table = json.loads(as_json(Table(["a"], [[Estimate(1.0, 0.5, 1.5)]])))
    assert table["rows"] == [[{"kind": "Estimate", "mean": 1.0, "low": 0.5, "high": 1.5, "runs": []}]]


def test_csv_of_a_grid_reads_back() -> None:
    grid = Grid([[0.1 + 0.2, None], [math.nan, 1.0]], ["a,b", 'c"\n'], ["x", "y"])
    rows = list(csv.reader(io.StringIO(as_csv(grid))))
    assert rows == [["", "x", "y"], ["a,b", repr(0.1 + 0.2), ""], ['c"\n', "nan", "1.0"]]


def test_csv_numbers_rows_and_columns_without_labels() -> None:
    assert as_csv(Grid([[0.5, 0.5]])) == ",0,1\n0,0.5,0.5\n"


def test_csv_gives_an_estimate_three_columns() -> None:
    table = Table(["name", "value"], [["a", Estimate(1.0, 0.5, 1.5)], ["b", 2.0]])
    assert as_csv(table) == "name,value,value low,value high\na,1.0,0.5,1.5\nb,2.0,,\n"


def test_csv_of_anything_else_is_refused() -> None:
    with pytest.raises(ValueError, match="csv holds a Grid or a Table, got Bars; save it as json"):
        as_csv(Bars([], {}, "y"))
