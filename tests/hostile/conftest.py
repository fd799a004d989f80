"""Scenarios that may crash or hang run in a process of their own with a time limit; signals are reported as such."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

LIMIT = 120.0  # seconds; a scenario that takes longer has hung


@dataclass(frozen=True)
class Outcome:
    """How a scenario ended: its exit code, negative for a signal, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def ending(self) -> str:
        """`exit 0`, `SIGSEGV`, …"""
        return f"exit {self.code}" if self.code >= 0 else signal.Signals(-self.code).name

    def ok(self) -> "Outcome":
        """Fail unless the scenario ended with exit code 0."""
        assert self.code == 0, f"the scenario ended with {self.ending}\n{self.out[-2000:]}\n{self.err[-6000:]}"
        return self


class Scenario:
    """A running Python process; `kill` sends it a signal, `wait` returns its outcome."""

    def __init__(self, source: str, folder: Path, env: Mapping[str, str]) -> None:
        text = textwrap.dedent(source)
        environment = {**os.environ, "PYTHONFAULTHANDLER": "1", "OMP_NUM_THREADS": "2", **env}
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", text],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def line(self) -> str:
        """The next line that it prints, as a sign of how far it is."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self, number: int = signal.SIGINT, after: float = 0.0) -> None:
        """Send a signal after some seconds; a process that has ended already gets none."""
        time.sleep(after)
        if self.process.poll() is None:
            os.kill(self.process.pid, number)

    def wait(self, limit: float = LIMIT) -> Outcome:
        """Wait until it ends. One that hangs prints where its threads are, and is killed."""
        try:
            out, err = self.process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            self.end(signal.SIGABRT)
            out, err = self.process.communicate()
            pytest.fail(f"the scenario did not end within {limit:.0f} s\n{out[-2000:]}\n{err[-6000:]}")
        return Outcome(self.process.returncode, out, err)

    def end(self, number: int = signal.SIGKILL) -> None:
        """End the process and all its children."""
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            return


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Scenario]]:
    """Start a scenario, given as source code, in an empty folder; keywords set its environment."""
    running: list[Scenario] = []

    def begin(source: str, **env: str) -> Scenario:
        running.append(Scenario(source, tmp_path, env))
        return running[-1]

    yield begin
    for scenario in running:
        scenario.end()


@pytest.fixture
def run(start: Callable[..., Scenario]) -> Callable[..., Outcome]:
    """Run a scenario to its end: `run(source, limit=seconds, name=value, …)`."""

    def whole(source: str, limit: float = LIMIT, **env: str) -> Outcome:
        return start(source, **env).wait(limit)

    return whole
