"""Steps of a long command on standard error."""

import sys
import time

PATIENCE = 2.0  # seconds without a word


class Progress:
    """Steps on standard error, once the run has taken longer than anyone waits without a word."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.shown = self.start
        self.width = 0

    def __enter__(self) -> "Progress":
        return self

    def __call__(self, what: str, done: int, total: int) -> None:
        """Told before each step; a terminal sees every step, a file one line in a while."""
        now = time.monotonic()
        live = sys.stderr.isatty()
        if now - self.start < PATIENCE or (not live and now - self.shown < PATIENCE):
            return
        self.shown = now
        line = f"{what} ({done + 1} of {total})"
        self.width = max(self.width, len(line))
        print(f"\r{line:<{self.width}}" if live else line, end="" if live else "\n", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Make room for other lines."""
        if self.width and sys.stderr.isatty():
            print("\r" + " " * self.width + "\r", end="", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        self.clear()
