"""`regard exercise`: lists, prints a task, checks an answer from a file or the command line, works it out."""

import json
import re
from pathlib import Path

import pytest

from regard.cli import main
from regard.lab.exercises import EXERCISES, exercise

RIGHT = {"scores": [[1, 0, 1], [0, 1, 1], [1, 1, 2]]}


def test_alone_it_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exercise"]) == 0
    out = capsys.readouterr().out
    *blocks, last = out.rstrip().split("\n\n")[1:]
    assert last == "0 of 21 done"
    groups = [block.split("\n") for block in blocks]
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
        (["99"], f"the exercises are 1 to {len(EXERCISES)}, or their names; got 99"),
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


def test_all_that_is_known_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exercise", "temperature", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == exercise(9).data()
    assert main(["exercise", "--json"]) == 0
    assert [each["number"] for each in json.loads(capsys.readouterr().out)] == list(EXERCISES)


def test_fresh_numbers_are_repeated_by_their_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exercise", "9", "--new"]) == 0
    out = capsys.readouterr().out
    seed = re.search(r"fresh numbers, seed (\d+)", out)
    assert seed is not None
    assert f"regard exercise 9 --new {seed[1]} --answer" in out
    assert main(["exercise", "9", "--new", seed[1]]) == 0
    assert capsys.readouterr().out == out
    answer = json.dumps(exercise(9, int(seed[1])).answer)
    assert main(["exercise", "9", "--new", seed[1], "--answer", answer]) == 0
    assert main(["exercise", "9", "--new", seed[1], "--json"]) == 0
    assert capsys.readouterr().out.count(f'"seed": {seed[1]},') == 1
    assert main(["exercise", "9", "--new", "--answer", answer]) == 1
    assert "which numbers? regard exercise 9 --new SEED" in capsys.readouterr().err


def test_hints_tell_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exercise", "9", "--hint", "cold"]) == 0
    assert capsys.readouterr().out == "cold   divide the scores by 0.5, then softmax\n"
    assert main(["exercise", "9", "--hint"]) == 0
    assert len(capsys.readouterr().out.splitlines()) >= 6
    assert main(["exercise", "9", "--hint", "cool"]) == 1
    assert "exercise 9 has no part 'cool'; it asks for cold, hot" in capsys.readouterr().err


def test_progress_is_kept_and_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "new"))
    assert main(["exercise", "9", "--answer", '{"ratio": "e^2", "undo": "halve"}']) == 1
    assert "1 of 2 right; 4 of 6 parts still open" in capsys.readouterr().out
    main(["exercise"])
    out = capsys.readouterr().out
    assert "Temperature  1/6" in out
    assert "0 of 21 done; regard exercise --reset begins anew" in out
    answer = json.dumps(exercise(9).answer)
    assert main(["exercise", "9", "--answer", answer]) == 0
    main(["exercise"])
    assert "Temperature  ✓" in capsys.readouterr().out
    (tmp_path / "new" / "exercises.json").write_text("{damaged")
    main(["exercise"])
    assert "0 of 21 done\n" in capsys.readouterr().out
    main(["exercise", "9", "--answer", answer])
    assert main(["exercise", "9", "--reset"]) == 0
    assert main(["exercise", "--reset"]) == 0
    capsys.readouterr()
    main(["exercise"])
    assert "✓" not in capsys.readouterr().out


def test_what_follows_is_counted_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exercise", "18", "--answer", '{"entropy": 2.0, "keys": 7.389}']) == 1
    assert "0 of 2 right; 1 only follows from an earlier mistake" in capsys.readouterr().out
