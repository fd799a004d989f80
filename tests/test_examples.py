"""The examples run and do what they say, and so does the code of two pages."""

import ast
import contextlib
import importlib
import io
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES, DOCS = ROOT / "examples", ROOT / "docs"


def run(name: str, *options: str) -> list[str]:
    call = [sys.executable, str(EXAMPLES / name), *options]
    found = subprocess.run(call, capture_output=True, text=True, timeout=900, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.py")), ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_every_name_that_an_example_imports_exists(path: Path) -> None:
    """Also for those that only the slow tests run."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "regard":
            module = importlib.import_module(node.module)
            for name in node.names:
                if not hasattr(module, name.name):
                    importlib.import_module(f"{node.module}.{name.name}")


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


def test_an_encoder_learns_to_reverse() -> None:
    options = ("--longest", "6", "--layers", "2", "--steps", "200", "--text", "regard")
    lines = run("train_encoder.py", *options)
    shares = [float(line.split("loss")[1].split()[1].rstrip("%")) for line in lines[:11]]
    assert shares[0] < 20
    assert shares[-1] > 90
    given, before, after = (line.split()[1] for line in lines[12:15])
    assert given == "REGARD"
    assert before != "DRAGER"
    assert after == "DRAGER"
    titles = next(line for line in lines if line.startswith("before:")).split("on the letter needed")
    untrained, trained = (float(title.split(":")[1].strip().rstrip("%")) for title in titles[:2])
    assert trained > untrained + 30


def test_an_encoder_says_what_it_reads() -> None:
    call = [sys.executable, str(EXAMPLES / "train_encoder.py"), "--text", "42"]
    found = subprocess.run(call, capture_output=True, text=True, timeout=900, check=False)
    assert found.returncode == 2
    assert "--text takes letters A to Z and blanks, got '42'" in found.stderr


def test_a_transformer_translates_what_it_never_saw() -> None:
    lines = run("translate.py", "--steps", "120", "--number", "21001")
    assert lines[0] == "before: 0% of 500 numbers right"
    after = next(line for line in lines if line.startswith("after:"))
    assert int(after.split()[1].rstrip("%")) > 30
    expected, produced = (
        [line for line in lines if line.startswith(f"  {word}  ")] for word in ("expected", "produced")
    )
    assert len(expected) == len(produced) == 4
    assert lines[-8].strip() == "21,001: the last layer's cross-attention, heads averaged"
    assert [line.split()[0] for line in lines[-6:-1]] == ["ein", "und", "zwanzig", "tausend", "eins"]


@pytest.mark.parametrize(
    ("number", "english", "german"),
    [
        (1, "one", "eins"),
        (16, "sixteen", "sechzehn"),
        (21, "twenty one", "einundzwanzig"),
        (101, "one hundred and one", "einhunderteins"),
        (1_000, "one thousand", "eintausend"),
        (101_030, "one hundred and one thousand and thirty", "einhunderteintausenddreißig"),
        (
            47_373,
            "forty seven thousand three hundred and seventy three",
            "siebenundvierzigtausenddreihundertdreiundsiebzig",
        ),
    ],
)
def test_numbers_in_words(number: int, english: str, german: str) -> None:
    names = runpy.run_path(str(EXAMPLES / "translate.py"))
    assert " ".join(names["english"](number)) == english
    assert "".join(names["german"](number)) == german


def test_scores_are_swapped() -> None:
    lines = run("swap_scores.py", "--steps", "30", "--length", "8")
    rows = [line.rsplit(maxsplit=4) for line in lines[-6:]]
    names = ["scaled dot", "cosine", "general", "additive", "concat-MLP", "relative"]
    assert [row[0] for row in rows] == names
    plain = int(rows[0][1])
    # two layers, four heads of width 16: W; W₁, W₂ (32 × 16) and v; the same and b; vectors of 17 offsets
    more = [0, 0, 4 * 16 * 16, 2 * 32 * 16 + 4 * 32, 2 * 32 * 16 + 32 + 4 * 32, 17 * 16]
    assert [int(row[1]) - plain for row in rows] == [2 * count for count in more]
    for row in rows:
        assert float(row[2]) < 2.9  # log 26 is 3.26
        assert float(row[3]) > 20


BLOCK = re.compile(r"```python\n(?P<code>.*?)```(?:\n\n```text\n(?P<printed>.*?)```)?", re.DOTALL)


def printed(code: str, names: dict[str, Any]) -> str:
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        exec(code, names)
    return "".join(line.rstrip() + "\n" for line in stream.getvalue().splitlines())


def check(page: str, least: int) -> None:
    """The code of a page runs in order and prints what stands below it."""
    names: dict[str, Any] = {}
    blocks = list(BLOCK.finditer(page))
    assert len(blocks) >= least
    for block in blocks:
        assert printed(block["code"], names) == (block["printed"] or ""), block["code"]


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_the_page_of_layers_tells_the_truth() -> None:
    check((DOCS / "nn.md").read_text(encoding="utf-8"), 20)


def test_the_page_of_interoperability_tells_the_truth() -> None:
    check((DOCS / "interoperability.md").read_text(encoding="utf-8"), 3)


def test_the_page_of_models_tells_the_truth() -> None:
    page = (DOCS / "models.md").read_text(encoding="utf-8")
    check(page[page.index("\n## Running\n") : page.index("\n## The folder\n")], 5)
