"""Work: a few threads compute, a few jobs wait, and more are told to come again."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from regard.map import limits
from regard.map.ask import Refused
from regard.map.stop import Stop


class Work:
    """Jobs are functions of a `Stop`; one that is stopped before it begins is never run."""

    def __init__(self, at_once: int = limits.AT_ONCE, waiting: int = limits.WAITING) -> None:
        self._threads = ThreadPoolExecutor(at_once, "regard-map")
        self._most, self._open = at_once + waiting, 0
        self._stops: set[Stop] = set()
        self._lock = threading.Lock()

    def start(self, job: Callable[[Stop], Any]) -> tuple[Future[Any], Stop]:
        """What the job will give, and what ends it."""
        with self._lock:
            if self._open >= self._most:
                raise Refused("the map is busy; ask again", 429)
            stop = Stop()
            try:
                future = self._threads.submit(self._run, job, stop)
            except RuntimeError:  # after `close`
                raise Refused("the map is closed", 503) from None
            self._open += 1
            self._stops.add(stop)
        future.add_done_callback(partial(self._done, stop))
        return future, stop

    @staticmethod
    def _run(job: Callable[[Stop], Any], stop: Stop) -> Any:
        stop.check()
        return job(stop)

    def _done(self, stop: Stop, _: Future[Any]) -> None:
        with self._lock:
            self._open -= 1
            self._stops.discard(stop)

    def close(self) -> None:
        """Drop what waits; what runs ends at its next step."""
        with self._lock:
            for stop in self._stops:
                stop.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
