"""A call of attend with a new shape stays short: few functions in few files are entered."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

import regard

FUNCTIONS, FILES = 50, 14


def entered(call: Callable[[], object]) -> set[tuple[str, str]]:
    """(file, name) of every function of regard that a call enters; comprehensions belong to their function."""
    names: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and "/regard/" in code.co_filename and not code.co_name.startswith("<"):
            names.add((code.co_filename, code.co_qualname))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return names


def test_a_new_shape_enters_few_functions_in_few_files() -> None:
    inputs = [torch.randn(3, 1, 2, length, 16) for length in (8, 9, 10)]
    for tensors in inputs[:2]:  # imports and caches
        regard.attend(*tensors, engine="native")
    functions = entered(lambda: regard.attend(*inputs[2], engine="native"))
    files = {file for file, _ in functions}
    assert len(functions) <= FUNCTIONS, sorted(functions)
    assert len(files) <= FILES, sorted(files)
