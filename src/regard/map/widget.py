"""The map in a notebook: the same page as a widget; requests and tiles travel over the notebook's own connection.

Messages of the page are {id, name, body} and {cancel: id}.
"""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any

import anywidget
import traitlets

from regard import checks
from regard.inspection.capture import Capture
from regard.inspection.matrix import AttentionMatrix
from regard.map.jobs import RequestError, Stop, Stopped, WorkerPool
from regard.map.viewer import PAGE, Viewer
from regard.map.views import CaptureView
from regard.pages.assets import assets, bundle

Send = Callable[[dict[str, Any], list[bytes]], None]


class Comm:
    """Sends answers with `send(message, buffers)` from the threads that compute, so the notebook is not blocked."""

    def __init__(self, viewer: Viewer, send: Send) -> None:
        self._viewer, self._send, self._pool = viewer, send, WorkerPool()
        self._open: dict[int, tuple[Future[Any], Stop]] = {}
        self._lock = threading.Lock()

    def receive(self, message: object) -> None:
        """Handle one message of the page; anything else is ignored."""
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
        """Stop all jobs."""
        with self._lock:
            numbers = list(self._open)
        for number in numbers:
            self._cancel(number)
        self._pool.close()
        self._viewer.close()

    def _begin(self, number: int, name: str, body: object) -> None:
        if name in self._viewer.quick or name not in self._viewer.names:
            self._answer(number, partial(self._viewer.answer, name, body, Stop()))
            return
        try:
            with self._lock:
                future, stop = self._pool.start(partial(self._viewer.answer, name, body))
                self._open[number] = (future, stop)
        except RequestError as refused:
            self._refuse(number, refused)
            return
        future.add_done_callback(partial(self._done, number))

    def _done(self, number: int, future: Future[Any]) -> None:
        with self._lock:
            self._open.pop(number, None)
        if not future.cancelled():
            self._answer(number, future.result)

    def _answer(self, number: int, result: Callable[[], Any]) -> None:
        try:
            answer = result()
        except Stopped:
            return
        except RequestError as refused:
            self._refuse(number, refused)
            return
        except Exception as error:  # the page shows it; the notebook goes on
            self._refuse(number, RequestError(f"{type(error).__name__}: {error}"[:200], 500))
            return
        if isinstance(answer, bytes):
            self._send({"id": number, "ok": True, "body": None}, [answer])
        else:
            self._send({"id": number, "ok": True, "body": answer}, [])

    def _refuse(self, number: int, refused: RequestError) -> None:
        self._send({"id": number, "ok": False, "body": {"error": str(refused), "status": refused.status}}, [])

    def _cancel(self, number: int) -> None:
        with self._lock:
            job = self._open.get(number)
        if job is not None:
            future, stop = job
            stop.set()
            future.cancel()


class Map(anywidget.AnyWidget):  # type: ignore[misc]
    """A map of a capture view, a capture or a matrix; the last line of a cell shows it.

    >>> from regard.map.widget import Map  # doctest: +SKIP
    >>> Map(regard.matrix(q, k, mask="causal"))  # doctest: +SKIP
    """

    _esm = bundle(assets(PAGE), "widget.js")
    _css = assets(PAGE)["map.css"].content.decode()
    height = traitlets.Int(640).tag(sync=True)

    def __init__(
        self, shown: "CaptureView | Capture | AttentionMatrix | Iterable[AttentionMatrix]", *, height: int = 640
    ) -> None:
        super().__init__(height=checks.whole("height", height, 100))
        self._comm = Comm(Viewer(CaptureView.of(shown)), self._send_message)
        self.on_msg(self._receive)

    def close(self) -> None:
        """Remove the widget from the page and stop its background work."""
        if hasattr(self, "_comm"):
            self._comm.close()
        super().close()

    def _receive(self, _: object, content: Any, buffers: object) -> None:
        self._comm.receive(content)

    def _send_message(self, message: dict[str, Any], buffers: list[bytes]) -> None:
        self.send(message, buffers or None)
