"""Stop: a flag that ends work nobody waits for any more."""

import threading


class Stopped(Exception):
    """The work was ended before it was done."""


class Stop:
    """Set from one thread, looked at between the steps of another."""

    def __init__(self) -> None:
        self._set = threading.Event()

    def set(self) -> None:
        """End the work at its next step."""
        self._set.set()

    def check(self) -> None:
        """Raise if the work is to end."""
        if self._set.is_set():
            raise Stopped
