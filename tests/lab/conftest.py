"""Every experiment is run once, quickly, for all tests that look at its report, with a cache of its own."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache

import pytest

from regard import lab, models
from regard.lab.report import Report


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One cache for all tests, and for all workers."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    (folder / "regard").mkdir(exist_ok=True)
    with suppress(FileExistsError):  # models stay where they are
        (folder / "regard" / "models").symlink_to(models.get("minilm").parent, target_is_directory=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(folder / "regard"))
        yield


@cache
def _run(name: str) -> Report:
    return lab.run(name, quick=True, seed=3)


@pytest.fixture
def quick() -> Callable[[str], Report]:
    """The report of an experiment, run with quick=True and seed=3."""
    return _run
