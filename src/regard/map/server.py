"""Server: the map as a page on this machine, for whoever has the address that is printed."""

import asyncio
import json
import logging
import re
import socket
from concurrent.futures import CancelledError
from functools import partial
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from regard.map import limits
from regard.map.ask import Refused
from regard.map.atlas import Atlas
from regard.map.connection import Connection
from regard.map.guard import App, Guard, Secret, Ticket
from regard.map.page import INDEX, KINDS, TOKEN, Asset, assets
from regard.map.stop import Stop, Stopped
from regard.map.viewer import Answer, Viewer
from regard.map.work import Work


def application(viewer: Viewer, secret: Secret, port: int, work: Work, ticket: Ticket | None = None) -> App:
    """The whole server as one ASGI application."""
    files = {f"/{name}": asset for name, asset in assets().items() if name != INDEX}
    index = assets().get(INDEX, Asset(b"<!doctype html><title>regard</title>", KINDS[".html"]))
    files["/"] = index._replace(content=index.content.replace(TOKEN, secret.token.encode()))

    async def file(request: Request) -> Response:
        asset = files[request.url.path]
        return Response(asset.content, media_type=asset.kind)

    async def question(request: Request) -> Response:
        try:
            body = await _body(request)
            name = request.url.path.removeprefix("/api/")
            quick = name in viewer.quick
            return _answer(viewer.answer(name, body, Stop()) if quick else await computed(request, name, body))
        except Refused as refused:
            return _told(str(refused), refused.status)
        except Exception as error:  # the page shows it, and the server goes on
            logging.getLogger("regard.map").exception("a question failed")
            return _told(f"{type(error).__name__}: {error}"[:200], 500)

    async def computed(request: Request, name: str, body: object) -> Answer:
        future, stop = work.start(partial(viewer.answer, name, body))
        answered = asyncio.wrap_future(future)
        answered.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be left to look
        left = asyncio.ensure_future(_left(request))
        try:
            await asyncio.wait({answered, left}, timeout=limits.SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if answered.done():
                found: Answer = answered.result()
                return found
            raise Refused("nobody waits for this any more" if left.done() else "this takes too long; ask for less", 503)
        except (Stopped, CancelledError):
            raise Refused("this was stopped", 503) from None
        finally:
            stop.set()
            future.cancel()
            left.cancel()

    routes = [Route(path, file, methods=["GET"]) for path in files]
    routes += [Route(f"/api/{name}", question, methods=["POST"]) for name in viewer.names]
    known = frozenset(
        [*((path, "GET") for path in files), *((f"/api/{name}", "POST") for name in viewer.names)],
    )
    return Guard(Starlette(routes=routes), secret, port, known, ticket)


async def _body(request: Request) -> object:
    """The JSON of a request, no larger and no deeper than it may be."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused("the body must be application/json", 415)
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > limits.BODY:
                    raise Refused(f"the body is longer than {limits.BODY} bytes", 413)
                parts.append(part)
    except TimeoutError:
        raise Refused("the body did not come in time", 408) from None
    except ClientDisconnect:
        raise Refused("the body did not come whole") from None
    return parsed(b"".join(parts))


def parsed(content: bytes) -> object:
    """JSON as its specification has it."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused("the body must be UTF-8") from None
    if _depth(text) > limits.DEPTH:
        raise Refused(f"the body is nested deeper than {limits.DEPTH}")
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Refused("the body must be JSON") from None


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


def _answer(found: Answer) -> Response:
    if isinstance(found, bytes):
        return Response(found, media_type="application/octet-stream")
    text = json.dumps(found, allow_nan=False)
    if len(text) > limits.ANSWER:
        raise Refused(f"the answer has {len(text)} bytes, more than {limits.ANSWER}; ask for less")
    return Response(text, media_type="application/json")


def _told(text: str, status: int) -> Response:
    headers = {"retry-after": "1"} if status == 429 else None
    return Response(json.dumps({"error": text}), status, headers, "application/json")


class Running:
    """A server on an open socket: `run` serves until Ctrl-C, `stop` from another thread."""

    def __init__(self, atlas: Atlas, sock: socket.socket) -> None:
        self.port: int = sock.getsockname()[1]
        self.secret, self.ticket, self.work, self.viewer = Secret(), Ticket(), Work(), Viewer(atlas)
        self._sock = sock
        config = uvicorn.Config(
            application(self.viewer, self.secret, self.port, self.work, self.ticket),
            http=Connection,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level="error",  # its warnings advise who sends requests, not who sits at the terminal
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=limits.IDLE,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=limits.HEADERS + limits.URL,
        )
        self._server = uvicorn.Server(config)

    @property
    def address(self) -> str:
        """Where the map is, with the token."""
        return f"http://127.0.0.1:{self.port}/?token={self.secret.token}"

    @property
    def entry(self) -> str:
        """The same for a browser's command line, which others can read: it opens the page once."""
        return f"http://127.0.0.1:{self.port}/?once={self.ticket.word}"

    @property
    def started(self) -> bool:
        """Whether it answers."""
        return bool(self._server.started)

    def run(self) -> None:
        """Serve until the process is interrupted or `stop` is called."""
        try:
            self._server.run(sockets=[self._sock])
        finally:
            self.work.close()
            self.viewer.close()

    def stop(self) -> None:
        """End `run`."""
        self._server.should_exit = True
