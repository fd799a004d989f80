"""Ctrl-C between two steps: the one that runs is finished, so that what is saved is whole."""

import signal
import threading
from types import FrameType, TracebackType


class Interrupt:
    """In its block, the first Ctrl-C is only noted in `asked`; a second one interrupts at once.

    A handler that somebody else installed stays, and other threads hear nothing, as always.
    """

    def __init__(self) -> None:
        self.asked = False
        self._taken = False

    def __enter__(self) -> "Interrupt":
        mine = threading.current_thread() is threading.main_thread()
        if mine and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._heard)
            self._taken = True
        return self

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            signal.default_int_handler(number, frame)
        self.asked = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._taken:
            signal.signal(signal.SIGINT, signal.default_int_handler)
