"""`regard lab`: lists, runs, writes files, and speaks on standard error only when it takes long."""

import json
from pathlib import Path

import pytest

from regard import lab
from regard.cli import main
from regard.cli.lab import verdict_counts
from regard.lab.report import VERDICTS


def test_alone_it_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in lab.names())


def test_it_prints_question_table_picture_seed_and_finding(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["lab", "saturation", "--quick"]) == 0
    captured = capsys.readouterr()
    order = [
        "What do large scores",
        "█ [1, 2, 3]",
        "Finding: ",
        "Softmax and its Jacobian",
        "The seed (score functions",
        "(seed 0",
    ]
    assert [captured.out.find(text) for text in order] == sorted(captured.out.find(text) for text in order)
    assert all(text in captured.out for text in order)
    assert captured.err == ""


def test_json_is_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "rows", "--quick", "--seed", "2", "--format", "json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["name"] == "rows"
    assert record["settings"]["seed"] == 2


def test_out_writes_files_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "figures"
    assert main(["lab", "saturation", "--quick", "--out", str(folder)]) == 0
    names = {f"saturation{end}" for end in (".png", ".svg", "-small.svg", ".csv", ".json", "-seed.csv")}
    assert {file.name for file in folder.iterdir()} == names
    err = capsys.readouterr().err
    assert all(name in err for name in names)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["scalings"], "regard lab: the lab has no experiment 'scalings'; did you mean 'scaling'?"),
        (["rows", "--seed", "-1"], "regard lab: seed must be at least 0, got -1"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", *arguments]) == 1
    assert capsys.readouterr().err.strip() == message


def test_verdicts_are_counted_by_document() -> None:
    reports = [lab.run(name, quick=True) for name in ("saturation", "rows")]
    table = verdict_counts(reports)
    claims = [claim for report in reports for compared in report.compared for claim in compared.claims]
    assert table.rows[-1][-1] == len(claims)
    for row in table.rows[:-1]:
        of = [claim for claim in claims if claim.quote.document == row[0]]
        assert list(row[1:-1]) == [sum(claim.verdict == verdict for claim in of) for verdict in VERDICTS]
        assert row[-1] == len(of) > 0
