"""The notebooks of the course: made from their pages, without outputs, and every cell of them runs."""

import ast
import contextlib
import io
import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from regard.lab.exercises import EXERCISES, exercise

COURSE = Path(__file__).parent.parent / "examples" / "course"
PAGES = sorted((COURSE / "pages").glob("*.md"))
NAMES = [page.stem for page in PAGES]


def cells(name: str) -> list[dict[str, Any]]:
    notebook = json.loads((COURSE / f"{name}.ipynb").read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    found: list[dict[str, Any]] = notebook["cells"]
    return found


def code(cell: dict[str, Any]) -> str:
    return "".join(line for line in cell["source"] if not line.startswith("%"))


def displayed(source: str, names: dict[str, Any]) -> str:
    """Run a cell as a notebook does: what it prints, and what its last line shows by itself."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:
            assert isinstance(last, ast.Expr)
            _show(eval(compile(ast.Expression(last.value), "cell", "eval"), names))
    return stream.getvalue()


def _show(value: object) -> None:
    if isinstance(value, Figure):
        value.savefig(io.BytesIO(), format="png")
        print("a figure")
        return
    for way in ("_repr_html_", "_repr_markdown_"):
        if hasattr(value, way):
            print(getattr(value, way)())
            return
    if value is not None:
        print(value)


def checked(text: str, number: int) -> list[str]:
    """The verdicts of a check cell, one for each part."""
    lines = text.rstrip().split("\n")
    assert len(lines) == len(exercise(number).parts)
    return lines


def test_notebooks_are_those_of_the_pages() -> None:
    make = runpy.run_path(str(COURSE / "make.py"))
    assert [path.stem for path in sorted(COURSE.glob("*.ipynb"))] == NAMES
    for page in PAGES:
        made = make["notebook"](page.read_text(encoding="utf-8"))
        written = (COURSE / f"{page.stem}.ipynb").read_text(encoding="utf-8")
        assert made == written, "run python examples/course/make.py"


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_are_clean(name: str) -> None:
    found = cells(name)
    assert len({cell["id"] for cell in found}) == len(found)
    assert found[0]["source"][0].startswith(f"# {int(name[:2])}. ")
    first = next(cell for cell in found if cell["cell_type"] == "code")
    assert first["source"][0] == "%matplotlib inline\n"  # or figures would show as text
    for cell in found:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


def test_every_exercise_is_in_one_notebook() -> None:
    numbers = [cell["metadata"]["exercise"] for name in NAMES for cell in cells(name) if "exercise" in cell["metadata"]]
    assert sorted(numbers) == list(EXERCISES)


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_run(name: str, get_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """From top to bottom, every check twice: with the blanks, and with the right answer in their place."""
    monkeypatch.setenv("REGARD_CACHE", str(get_model("minilm").parents[1]))
    names: dict[str, Any] = {}
    number = 0
    for cell in cells(name):
        if cell["cell_type"] != "code":
            continue
        text = displayed(code(cell), names)
        if "exercise" in cell["metadata"]:
            number = cell["metadata"]["exercise"]
            assert names["answer"] == dict.fromkeys(exercise(number).answer)
        elif "check(exercise(" in code(cell):
            assert all("still open" in line for line in checked(text, number))
            names["answer"] = exercise(number).answer
            assert all(line.startswith("✓ ") for line in checked(displayed(code(cell), names), number))
        elif "hint(exercise(" in code(cell):
            assert text == f"which part? {', '.join(exercise(number).parts)}\n"
            part = next(iter(exercise(number).parts))
            assert displayed(code(cell).replace('""', repr(part)), names).startswith(f"{part}: ")
        else:
            assert text or code(cell).lstrip().startswith("import")
    assert number


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_nbconvert_runs_them_with_pictures(
    name: str, tmp_path: Path, get_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a kernel of their own, by the tool that readers use."""
    pytest.importorskip("nbconvert", reason="needs nbconvert and ipykernel, of the group dev")
    monkeypatch.setenv("REGARD_CACHE", str(get_model("minilm").parents[1]))
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--output-dir", str(tmp_path)]
    done = subprocess.run([*command, str(COURSE / f"{name}.ipynb")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    run = json.loads((tmp_path / f"{name}.ipynb").read_text(encoding="utf-8"))
    outputs = [output for cell in run["cells"] for output in cell.get("outputs", ())]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    figures = sum(
        "draw(" in code(cell) or ".figure(" in code(cell) for cell in cells(name) if cell["cell_type"] == "code"
    )
    assert len(pictures) == figures > 0
    assert not any("▀" in "".join(output.get("text", ())) for output in outputs), "block art belongs in a terminal"


@pytest.mark.parametrize("name", NAMES)
def test_a_real_model_and_a_prediction_are_in_every_notebook(name: str) -> None:
    text = (COURSE / "pages" / f"{name}.md").read_text(encoding="utf-8")
    assert "MiniLM" in text
    assert text.count("**Predict") >= 1
    assert text.count("**Explain.**") >= 1
    assert ".show()" not in text


@pytest.mark.parametrize("name", NAMES)
def test_worked_answers_are_folded_away(name: str) -> None:
    folded = ["".join(cell["source"]) for cell in cells(name) if "".join(cell["source"]).startswith("<details>")]
    assert len(folded) == sum("exercise" in cell["metadata"] for cell in cells(name))
    assert all("The answer:" in text and text.endswith("</details>") for text in folded)
