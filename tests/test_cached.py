"""A cached property is computed once and kept, and takes no lock."""

import ast
import threading
from pathlib import Path

from regard.cached import cached_property

SOURCE = Path(__file__).parents[1] / "src" / "regard"


class Kept:
    def __init__(self, begun: threading.Event, go_on: threading.Event) -> None:
        self.begun, self.go_on = begun, go_on
        self.computed = 0

    @cached_property
    def value(self) -> list[int]:
        """What is kept."""
        self.computed += 1
        self.begun.set()
        assert self.go_on.wait(60)
        return [self.computed]


def free() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


def test_it_is_computed_once() -> None:
    kept = Kept(free(), free())
    assert kept.value is kept.value
    assert kept.computed == 1
    assert vars(kept)["value"] == [1]
    assert Kept.value.__doc__ == "What is kept."


def test_one_that_is_being_computed_blocks_no_other_instance() -> None:
    begun, go_on = threading.Event(), threading.Event()
    slow = threading.Thread(target=lambda: Kept(begun, go_on).value, daemon=True)
    slow.start()
    assert begun.wait(60)
    found: list[list[int]] = []
    other = threading.Thread(target=lambda: found.append(Kept(free(), free()).value), daemon=True)
    other.start()
    other.join(30)
    go_on.set()
    slow.join(60)
    assert found == [[1]]


def test_threads_get_the_same_value() -> None:
    begun, go_on = threading.Event(), threading.Event()
    kept = Kept(begun, go_on)
    found: list[list[int]] = []
    threads = [threading.Thread(target=lambda: found.append(kept.value)) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert begun.wait(60)
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert len(found) == 2
    assert found[0] is found[1] is kept.value


def test_nothing_uses_pythons_own() -> None:
    for path in SOURCE.rglob("*.py"):
        if path.name == "cached.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "functools":
                assert all(alias.name != "cached_property" for alias in node.names), path
            assert not (isinstance(node, ast.Attribute) and ast.unparse(node) == "functools.cached_property"), path
