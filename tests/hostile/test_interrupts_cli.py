"""Ctrl-C in a command: exit code 130, a line that says so, no traceback, and files that are whole."""

import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends signals")

COMMAND = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from regard.cli import main
import regard.cli.bench, regard.cli.lab, regard.cli.models
print("ready")
sys.exit(main(sys.argv[1:] or {arguments!r}))
"""
COMMANDS = {
    "lab": (["lab", "translation", "--out", "out"], ("interrupted\n", "goes on from there\ninterrupted\n")),
    "bench": (["bench", "train*", "--seconds", "60", "--json", "b.json"], ("",)),
}


def pressed(start: Callable[..., Any], arguments: list[str], after: float) -> Any:
    running = start(COMMAND.format(arguments=arguments), REGARD_CACHE="cache")
    assert running.line() == "ready"
    running.kill(signal.SIGINT, after)
    begin = time.monotonic()
    found = running.wait(60)
    assert time.monotonic() - begin < 20, f"after {after:.3f} s: answered too late"
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_interrupted(name: str, start: Callable[..., Any]) -> None:
    arguments, endings = COMMANDS[name]
    after = random.Random(1).uniform(0.5, 2.0)
    found = pressed(start, arguments, after)
    assert found.code == 130, (after, found)
    assert "Traceback" not in found.err, (after, found.err)
    assert found.err.endswith(endings), (after, found.err)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_interrupted_at_many_moments(name: str, start: Callable[..., Any]) -> None:
    arguments, endings = COMMANDS[name]
    make = random.Random(2)
    for _ in range(12):
        after = make.uniform(0.0, 6.0)
        found = pressed(start, arguments, after)
        assert found.code == 130, (after, found)
        assert "Traceback" not in found.err, (after, found.err)
        assert found.err.endswith(endings), (after, found.err)
