"""docs/seeds.md: its Python runs, and every command it names exists."""

import doctest
import re
from pathlib import Path

from regard import lab
from regard.cli.options import COMMANDS
from regard.lab.exercises import EXERCISES

DOCUMENT = Path(__file__).parents[2] / "docs" / "seeds.md"


def test_the_python_runs() -> None:
    result = doctest.testfile(str(DOCUMENT), module_relative=False, encoding="utf-8")
    assert result.attempted > 20
    assert result.failed == 0


def test_every_command_exists() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    commands = set(re.findall(r"`regard ([^`]+)`", text)) - {"lab"}
    assert len(commands) > 8
    for command in commands:
        name, *rest = command.split()
        assert name in COMMANDS
        if name == "lab":
            assert rest[0] in lab.names()
        if name == "exercise":
            assert int(rest[0]) in EXERCISES
    assert {f"lab {name}" for name in lab.names()} <= commands


def test_all_four_documents_have_their_table() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for heading in ("Score functions", "Important concepts", "Mini-course", "Experiment results"):
        assert f"\n## {heading}\n" in text
