"""docs/exercises.md: its table, its Python and what it quotes are those of the exercises."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from regard import lab
from regard.cli import main
from regard.lab.exercises import EXERCISES, exercise

PAGE = (Path(__file__).parents[3] / "docs" / "exercises.md").read_text(encoding="utf-8")


def test_the_table_lists_every_exercise() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+) \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)
    wanted = []
    for number in EXERCISES:
        of = exercise(number)
        runs = ", ".join(f"`regard lab {name}`" for name in of.chapter.experiments)
        wanted.append((str(number), of.title, f"{of.chapter.document}: {of.chapter.section}", runs))
    assert rows == wanted


def test_what_it_quotes_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["exercise", "9", "--answer", '{"cold": [0.51, 0.31, 0.19]}']) == 1
    assert f"```text\n{capsys.readouterr().out}```" in PAGE


def test_its_python_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        exec(code, {})
    assert "✓ cold: right\n✗ ratio: still open" in stream.getvalue()


def test_every_experiment_that_is_named_exists() -> None:
    named = {name for number in EXERCISES for name in exercise(number).chapter.experiments}
    assert named <= set(lab.names())
