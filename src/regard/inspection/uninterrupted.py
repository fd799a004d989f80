"""uninterrupted: a few lines that Ctrl-C does not cut in two."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def uninterrupted() -> Iterator[None]:
    """A Ctrl-C in the block is raised at its end. For changes of shared state that must be made whole or not at all.

    A handler that somebody else installed stays, and threads other than the main one are never interrupted.
    """
    mine = threading.current_thread() is threading.main_thread()
    if not mine or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    heard = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal heard
        heard = True

    try:
        signal.signal(signal.SIGINT, note)
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if heard:
            raise KeyboardInterrupt
