"""docs/seeds.md: its Python runs, and every command it names exists."""

import doctest
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from regard import lab
from regard.cli.options import COMMANDS
from regard.lab.exercises import EXERCISES
from regard.lab.report import Report

DOCUMENT = Path(__file__).parents[2] / "docs" / "seeds.md"
HEADINGS = Path(lab.__file__).parent / "headings.json"  # of the four documents, and what stands below each


def test_the_python_runs() -> None:
    result = doctest.testfile(str(DOCUMENT), module_relative=False, encoding="utf-8")
    assert result.attempted > 20
    assert result.failed == 0


def check_command(command: str) -> None:
    """Raise unless `regard COMMAND` can be run."""
    name, *rest = command.split()
    assert name in COMMANDS, command
    if name == "lab" and rest and not rest[0].startswith("-"):
        assert rest[0] in (*lab.names(), "all", "NAME"), command
    if name == "exercise" and rest:
        assert int(rest[0]) in EXERCISES, command


def test_every_command_exists() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    commands = set(re.findall(r"`regard ([^`]+)`", text))
    assert len(commands) > 8
    for command in commands:
        check_command(command)
    assert {f"lab {name}" for name in lab.names()} <= commands


def coverage() -> dict[str, list[list[str]]]:
    """The rows of the coverage tables by document: heading, what it holds, commands, pictures."""
    text = DOCUMENT.read_text(encoding="utf-8").partition("\n## Coverage\n")[2].partition("\n## ")[0]
    tables: dict[str, list[list[str]]] = {}
    for part in text.split("\n### ")[1:]:
        title, *lines = part.splitlines()
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
        tables[title.removesuffix(", heading by heading").lower()] = rows[2:]
    return tables


def holds(heading: dict[str, int | str]) -> str:
    """`2 tables, 1 formula`."""
    kinds = ("tables", "formulas", "figures", "exercises")
    counts = {kind: int(heading.get(kind, 0)) for kind in kinds}
    return ", ".join(f"{count} {kind if count > 1 else kind[:-1]}" for kind, count in counts.items() if count)


def test_every_heading_of_the_seeds_is_covered() -> None:
    seeds = json.loads(HEADINGS.read_text(encoding="utf-8"))
    tables = coverage()
    assert list(tables) == list(seeds)
    for document, headings in seeds.items():
        assert [row[:2] for row in tables[document]] == [[each["heading"], holds(each)] for each in headings]
        for heading, what, commands, pictures in tables[document]:
            named = re.findall(r"`regard ([^`]+)`", commands)
            assert named or commands.startswith("nothing to compute:"), heading
            for command in named:
                check_command(command)
            assert named or not what, heading
            experiments = {command.split()[1] for command in named if command.startswith("lab ")}
            for picture in re.findall(r"`([a-z-]+?)(?:-\d+)?\.png`", pictures):
                assert picture in experiments, heading
            assert bool(pictures) == any(name in lab.names() for name in experiments), heading


def test_every_quotation_stands_below_a_heading_that_is_covered() -> None:
    quotes = json.loads((HEADINGS.parent / "quotes.json").read_text(encoding="utf-8"))
    seeds = json.loads(HEADINGS.read_text(encoding="utf-8"))
    for document, headings in quotes.items():
        assert set(headings) <= {each["heading"] for each in seeds[document]}


@pytest.mark.parametrize("name", lab.names())
def test_the_pictures_of_the_coverage_are_drawn(quick: Callable[[str], Report], name: str) -> None:
    numbers = {
        int(number or 1)
        for rows in coverage().values()
        for row in rows
        for stem, number in re.findall(r"`([a-z-]+?)(?:-(\d+))?\.png`", row[3])
        if stem == name
    }
    assert numbers, name
    assert max(numbers) <= len(quick(name).pictures)


def test_all_four_documents_have_their_table() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for heading in ("Score functions", "Important concepts", "Mini-course", "Experiment results"):
        assert f"\n## {heading}\n" in text
