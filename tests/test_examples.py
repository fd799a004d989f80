"""The examples run, and do what they say."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, *options: str) -> list[str]:
    call = [sys.executable, str(EXAMPLES / name), *options]
    found = subprocess.run(call, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


def test_additive_recall_learns() -> None:
    lines = run("additive_recall.py", "--tokens", "512", "--queries", "128", "--steps", "80")
    assert "100% right" in lines[9]
    assert "s per step" in lines[10]


def test_survey_finds_what_was_planted() -> None:
    lines = run("survey_long.py", "--tokens", "4096", "--grid", "64")
    assert "1 × 1 × 4,096 × 4,096" in lines[0]
    assert "most by key 1365 (planted: 1365)" in lines[5]
    assert "at key 1365" in lines[6]
    assert "cell 21, the planted key is in 21" in lines[7]
