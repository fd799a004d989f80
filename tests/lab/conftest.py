"""Every experiment is run once, quickly, for all tests that look at its report."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from regard import lab
from regard.lab.report import Report


@cache
def _run(name: str) -> Report:
    return lab.run(name, quick=True, seed=3)


@pytest.fixture
def quick(get_model: Callable[[str], Path]) -> Callable[[str], Report]:
    """The report of an experiment, run with quick=True and seed=3."""

    def run(name: str) -> Report:
        if name in ("context", "language"):
            get_model("minilm")
        return _run(name)

    return run
