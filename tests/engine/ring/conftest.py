"""Eight processes that all tests of the ring share."""

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
WORLD = 8


class Workers:
    """Has processes do something, and tells what they answered."""

    def __init__(self) -> None:
        folders = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        environment = {**os.environ, "PYTHONPATH": folders, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.engine.ring.worker", str(WORLD)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def do(self, name: str, seconds: float = 120.0, **arguments: Any) -> list[dict[str, Any]]:
        """The answers of all processes."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"do": name, **arguments}), file=self._process.stdin, flush=True)
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            assert selector.select(seconds), f"no answer to {name} within {seconds} s"
        found: list[dict[str, Any]] = json.loads(self._process.stdout.readline())
        return found

    def values(self, name: str, **arguments: Any) -> list[Any]:
        """What all returned, if none raised."""
        found = self.do(name, **arguments)
        for rank, answer in enumerate(found):
            assert "value" in answer, f"process {rank}: {answer.get('trace', answer)}"
        return [answer["value"] for answer in found]

    def end(self) -> None:
        """All leave when there are no more commands."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    found = Workers()
    yield found
    found.end()
