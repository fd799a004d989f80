"""A page on this machine, such as the map, for those who have the printed address."""

import asyncio
import json
import logging
import re
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from functools import partial
from typing import Any, Protocol

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.map.jobs import RequestError, Stop, Stopped, WorkerPool
from regard.map.viewer import PAGE, Answer, Viewer
from regard.map.views import CaptureView
from regard.pages import guard
from regard.pages.assets import Asset, assets
from regard.pages.document import from_template
from regard.pages.guard import RAW_HEADERS, AccessToken, App, Guard, OneTimeToken

BODY = 1 << 20  # bytes
DEPTH = 32  # of JSON
SECONDS = 10.0  # for one request
IDLE = 30  # seconds without data on an open connection
LONGEST = 60  # seconds from the first byte of a request to its answer
ANSWER = 8 << 20  # bytes of an answer in JSON; tiles are limited by their number
CONNECTIONS = 256


class Answers(Protocol):
    """Answers the requests of a page by name; `quick` ones are answered without computing."""

    quick: frozenset[str]

    @property
    def names(self) -> tuple[str, ...]:
        """Of all requests."""
        ...

    def answer(self, name: str, body: object, stop: Stop) -> Answer:
        """A dictionary that JSON can hold, or bytes."""
        ...

    def close(self) -> None:
        """Stop the background work."""
        ...


def application(
    answers: Answers,
    own: Mapping[str, Asset],
    page: str,
    token: AccessToken,
    port: int,
    pool: WorkerPool,
    entry_token: OneTimeToken | None = None,
) -> App:
    """The whole server as one ASGI application: the page, its own files and the answers to its requests."""
    files = {f"/{name}": asset for name, asset in own.items()}
    files["/"] = Asset(page.encode(), "text/html; charset=utf-8")

    async def file(request: Request) -> Response:
        asset = files[request.url.path]
        return Response(asset.content, media_type=asset.content_type)

    async def api(request: Request) -> Response:
        try:
            body = await _body(request)
            name = request.url.path.removeprefix("/api/")
            quick = name in answers.quick
            return _answer(answers.answer(name, body, Stop()) if quick else await computed(request, name, body))
        except RequestError as refused:
            return _error(str(refused), refused.status)
        except Exception as error:  # the page shows it, and the server goes on
            logging.getLogger("regard.map").exception("a request failed")
            return _error(f"{type(error).__name__}: {error}"[:200], 500)

    async def computed(request: Request, name: str, body: object) -> Answer:
        future, stop = pool.start(partial(answers.answer, name, body))
        answered = asyncio.wrap_future(future)
        answered.add_done_callback(lambda done: done.cancelled() or done.exception())  # the client may have gone
        left = asyncio.ensure_future(_left(request))
        try:
            await asyncio.wait({answered, left}, timeout=SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if answered.done():
                answer: Answer = answered.result()
                return answer
            raise RequestError(
                "nobody waits for this any more" if left.done() else "this takes too long; ask for less", 503
            )
        except (Stopped, CancelledError):
            raise RequestError("this was stopped", 503) from None
        finally:
            stop.set()
            future.cancel()
            left.cancel()

    routes = [Route(path, file, methods=["GET"]) for path in files]
    routes += [Route(f"/api/{name}", api, methods=["POST"]) for name in answers.names]
    existing = frozenset(
        [*((path, "GET") for path in files), *((f"/api/{name}", "POST") for name in answers.names)],
    )
    return Guard(Starlette(routes=routes), token, port, existing, entry_token)


async def _body(request: Request) -> object:
    """The JSON of a request, no larger and no deeper than it may be."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestError("the body must be application/json", 415)
    parts, size = [], 0
    try:
        async with asyncio.timeout(SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > BODY:
                    raise RequestError(f"the body is longer than {BODY} bytes", 413)
                parts.append(part)
    except TimeoutError:
        raise RequestError("the body did not come in time", 408) from None
    except ClientDisconnect:
        raise RequestError("the body did not come whole") from None
    return parsed(b"".join(parts))


def parsed(content: bytes) -> object:
    """JSON as its specification has it."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise RequestError("the body must be UTF-8") from None
    if _depth(text) > DEPTH:
        raise RequestError(f"the body is nested deeper than {DEPTH}")
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise RequestError("the body must be JSON") from None


def _depth(text: str) -> int:
    deepest = depth = 0
    for sign in re.findall(r'[\[{}\]]|"(?:[^"\\]|\\.)*"', text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(sign, 0)
        deepest = max(deepest, depth)
    return deepest


def _no_constant(name: str) -> Any:
    raise ValueError(name)


async def _left(request: Request) -> None:
    """Until the other side has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _answer(content: Answer) -> Response:
    if isinstance(content, bytes):
        return Response(content, media_type="application/octet-stream")
    text = json.dumps(content, allow_nan=False)
    if len(text) > ANSWER:
        raise RequestError(f"the answer has {len(text)} bytes, more than {ANSWER}; ask for less")
    return Response(text, media_type="application/json")


def _error(text: str, status: int) -> Response:
    headers = {"retry-after": "1"} if status == 429 else None
    return Response(json.dumps({"error": text}), status, headers, "application/json")


class Connection(H11Protocol):
    """uvicorn's HTTP protocol with a time limit on every wait; every answer has our headers."""

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first byte."""
        super().connection_made(transport)
        self.access_log = False  # the first address holds the token
        if len(self.connections) > CONNECTIONS:
            transport.close()
        self._wait(IDLE)

    def data_received(self, data: bytes) -> None:
        """A request must come whole in time, and be answered in time."""
        super().data_received(data)
        answering = self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]
        if answering:
            self._wait(LONGEST)
        elif self._patience is None:
            self._wait(IDLE)

    def on_response_complete(self) -> None:
        """From here on uvicorn waits for the next request."""
        self._rest()
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Close, and abort if the answer was not read by now."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._rest()
        super().connection_lost(exc)

    def _wait(self, seconds: float) -> None:
        self._rest()
        self._patience = self.loop.call_later(seconds, self.transport.abort)

    def _rest(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._patience = None

    def send_400_response(self, msg: str) -> None:
        """For what is not HTTP at all."""
        headers = [*RAW_HEADERS, (b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=msg.encode("ascii")),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event))
        self.transport.close()


class PageServer:
    """A server on an open socket: `run` serves until Ctrl-C, `stop` from another thread.

    `page` makes the page from the token.
    """

    def __init__(
        self,
        answers: Answers,
        files: Mapping[str, Asset],
        page: Callable[[str], str],
        sock: socket.socket,
        token: AccessToken | None = None,
    ) -> None:
        self.port: int = sock.getsockname()[1]
        self.token = AccessToken() if token is None else token
        self.entry_token, self.pool, self._answers = OneTimeToken(), WorkerPool(), answers
        self._sock = sock
        text = page(self.token.text)
        config = uvicorn.Config(
            application(answers, files, text, self.token, self.port, self.pool, self.entry_token),
            http=Connection,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level="error",  # its warnings advise who sends requests, not who sits at the terminal
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=IDLE,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=guard.LONGEST_HEADERS + guard.LONGEST_URL,
        )
        self._server = uvicorn.Server(config)

    @property
    def address(self) -> str:
        """Where the page is, with the token."""
        return f"http://127.0.0.1:{self.port}/?token={self.token.text}"

    @property
    def entry(self) -> str:
        """The same for a browser's command line, which others can read: it opens the page once."""
        return f"http://127.0.0.1:{self.port}/?once={self.entry_token.text}"

    @property
    def started(self) -> bool:
        """Whether it answers."""
        return bool(self._server.started)

    def run(self) -> None:
        """Serve until the process is interrupted or `stop` is called."""
        try:
            self._server.run(sockets=[self._sock])
        finally:
            self.pool.close()
            self._answers.close()

    def stop(self) -> None:
        """End `run`."""
        self._server.should_exit = True


class MapServer(PageServer):
    """The map of a capture view."""

    def __init__(self, view: CaptureView, sock: socket.socket, token: AccessToken | None = None) -> None:
        self.viewer = Viewer(view)
        super().__init__(self.viewer, assets(PAGE), lambda text: from_template("map.html", token=text), sock, token)
