"""Progress of a long pass on standard error, once it has taken longer than anyone waits without a word."""

import sys
import time
from typing import Self

from regard.engine.watch import WATCH

PATIENCE = 2.0  # seconds without a word
PAUSE = 0.5


class Progress:
    """Told how much is done, of how much; a terminal sees a line that changes, a file nothing."""

    def __enter__(self) -> Self:
        self.start, self.shown = time.monotonic(), 0.0
        self.token = WATCH.set(self)
        return self

    def __call__(self, done: int, total: int) -> None:
        """Told after each step."""
        now = time.monotonic()
        if now - self.start > PATIENCE and now - self.shown > PAUSE and sys.stderr.isatty():
            self.shown = now
            print(f"\rregard: {done / max(1, total):4.0%} of this pass", end="", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        WATCH.reset(self.token)
        if self.shown:
            print("\r" + " " * 40 + "\r", end="", file=sys.stderr, flush=True)
