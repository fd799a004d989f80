"""Versions: `make versions` reads the lower bounds of pyproject.toml, and docs/versions.md states the same."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from regard.engine import torch_names

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    found = importlib.util.spec_from_file_location("versions", ROOT / ".github" / "versions.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def bounds(script: ModuleType) -> dict[str, str]:
    return dict(re.split("[>=]=", bound) for bound in script.lower_bounds())


def test_every_requirement_has_one_lower_bound(script: ModuleType) -> None:
    asked = [re.split(r"[\[>=]", item)[0] for item in script.requirements(script.environments()[0])[1:]]
    assert len(bounds(script)) == len(script.lower_bounds())
    assert set(asked) <= set(bounds(script))


def test_the_page_states_the_bounds(script: ModuleType) -> None:
    rows = {
        row[0]: row[1:] for row in re.findall(r"^\| ([\w (]+?)(?: \(optional\))? \| (\S+) \| (\S+) \|$", PAGE, re.M)
    }
    lowest = bounds(script)
    assert rows["torch"] == (lowest["torch"], ".".join(map(str, torch_names.NEWEST)))
    assert rows["transformers"][0] == lowest["transformers"]
    assert rows["Python"] == (script.environments()[0].python, script.environments()[-1].python)


def test_the_page_states_the_bounds_of_other_packages(script: ModuleType) -> None:
    lowest = bounds(script)
    table = PAGE.partition("| package | oldest | why not older |\n| --- | --- | --- |\n")[2]
    stated: dict[str, str] = {}
    for names, versions in re.findall(r"^\| ([\w, ]+) \| ([\d., ]+) \|", table, re.M):
        stated |= dict(zip(names.lower().split(", "), versions.split(", "), strict=True))
    project, _ = script.pyproject()
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    ours = {re.split(r"[\[>=]", item)[0] for items in lists for item in items} - {"regard", "torch"}
    assert stated == {name: lowest[name] for name in ours}


def test_a_python_that_is_not_there(script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"needs Python 3\.99: install it, so that python3\.99 is on the PATH"):
        script.interpreter("3.99")


def test_the_table_shows_what_ran_and_what_did_not(script: ModuleType) -> None:
    rows = [("oldest", "3.11.7", "2.9.0", "5.20.0", "1.26.4", "7", "0", "1", "12")]
    heads, line, row = script.table(rows)
    assert heads.count("|") == line.count("|") == row.count("|") == 10
    assert row == "| oldest | 3.11.7 | 2.9.0 | 5.20.0 | 1.26.4 | 7 | 0 | 1 | 12 |"


def test_an_environment_that_cannot_be_built_is_a_row(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    found = script.outcome(script.Environment("other", "3.99", ""), tmp_path, tmp_path, [])
    assert not found.green
    assert found.row[:2] == ("other", "3.99")
    assert "needs Python 3.99" in found.row[-1]
    assert "other: needs Python 3.99" in capsys.readouterr().err
