"""Every test gives the same answer on every run: a fixed environment, fixed random numbers, fixed generated cases.

`make fuzz` loads the profile "fuzz" of hypothesis instead, which draws other cases from the seed that it prints.
"""

import atexit
import os
import random
import re
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

WORKER = "PYTEST_XDIST_WORKER" in os.environ  # it takes over the environment that the first process has prepared
MODELS = Path(__file__).parents[1] / ".models"  # downloaded once for all runs; `make distclean` removes them
FIXED = {
    "KERAS_BACKEND": "torch",  # read once, when Keras is first imported
    "MPLBACKEND": "agg",
    "HF_HUB_OFFLINE": "1",
    "COLUMNS": "80",
    "LINES": "24",
    "TERM": "xterm",
    "LC_ALL": "C.UTF-8",
    "PYTHONUTF8": "1",
    "TZ": "UTC",
    # Processes share the cores; within one, a fixed number of threads also fixes the order of sums.
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "no_proxy": "127.0.0.1,localhost",
    "NO_PROXY": "127.0.0.1,localhost",
}
KERNELS = ("REGARD_ISA", "REGARD_LIBRARY")
UNSET = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLORTERM", "PYTHONWARNINGS", "PYTHONOPTIMIZE")


def _fix_environment() -> None:
    """What a user has set does not reach the tests, but for what asks for other kernels."""
    for name in [*UNSET, *(name for name in os.environ if name.startswith("REGARD_") and name not in KERNELS)]:
        os.environ.pop(name, None)
    cache = Path(tempfile.mkdtemp(prefix="regard-tests-"))
    atexit.register(shutil.rmtree, cache, ignore_errors=True)
    MODELS.mkdir(exist_ok=True)
    (cache / "models").symlink_to(MODELS, target_is_directory=True)
    os.environ.update(FIXED, REGARD_CACHE=str(cache))
    if hasattr(time, "tzset"):
        time.tzset()


if not WORKER:
    _fix_environment()

import hypothesis
import numpy
import pytest
import torch
from hypothesis import HealthCheck
from hypothesis.internal.conjecture import providers

torch.set_num_threads(1)

# What older releases cannot do: the package, and its first release that can. A test that needs it is marked
# @pytest.mark.needs(...) and skipped before that release. docs/versions.md has the same table.
NEEDS = {
    "torch.autograd.grad by a dict of inputs": ("torch", "2.13"),
    "Ctrl-C while torch.compile traces": ("torch", "2.13"),
    "numpy.asarray(A, copy=False)": ("numpy", "2.0"),
}


def _release(version: str) -> tuple[int, ...]:
    """The numbers at the start of a version."""
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])[:2]))


# Where Hypothesis likes to take numbers from the source code of all modules that happen to be loaded, it finds none.
providers._get_local_constants = lambda: providers._local_constants


class _Torch:
    """torch's generator as Hypothesis wants it: it is seeded before each case, and restored after it."""

    seed = staticmethod(torch.manual_seed)
    getstate = staticmethod(torch.get_rng_state)
    setstate = staticmethod(torch.set_rng_state)


TORCH = _Torch()
hypothesis.register_random(TORCH)

# No deadline and no database: neither a slow machine nor an earlier run changes what a test says.
SHARED: dict[str, Any] = {"deadline": None, "database": None, "print_blob": True}
hypothesis.settings.register_profile("fixed", derandomize=True, suppress_health_check=[HealthCheck.too_slow], **SHARED)
hypothesis.settings.register_profile("fuzz", derandomize=False, suppress_health_check=list(HealthCheck), **SHARED)
hypothesis.settings.load_profile("fixed")


def _seed(name: str) -> None:
    number = zlib.crc32(name.encode())
    random.seed(number)
    numpy.random.seed(number)
    torch.manual_seed(number)


@contextmanager
def _seeded(name: str) -> Generator[None]:
    """Random numbers that depend on the name alone; those of the surroundings go on as if nothing had happened."""
    before = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
    _seed(name)
    try:
        yield
    finally:
        random.setstate(before[0])
        numpy.random.set_state(before[1])
        torch.set_rng_state(before[2])


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Random numbers that a test file draws when it is imported."""
    _seed(collector.nodeid)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what the installed releases cannot do, and tests marked `cuda` where there is no GPU."""
    for item in items:
        for mark in item.iter_markers("needs"):
            package, first = NEEDS[mark.args[0]]
            if _release(metadata.version(package)) < _release(first):
                item.add_marker(pytest.mark.skip(reason=f"{mark.args[0]}: needs {package} {first} or newer"))
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("cuda") is not None:
            item.add_marker(pytest.mark.skip(reason="needs a GPU, and there is none here"))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Random numbers of a fixture, whichever test is the first to ask for it."""
    with _seeded(f"{request.node.nodeid} {fixturedef.argname} {getattr(request, 'param_index', 0)}"):
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Random numbers of a test, whatever ran before it."""
    _seed(item.nodeid)


@pytest.fixture(scope="session")
def get_model() -> Callable[[str], Path]:
    """`get_model("minilm")`: the folder of a real model, or the test is skipped where it cannot be downloaded."""
    from regard import models

    home = os.environ["REGARD_CACHE"]

    @cache
    def found(name: str) -> Path | OSError:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("REGARD_CACHE", home)
            try:
                return models.get(name)
            except OSError as error:
                return error

    def get(name: str) -> Path:
        folder = found(name)
        if isinstance(folder, Path):
            return folder
        if "CI" in os.environ:
            raise folder
        pytest.skip(f"needs the model {name}: {folder}")

    return get
