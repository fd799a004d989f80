"""Progress of many runs of a model on standard error, once it has taken longer than anyone waits without a word."""

import sys
import time
from typing import Self

from regard.inspection.matrix.progress import PATIENCE, PAUSE


class Progress:
    """Counts runs; a terminal sees a line that changes, a file nothing."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0

    def __enter__(self) -> Self:
        self.start, self.shown = time.monotonic(), 0.0
        return self

    def step(self) -> None:
        """Told after each run."""
        self.done += 1
        now = time.monotonic()
        if now - self.start > PATIENCE and now - self.shown > PAUSE and sys.stderr.isatty():
            self.shown = now
            left = (now - self.start) * (self.total / self.done - 1.0)
            text = f"regard: {self.done:,} of {self.total:,} runs, {left:,.0f} s left"
            print(f"\r{text:<50}", end="", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self.shown:
            print("\r" + " " * 50 + "\r", end="", file=sys.stderr, flush=True)
