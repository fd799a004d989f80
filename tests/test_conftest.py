"""What conftest promises: the same random numbers, cases and environment, whatever ran before and whoever asks."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from regard.inspection.files import cache_folder

HERE = Path(__file__).parent
FIRST = """
import random
import numpy, pytest, torch
from hypothesis import given, settings, strategies as st

AT_IMPORT = torch.rand(())

@pytest.fixture(scope="session")
def drawn():
    return torch.rand(())

def test_before():
    random.random(), torch.rand(3), numpy.random.rand(3)

def test_numbers(drawn):
    print("numbers", AT_IMPORT.item(), drawn.item(), random.random(), torch.rand(()).item(), numpy.random.rand())

@given(st.integers(0, 10**9), st.floats(), st.text())
@settings(max_examples=200)
def test_cases(number, real, word):
    cases = test_cases.__dict__.setdefault("seen", [])
    cases.append(repr((number, real, word, torch.rand(()).item())))

def test_cases_are_told():
    import zlib
    print("cases", zlib.crc32("".join(test_cases.__dict__.get("seen", [])).encode()))
"""
SECOND = """
import random
import constants, torch

def test_elsewhere():
    torch.rand(7), random.random()
"""


def run(folder: Path, *arguments: str, **environment: str) -> list[str]:
    """What the tests of a folder with this conftest print."""
    call = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    found = subprocess.run(call, cwd=folder, env=env | environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    return [line.lstrip(".") for line in found.stdout.splitlines() if "numbers " in line or "cases " in line]


def test_what_ran_before_changes_nothing(tmp_path: Path) -> None:
    """In another order, after another file, with other hashes: the same numbers and the same cases."""
    shutil.copy(HERE / "conftest.py", tmp_path / "conftest.py")
    (tmp_path / "test_first.py").write_text(FIRST)
    (tmp_path / "test_second.py").write_text(SECOND)
    (tmp_path / "constants.py").write_text('WORDS = [123456, 654321, 999999, 0.12345, "a local word", "another one"]')
    first, second = "test_first.py", "test_second.py"
    together = run(tmp_path, second, first, PYTHONHASHSEED="1")
    names = [f"{first}::{name}" for name in ("test_numbers", "test_cases", "test_cases_are_told")]
    alone = run(tmp_path, *names, PYTHONHASHSEED="2", CI="1", TZ="Asia/Tokyo", REGARD_ENGINE="none", COLUMNS="300")
    assert len(together) == 2
    assert together == alone


def test_no_earlier_run_is_remembered() -> None:
    assert settings().derandomize
    assert settings().database is None
    assert settings().deadline is None


def test_the_users_cache_and_settings_stay_out() -> None:
    # the tests of the pages have a folder of their own while they share a server
    assert Path(tempfile.gettempdir()) in Path(os.environ["REGARD_CACHE"]).parents
    assert cache_folder() == Path(os.environ["REGARD_CACHE"])
    assert {name for name in os.environ if name.startswith("REGARD_")} <= {
        "REGARD_CACHE",
        "REGARD_ISA",
        "REGARD_LIBRARY",
    }


@pytest.mark.parametrize("name, value", [("COLUMNS", "80"), ("TZ", "UTC"), ("OMP_NUM_THREADS", "1")])
def test_the_environment_is_fixed(name: str, value: str) -> None:
    assert os.environ[name] == value


def test_what_older_releases_cannot_do_is_in_the_docs(pytestconfig: pytest.Config) -> None:
    conftest: Any = pytestconfig.pluginmanager.get_plugin(str(HERE / "conftest.py"))
    rows = [f"| {what} | {package} {first} |" for what, (package, first) in conftest.NEEDS.items()]
    page = (HERE.parent / "docs" / "versions.md").read_text(encoding="utf-8")
    table = page.partition("| what | needs |\n| --- | --- |\n")[2].partition("\n\n")[0]
    assert table.splitlines() == rows
