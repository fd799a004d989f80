"""Told: how far a table of heads is, on standard error or to whoever asks."""

import sys
import time
from collections.abc import Callable
from typing import Self

from regard.engine.watch import WATCH
from regard.inspection.matrix.progress import PATIENCE, PAUSE


class Told:
    """Counts the steps of a long table. A terminal sees a line that changes, a file nothing; `tell` hears
    (steps done, all steps)."""

    def __init__(self, steps: int, tell: Callable[[int, int], None] | None) -> None:
        self.steps, self.tell = steps, tell
        self.done, self.what = 0, ""

    def __enter__(self) -> Self:
        self.start, self.shown = time.monotonic(), 0.0
        self.token = WATCH.set(self.within)
        return self

    def step(self, what: str) -> None:
        """What comes next."""
        self.what = what
        self.within(0, 1)

    def finish(self) -> None:
        """A step is done."""
        self.done += 1
        if self.tell is not None:
            self.tell(self.done, self.steps)

    def within(self, done: int, total: int) -> None:
        """How much of a part of this step is done."""
        now = time.monotonic()
        if now - self.start > PATIENCE and now - self.shown > PAUSE and sys.stderr.isatty():
            self.shown = now
            line = f"regard: {self.what}, {self.done} of {self.steps} done, {done / max(1, total):4.0%} of a part"
            print(f"\r{line:<79.79}", end="", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        WATCH.reset(self.token)
        if self.shown:
            print("\r" + " " * 79 + "\r", end="", file=sys.stderr, flush=True)
