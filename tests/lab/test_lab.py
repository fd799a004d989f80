"""Every experiment: the same seed gives the same report, and every report is complete and can be written down."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from regard import lab, plot
from regard.cli import main
from regard.inspection.records import Estimate, Table
from regard.inspection.text import display_width
from regard.lab import render
from regard.lab.report import Report

Quick = Callable[[str], Report]
RANDOM = ("scaling", "variance", "temperature", "rows")


def test_names_are_the_list() -> None:
    assert lab.names() == tuple(lab.EXPERIMENTS)
    assert {"scaling", "variance", "saturation", "temperature", "patterns", "rows"} <= set(lab.names())


@pytest.mark.parametrize("name, hint", [("scalling", "did you mean 'scaling'"), ("xyz", "there are scaling, variance")])
def test_unknown_names_get_a_hint(name: str, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        lab.run(name)


# the others take seconds each, and twice
AGAIN = (*RANDOM, "saturation", "symmetry", "projection", "scores", "translation", "induction", "why")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in AGAIN else pytest.mark.slow) for name in lab.names()]
)
def test_same_seed_same_report(quick: Quick, name: str) -> None:
    first, again = quick(name), lab.run(name, quick=True, seed=3)
    assert dataclasses.replace(again, timing=None) == dataclasses.replace(first, timing=None)


@pytest.mark.parametrize("name", RANDOM)
def test_another_seed_gives_other_numbers(quick: Quick, name: str) -> None:
    assert lab.run(name, quick=True, seed=4).tables != quick(name).tables


@pytest.mark.parametrize("name", lab.names())
def test_reports_are_complete(quick: Quick, name: str) -> None:
    report = quick(name)
    assert report.name == name
    assert report.question.endswith("?")
    assert report.finding.endswith(".")
    assert report.why.endswith(".")
    assert report.setup.endswith(".")
    assert report.takeaway is not None
    assert report.tables
    assert report.pictures
    assert report.compared
    assert all(compared.source and compared.claims for compared in report.compared)
    assert {"seed", "repetitions", "regard", "torch", "python"} <= set(report.settings)
    if name in RANDOM:
        assert any(isinstance(cell, Estimate) for table in report.tables for row in table.rows for cell in row)


@pytest.mark.parametrize("name", lab.names())
@pytest.mark.parametrize("width", [80, 120])
def test_text_fits_and_holds_everything(quick: Quick, name: str, width: int) -> None:
    report = quick(name)
    text = render.text(report, width=width, color="shade")
    assert max(map(display_width, text.split("\n"))) <= width
    together = " ".join(text.split())
    for sentence in (report.question, report.finding, *(compared.source for compared in report.compared)):
        assert " ".join(sentence.split()) in together
    assert not text.isascii()
    assert "\x1b" not in text


def test_long_texts_are_broken_into_lines() -> None:
    table = Table(("claim", "n", "verdict"), [("one two three four five", 1.5, "six seven eight nine ten eleven")])
    assert render.fitted(table, 40).split("\n") == [
        "claim                      n",
        "-----------------------  ---",
        "one two three four five  1.5",
        "",
        "claim               verdict",
        "------------------  ---------------",
        "one two three four  six seven eight",
        "five                nine ten eleven",
    ]


def test_wide_tables_are_cut_between_columns() -> None:
    table = Table(("n", "first column", "second column"), [(1, 1.5, "x" * 20), (2, 2.5, "y")], title="two groups")
    assert render.fitted(table, 30).split("\n") == [
        "two groups",
        "n  first column",
        "-  ------------",
        "1           1.5",
        "2           2.5",
        "",
        "n  second column",
        "-  --------------------",
        "1  xxxxxxxxxxxxxxxxxxxx",
        "2  y",
    ]


@pytest.mark.parametrize("name", lab.names())
def test_json_holds_the_report(quick: Quick, name: str) -> None:
    report = quick(name)
    record = json.loads(render.as_json(report))
    assert record["finding"] == report.finding
    assert len(record["tables"]) == len(report.tables)
    assert record["tables"][0]["columns"] == list(report.tables[0].columns)
    assert (record["timing"] is None) == (report.timing is None)


def test_write_makes_every_file(quick: Quick, tmp_path: Path) -> None:
    report = quick("rows")
    folder = tmp_path / "new" / "folder"
    written = render.write(report, folder)
    assert sorted(written) == sorted(folder.iterdir())
    tables = {"rows.csv", "rows-2.csv", "rows-seed.csv", "rows.json"}
    assert {"rows.png", "rows.svg", "rows-small.svg", *tables} == {f.name for f in written}
    assert "assis" in (folder / "rows.svg").read_text(encoding="utf-8")
    assert (folder / "rows.json").read_text(encoding="utf-8") == render.as_json(report)


def test_writing_timed_experiments_writes_their_times(
    quick: Quick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: dict[str, object] = {}
    monkeypatch.setattr(plot, "save", lambda picture, path: saved.update({path.name: picture}))
    monkeypatch.setattr(render, "save_as", lambda picture, paths: saved.update({path.name: picture for path in paths}))
    report = quick("patterns")
    render.write(report, tmp_path)
    assert report.timing is not None
    drawn = report.timing.pictures[0] if report.timing.pictures else None  # none on a machine that is too busy
    assert saved.get("patterns-5.png") == saved.get("patterns-5.svg") == drawn
    assert saved["patterns.csv"] == report.tables[0]
    assert saved["patterns-4.csv"] == report.timing.tables[0]


def test_a_folder_that_cannot_be_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lab, "run", lambda *_, **__: pytest.fail("it ran"))
    (tmp_path / "file").touch()
    for name in ("rows", "all"):
        assert main(["lab", name, "--out", str(tmp_path / "file" / "folder")]) == 1
        assert "give --out another one" in capsys.readouterr().err


def test_ctrl_c_says_how_far_a_training_came(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt("stopped after step 7; the next run goes on from there")

    monkeypatch.setattr(lab, "run", stopped)
    assert main(["lab", "rows"]) == 130
    assert "stopped after step 7; the next run goes on from there" in capsys.readouterr().err
