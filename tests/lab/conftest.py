"""Every experiment is run once, quickly, for all tests that look at its report."""

from collections.abc import Callable
from functools import cache

import pytest

from regard import lab
from regard.lab.report import Report


@cache
def _run(name: str) -> Report:
    return lab.run(name, quick=True, seed=3)


@pytest.fixture
def quick() -> Callable[[str], Report]:
    """The report of an experiment, run with quick=True and seed=3."""
    return _run
