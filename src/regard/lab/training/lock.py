"""One process at a time: who wants the same training waits, and then finds it done."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """The folder for this process alone; a process that is killed holds nothing. On Windows nobody waits."""
    if os.name != "posix":
        yield
        return
    import fcntl

    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)
