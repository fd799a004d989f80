"""Requests of the page as jobs: a checked body, a flag that stops the work, and a few threads that compute."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

RUNNING, WAITING = 4, 16  # jobs that run and that wait; more get status 429


class RequestError(Exception):
    """A request that cannot be answered; the text says why, `status` is that of HTTP."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


class RequestBody:
    """The members of a JSON object by name and kind: every number is in range, or a RequestError is raised."""

    def __init__(self, body: object) -> None:
        if not isinstance(body, dict):
            raise RequestError(f"the body must be a JSON object, got {_kind(body)}")
        self._body: dict[str, Any] = body

    def number(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """A whole number from `low` to `high`."""
        value = self._body.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise RequestError(f"{name} must be a whole number, got {_kind(value)}")
        if not low <= value <= high:
            raise RequestError(f"{name} must be from {low} to {high}, got {_short(value)}")
        return value

    def word(self, name: str, allowed: tuple[str, ...]) -> str:
        """One of some words."""
        value = self._body.get(name)
        if not isinstance(value, str) or value not in allowed:
            raise RequestError(f"{name} must be one of {', '.join(allowed)}")
        return value

    def text(self, name: str, longest: int) -> str:
        """A text that is not empty and not too long."""
        value = self._body.get(name)
        if not isinstance(value, str) or not 1 <= len(value) <= longest:
            raise RequestError(f"{name} must be a text of 1 to {longest} characters")
        return value

    def place(self, name: str) -> tuple[int, int, int] | None:
        """Three whole numbers, none below 0; None if there is no such member."""
        value = self._body.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != 3 or not all(type(part) is int and part >= 0 for part in value):
            raise RequestError(f"{name} must be [layer, batch, head], three whole numbers")
        layer, batch, head = value
        return layer, batch, head

    def triples(self, name: str, most: int) -> list[tuple[int, int, int]]:
        """A list of three whole numbers each."""
        value = self._body.get(name)
        if not isinstance(value, list) or len(value) > most:
            raise RequestError(f"{name} must be a list of at most {most}, each [z, y, x]")
        for part in value:
            if not isinstance(part, list) or len(part) != 3 or not all(type(number) is int for number in part):
                raise RequestError(f"{name} must hold [z, y, x], three whole numbers each")
        return [tuple(part) for part in value]


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), "a number that is not whole" if isinstance(value, float) else "something else")


def _short(value: int) -> str:
    return str(value) if abs(value) < 10**20 else "a number far outside"


class Stopped(Exception):
    """The job was stopped before it was done."""


class Stop:
    """A flag that is set from one thread and checked between the steps of another."""

    def __init__(self) -> None:
        self._set = threading.Event()

    def set(self) -> None:
        """Stop the job at its next step."""
        self._set.set()

    def check(self) -> None:
        """Raise `Stopped` if the flag is set."""
        if self._set.is_set():
            raise Stopped


class WorkerPool:
    """Threads for jobs, which are functions of a `Stop`; a job that is stopped before it begins never runs."""

    def __init__(self, running: int = RUNNING, waiting: int = WAITING) -> None:
        self._threads = ThreadPoolExecutor(running, "regard-map")
        self._most, self._open = running + waiting, 0
        self._stops: set[Stop] = set()
        self._lock = threading.Lock()

    def start(self, job: Callable[[Stop], Any]) -> tuple[Future[Any], Stop]:
        """The future result of the job, and the flag that stops it."""
        with self._lock:
            if self._open >= self._most:
                raise RequestError("the map is busy; ask again", 429)
            stop = Stop()
            try:
                future = self._threads.submit(self._run, job, stop)
            except RuntimeError:  # after `close`
                raise RequestError("the map is closed", 503) from None
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
        """Drop the jobs that wait; those that run stop at their next step."""
        with self._lock:
            for stop in self._stops:
                stop.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
