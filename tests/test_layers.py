"""Imports point one way: a file imports from its own folder and from folders to its left."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "regard"

LAYERS = (
    ("spec",),
    ("engine",),
    ("nn",),
    ("inspection",),
    ("pages",),
    ("plot",),
    ("map",),
    ("hf", "models"),
    ("lab", "bench"),
    ("playground",),
    ("cli",),
)
LEAVES = {"arrays", "cached", "checks", "progress"}  # all may import them; they import no other part
RANK = {folder: rank for rank, layer in enumerate(LAYERS) for folder in layer}

# `.show()`, `.save()`, `.figure()` and what a notebook calls may import `regard.plot` inside the method. These
# (file, method) do, and no others.
CONVENIENT = {"figure", "show", "save", "_repr_html_"}
CONVENIENCES = {
    *(("spec/masks/base.py", method) for method in ("show", "figure")),
    *(("inspection/matrix/difference.py", method) for method in CONVENIENT),
    *(("inspection/matrix/handle.py", method) for method in CONVENIENT),
    *(("inspection/capture/result.py", method) for method in CONVENIENT),
}


class Import(NamedTuple):
    """One imported module and where the statement stands."""

    line: int
    target: str
    method: str | None


class _Collector(ast.NodeVisitor):
    """Collects every import of a part of regard, whatever its form and wherever it stands."""

    def __init__(self, package: list[str]) -> None:
        self.package = package
        self.scope: list[ast.AST] = []
        self.found: list[Import] = []

    def visit(self, node: ast.AST) -> None:
        opens_scope = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if opens_scope:
            self.scope.append(node)
        super().visit(node)
        if opens_scope:
            self.scope.pop()

    def add(self, node: ast.stmt | ast.expr, target: str) -> None:
        if target.split(".")[0] == "regard":
            self.found.append(Import(node.lineno, target, self._method()))

    def visit_Import(self, node: ast.Import) -> None:
        for name in node.names:
            self.add(node, name.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        parent = self.package[: len(self.package) - node.level + 1] if node.level else []
        base = ".".join([*parent, *([node.module] if node.module else [])])
        for name in node.names:
            self.add(node, f"{base}.{name.name}")

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if function in {"import_module", "__import__"} and node.args:
            self.add(node, _leading_text(node.args[0]))
        self.generic_visit(node)

    def _method(self) -> str | None:
        match self.scope:
            case [*_, ast.ClassDef(), ast.FunctionDef(name=name)]:
                return name
        return None


def _leading_text(node: ast.expr) -> str:
    """The constant text at the start of a string or f-string."""
    match node:
        case ast.Constant(value=str(text)) | ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            return text
    return ""


def place_of_file(file: str) -> str:
    """The folder of a file below src/regard; a file at the top counts as its own place, the package root as "root"."""
    top = file.split("/")[0].removesuffix(".py")
    return "root" if top in {"__init__", "__main__"} else top


def place_of_module(module: str) -> str:
    """The folder a module name leads to; `regard` itself and the names it exports are the root."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (parts[1] in RANK or parts[1] in {*LEAVES, "testing"}) else "root"


def may_import(source: str, target: str) -> bool:
    """Whether a file of one place may import from another."""
    if target in LEAVES:
        return True
    if source in LEAVES:
        return False
    if target == "testing":
        return source in {"testing", "bench"}
    if source == "root":
        return True
    if source == "testing":
        return target in {"spec", "engine"}
    if target == "root":
        return source == "cli"
    return source == target or RANK[target] < RANK[source]


def imports(file: str, text: str) -> list[Import]:
    """Every import of a part of regard in the text of a file below src/regard."""
    collector = _Collector(["regard", *file.split("/")[:-1]])
    collector.visit(ast.parse(text, file))
    return collector.found


def is_convenience(item: Import) -> bool:
    """Whether an import is `regard.plot`, loaded inside a method that shows, saves or draws in a notebook."""
    return place_of_module(item.target) == "plot" and item.method in CONVENIENT


def wrong_imports(file: str, text: str) -> list[str]:
    """Imports that point right, as "file:line imports target"; conveniences are counted elsewhere."""
    source = place_of_file(file)
    return [
        f"{file}:{item.line} imports {item.target}"
        for item in imports(file, text)
        if not may_import(source, place_of_module(item.target)) and not is_convenience(item)
    ]


def sources() -> Iterator[tuple[str, str]]:
    """(path below src/regard, text) of every Python file."""
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), path.read_text(encoding="utf-8")


def test_every_file_has_a_place() -> None:
    known = {*RANK, *LEAVES, "root", "testing"}
    assert [file for file, _ in sources() if place_of_file(file) not in known] == []


def test_imports_point_left() -> None:
    known = {*RANK, *LEAVES, "root", "testing"}
    wrong = [line for file, text in sources() if place_of_file(file) in known for line in wrong_imports(file, text)]
    assert wrong == []


def test_conveniences_are_exactly_those_listed() -> None:
    found = {
        (file, item.method)
        for file, text in sources()
        for item in imports(file, text)
        if is_convenience(item) and not may_import(place_of_file(file), "plot")
    }
    assert found == CONVENIENCES


@pytest.mark.parametrize(
    "file, text",
    [
        ("spec/masks/base.py", "import regard"),
        ("spec/masks/base.py", "from regard import masks"),
        ("spec/masks/base.py", "from regard import engine"),
        ("spec/masks/base.py", "import regard.engine.tiled as tiled"),
        ("spec/masks/base.py", "from regard.plot.terminal import heatmap"),
        ("spec/masks/base.py", "from ... import engine"),
        ("spec/masks/base.py", "from ...engine.tiled import tiled"),
        ("spec/masks/base.py", "if TYPE_CHECKING:\n    from regard.engine import Result"),
        ("spec/masks/base.py", "def show():\n    from regard.plot import terminal"),
        ("spec/masks/base.py", "class Mask:\n    def draw(self):\n        from regard.plot import terminal"),
        ("spec/masks/base.py", "class Mask:\n    def show(self):\n        from regard.lab import rows"),
        ("spec/masks/base.py", "importlib.import_module('regard.engine')"),
        ("engine/tiled.py", "import_module(f'regard.nn.{name}')"),
        ("engine/tiled.py", "from regard.testing import cases"),
        ("hf/register.py", "from regard.models import load"),
        ("models/load.py", "from regard.lab import rows"),
        ("lab/rows.py", "from regard.testing import cases"),
        ("lab/rows.py", "from regard.cli import main"),
        ("checks.py", "from regard.spec import Score"),
        ("progress.py", "from regard.engine import attend"),
        ("cached.py", "from regard.spec import Score"),
        ("testing.py", "from regard.nn import Block"),
        ("__init__.py", "from regard.testing import cases"),
    ],
)
def test_a_wrong_import_is_caught(file: str, text: str) -> None:
    assert len(wrong_imports(file, text)) == 1


@pytest.mark.parametrize(
    "file, text",
    [
        ("spec/masks/base.py", "import torch\nfrom regardless import engine\nfrom regard.checks import wanted"),
        (
            "spec/masks/__init__.py",
            "from .base import Mask\nfrom ..scores import Score\nfrom regard.spec import biases",
        ),
        ("spec/masks/base.py", "class Mask:\n    def show(self):\n        from regard.plot import terminal"),
        ("engine/tiled.py", "from regard import checks, spec\nimport regard.spec.masks"),
        ("plot/terminal.py", "from regard.inspection.records import Map\nfrom regard.nn import Block"),
        ("bench/speed.py", "from regard.testing import cases\nfrom regard.engine import attend"),
        ("testing.py", "from regard.spec import masks\nfrom regard.engine import attend"),
        ("engine/tiled.py", "from regard.progress import report"),
        ("cli/main.py", "import regard\nimport importlib\nimportlib.import_module(f'regard.cli.{name}')"),
        ("__init__.py", "from regard.engine import attend\nimport importlib\nimportlib.import_module('regard.lab')"),
        ("__main__.py", "from regard.cli import main"),
    ],
)
def test_a_right_import_passes(file: str, text: str) -> None:
    assert wrong_imports(file, text) == []
