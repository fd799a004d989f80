"""Comm: the page's questions as messages, as a notebook carries them: {id, name, body} and {cancel: id}."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from regard.map.ask import Refused
from regard.map.stop import Stop, Stopped
from regard.map.viewer import Viewer
from regard.map.work import Work

Send = Callable[[dict[str, Any], list[bytes]], None]


class Comm:
    """Answers go to `send(message, buffers)` from the threads that compute, so that the notebook stays free."""

    def __init__(self, viewer: Viewer, send: Send) -> None:
        self._viewer, self._send, self._work = viewer, send, Work()
        self._open: dict[int, tuple[Future[Any], Stop]] = {}
        self._lock = threading.Lock()

    def hear(self, message: object) -> None:
        """One message of the page; what is none is let go."""
        if not isinstance(message, dict):
            return
        number = message.get("cancel", message.get("id"))
        if type(number) is not int:
            return
        if "cancel" in message:
            self._cancel(number)
        else:
            self._begin(number, str(message.get("name")), message.get("body"))

    def close(self) -> None:
        """End all that goes on."""
        with self._lock:
            numbers = list(self._open)
        for number in numbers:
            self._cancel(number)
        self._work.close()
        self._viewer.close()

    def _begin(self, number: int, name: str, body: object) -> None:
        if name in self._viewer.quick or name not in self._viewer.names:
            self._tell(number, partial(self._viewer.answer, name, body, Stop()))
            return
        try:
            with self._lock:
                future, stop = self._work.start(partial(self._viewer.answer, name, body))
                self._open[number] = (future, stop)
        except Refused as refused:
            self._refuse(number, refused)
            return
        future.add_done_callback(partial(self._done, number))

    def _done(self, number: int, future: Future[Any]) -> None:
        with self._lock:
            self._open.pop(number, None)
        if not future.cancelled():
            self._tell(number, future.result)

    def _tell(self, number: int, found: Callable[[], Any]) -> None:
        try:
            answer = found()
        except Stopped:
            return
        except Refused as refused:
            self._refuse(number, refused)
            return
        except Exception as error:  # the page shows it; the notebook goes on
            self._refuse(number, Refused(f"{type(error).__name__}: {error}"[:200], 500))
            return
        if isinstance(answer, bytes):
            self._send({"id": number, "ok": True, "body": None}, [answer])
        else:
            self._send({"id": number, "ok": True, "body": answer}, [])

    def _refuse(self, number: int, refused: Refused) -> None:
        self._send({"id": number, "ok": False, "body": {"error": str(refused), "status": refused.status}}, [])

    def _cancel(self, number: int) -> None:
        with self._lock:
            found = self._open.get(number)
        if found is not None:
            future, stop = found
            stop.set()
            future.cancel()
