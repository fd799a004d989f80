"""`regard map` ends quietly with exit code 0 whenever Ctrl-C comes, from the moment that the address is known."""

import random
import signal
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the map needs regard[map]")

SOURCE = """
    import sys
    from regard.cli import main
    sys.exit(main(["map", "--demo", "64", "--no-browser"]))
"""


def interrupted(start: Callable[..., Any], folder: Any, after: float, number: int = signal.SIGINT) -> Any:
    scenario = start(SOURCE, REGARD_CACHE=str(folder), PYTHONDEVMODE="1", PYTHONWARNINGS="ignore")
    assert scenario.line().startswith("the map is at http://127.0.0.1:")
    scenario.kill(number, after)
    return scenario.wait(60)


@pytest.mark.parametrize("after", [0.0, 0.002, 0.02, 0.1, 0.5])
def test_ctrl_c_ends_it_quietly(start: Callable[..., Any], tmp_path: Any, after: float) -> None:
    found = interrupted(start, tmp_path, after).ok()
    assert found.err == ""


@pytest.mark.slow
@pytest.mark.parametrize("trial", range(50))
def test_ctrl_c_at_any_moment(start: Callable[..., Any], tmp_path: Any, trial: int) -> None:
    assert interrupted(start, tmp_path, random.Random(trial).random()).ok().err == ""


def test_a_second_ctrl_c_changes_nothing(start: Callable[..., Any], tmp_path: Any) -> None:
    scenario = start(SOURCE, REGARD_CACHE=str(tmp_path))
    scenario.line()
    scenario.kill()
    scenario.kill(after=0.001)
    assert scenario.wait(60).ok().err == ""


@pytest.mark.parametrize("after", [0.0, 0.5])
def test_sigterm_ends_the_process_as_it_should(start: Callable[..., Any], tmp_path: Any, after: float) -> None:
    found = interrupted(start, tmp_path, after, signal.SIGTERM)
    assert (found.ending, found.err) == ("SIGTERM", "")
