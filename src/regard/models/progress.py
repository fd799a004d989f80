"""Progress: how long work on a model tells what it does."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many bytes are done, and of how many."""


def silent(what: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


def megabytes(size: int) -> str:
    """A size as people compare it: `83.5 MB`."""
    return f"{size / 1e6:.1f} MB"
