"""`regard exercise`: lists, prints a task, checks an answer from a file or the command line, works it out."""

import json
from pathlib import Path

import pytest

from regard.cli import main
from regard.lab.exercises import EXERCISES

RIGHT = {"scores": [[1, 0, 1], [0, 1, 1], [1, 1, 2]]}


def test_alone_it_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exercise"]) == 0
    out = capsys.readouterr().out
    groups = [block.split("\n") for block in out.rstrip().split("\n\n")[1:]]
    assert [group[0] for group in groups] == [
        "Mini-course",
        "Score functions",
        "Important concepts",
        "Experiment results",
    ]
    assert groups[0][1:3] == ["   1  Attention on three words, by hand", "   2  Reading a translation map"]
    numbers = [int(line.split()[0]) for group in groups for line in group[1:]]
    assert numbers == list(EXERCISES)


def test_a_number_prints_the_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exercise", "2"]) == 0
    out = capsys.readouterr().out
    assert "tapis" in out
    assert "regard exercise 2 --answer" in out


def test_a_right_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exercise", "1", "--answer", json.dumps(RIGHT)]) == 0
    assert capsys.readouterr().out == "✓ scores  right\n1 of 1 right; 3 of 4 parts still open\n"


def test_a_wrong_answer_in_a_file_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    file = tmp_path / "answer.json"
    file.write_text(json.dumps({**RIGHT, "scaled": RIGHT["scores"]}), encoding="utf-8")
    assert main(["exercise", "1", "--answer", str(file)]) == 1
    out = capsys.readouterr().out
    assert "✗ scaled  the division by √d_k is missing" in out
    assert "See mini-course, Calculating attention scores; `regard lab rows` and `regard lab\n    symmetry`." in out


@pytest.mark.parametrize("number", [str(number) for number in EXERCISES])
def test_the_solution(number: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["exercise", number, "--solution"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.split("\n"))) <= 80


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["99"], f"the exercises are 1 to {len(EXERCISES)}; got 99"),
        (["1", "--answer", '{"scores": ['], "the answer is not JSON (line 1, column 13)"),
        (["1", "--answer", "nowhere.json"], "nowhere.json"),
        (["1", "--answer", "[1]"], "names at least one of"),
        (["--solution"], "which exercise?"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exercise", *arguments]) == 1
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
