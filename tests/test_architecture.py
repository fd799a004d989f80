"""The shape of the source tree: its size, one place for each name, and words that were replaced by the field's."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "regard"

# Modules, classes and functions that were replaced by the field's words; docs/glossary.md has the words in use.
RETIRED_MODULES = {
    "absorb", "accelerating", "aligned", "altered", "asked", "atlas", "codec", "cut", "doors", "estimate",
    "explanation", "faint", "few", "found", "growing", "halves", "heard", "kept", "known", "lane", "listening",
    "narrow", "phi", "pieces", "placed", "poison", "quick", "running", "second", "sheet", "shelf", "shown", "sight",
    "sliding", "slopes", "slots", "soften", "strip", "strips", "sums", "taps", "tidy", "told", "visit", "watch",
    "weigh", "whole",
}  # fmt: skip
RETIRED_CLASSES = {
    "Altered", "Asked", "Atlas", "Door", "Draft", "Growing", "Held", "Kept", "Lane", "Looked", "Sheet", "Shelf",
    "Sight", "SlidingSlot", "Slot", "Strips", "Tidy", "Told", "Wanted", "Weighed",
}  # fmt: skip
RETIRED_FUNCTIONS = {
    "absorb", "altered", "asked", "atlas", "door", "doors", "found", "hear", "heard", "held", "lane", "lanes",
    "lanes_of", "looked_at", "poison", "poisoned", "settle", "shelf", "sight", "soften", "strip", "strips", "tap",
    "taps", "told", "wanted", "weigh", "weighed",
}  # fmt: skip


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def dotted(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path) -> Iterator[str]:
    """Modules of regard that a file imports, whether by module or by a name in it."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def classes(path: Path) -> list[str]:
    return [node.name for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef)]


def functions(path: Path) -> list[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [node.name.lstrip("_") for node in ast.walk(tree(path)) if isinstance(node, kinds)]


def single_importers() -> dict[str, str]:
    """Modules that exactly one other module imports."""
    files = {dotted(path): path for path in modules()}
    users: dict[str, set[str]] = defaultdict(set)
    for module, path in files.items():
        for target in set(imported(path)) & files.keys() - {module}:
            users[target].add(module)
    return {
        module: next(iter(by)) for module, by in users.items() if len(by) == 1 and files[module].name != "__init__.py"
    }


def repeated_classes() -> dict[str, int]:
    """Public names of classes that several files define."""
    count = Counter(
        node.name
        for path in modules()
        for node in tree(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return {name: number for name, number in count.items() if number > 1}


def length(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_a_file_is_a_concept_and_not_a_step_of_one() -> None:
    """Features may add files; the tree must not fall apart into small ones."""
    assert sum(map(length, modules())) / len(modules()) >= 160


def test_a_helper_with_one_caller_lives_with_it() -> None:
    assert len(single_importers()) / len(modules()) <= 0.2


def test_a_class_name_means_one_thing() -> None:
    assert len(repeated_classes()) <= 10


def test_no_file_is_too_long() -> None:
    assert not [path for path in modules() if length(path) > 400]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_retired_names_stay_out(path: Path) -> None:
    assert not {path.stem, *path.relative_to(SOURCE).parts[:-1]} & RETIRED_MODULES
    assert not set(classes(path)) & RETIRED_CLASSES
    assert not set(functions(path)) & RETIRED_FUNCTIONS


def test_classes_and_functions_are_seen(tmp_path: Path) -> None:
    file = tmp_path / "file.py"
    file.write_text("class Shelf:\n    class Lane: ...\n    def _told(self): ...\n")
    assert classes(file) == ["Shelf", "Lane"]
    assert functions(file) == ["told"]
