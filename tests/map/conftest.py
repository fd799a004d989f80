"""Shared by the tests of the map: a cache folder of their own, a small capture view, and its server in this process."""

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import anyio
import pytest
import torch

from regard.inspection.matrix import matrix
from regard.map.jobs import WorkerPool
from regard.map.serve import listening
from regard.map.server import MapServer, application
from regard.map.viewer import PAGE, Viewer
from regard.map.views import CaptureView, LayerView
from regard.pages.assets import assets
from regard.pages.document import from_template
from regard.pages.guard import AccessToken

PORT = 8123
HOST = f"127.0.0.1:{PORT}"


@pytest.fixture(autouse=True)
def _own_tile_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))


@pytest.fixture
def capture_view() -> CaptureView:
    """Two layers: causal with words (some of them HTML), and one of other sizes without."""
    draw = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 1, 2, 300, 8, generator=draw)
    words = [f"w{number}" for number in range(300)]
    words[7] = '<img src=x onerror="alert(1)">'
    first = matrix(query, key, mask="causal", query_tokens=words, key_tokens=words)
    second = matrix(query[..., :20, :], key[..., :33, :])
    return CaptureView((LayerView("layer 0", first), LayerView("layer 1", second)), "a small capture view")


@pytest.fixture
def viewer(capture_view: CaptureView) -> Iterator[Viewer]:
    found = Viewer(capture_view)
    yield found
    found.close()


class Answer:
    """A status, headers and a body."""

    def __init__(self, messages: list[Any]) -> None:
        start, *parts = messages
        assert start["type"] == "http.response.start"
        assert [part["type"] for part in parts] == ["http.response.body"] * len(parts)
        self.status: int = start["status"]
        self.headers = [(name.decode(), value.decode()) for name, value in start["headers"]]
        self.content = b"".join(part.get("body", b"") for part in parts)

    def all(self, name: str) -> list[str]:
        """Every value of a header."""
        return [value for own, value in self.headers if own == name]

    def __getitem__(self, name: str) -> str:
        (found,) = self.all(name)
        return found

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.content)


Headers = dict[str, str] | list[tuple[str, str]]


class Client:
    """The server without a socket; headers are those of our own page unless told."""

    def __init__(self, viewer: Viewer) -> None:
        self.viewer, self.token, self.pool = viewer, AccessToken(), WorkerPool()
        self.app = application(
            viewer, assets(PAGE), from_template("map.html", token=self.token.text), self.token, PORT, self.pool
        )
        self.cookie = f"regard-map-{PORT}={self.token.text}"
        self.headers = {"host": HOST, "x-regard-token": self.token.text, "cookie": self.cookie}

    def send(self, requests: Sequence[tuple[str, str, Headers, bytes]]) -> list[Answer]:
        """The answers to (method, raw path, headers, body), one after the other."""

        async def run() -> list[Answer]:
            return [await self._one(*request) for request in requests]

        return anyio.run(run)

    async def _one(self, method: str, path: str, headers: Headers, body: bytes) -> Answer:
        raw, _, query = path.partition("?")
        listed = headers.items() if isinstance(headers, dict) else headers
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(raw),
            "raw_path": raw.encode("latin-1"),
            "query_string": query.encode("latin-1"),
            "root_path": "",
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in listed],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", PORT),
        }
        sent: list[Any] = []
        left = [{"type": "http.request", "body": body, "more_body": False}]
        gone = asyncio.Event()

        async def receive() -> Any:
            if not left:
                await gone.wait()
            return left.pop()

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        return Answer(sent)

    def get(self, path: str, **headers: str) -> Answer:
        """One answer to a GET."""
        return self.send([("GET", path, self.headers | headers, b"")])[0]

    def ask(self, name: str, body: object, **headers: str) -> Answer:
        """One answer to a question."""
        asked = self.headers | {"content-type": "application/json"} | headers
        return self.send([("POST", f"/api/{name}", asked, json.dumps(body).encode())])[0]


@pytest.fixture
def client(viewer: Viewer) -> Iterator[Client]:
    found = Client(viewer)
    yield found
    found.pool.close()


def place(**more: Any) -> dict[str, Any]:
    """A question about the first head."""
    return {"layer": 0, "batch": 0, "head": 0, **more}


@pytest.fixture
def running(capture_view: CaptureView) -> Iterator[MapServer]:
    """The server on a socket, in a thread."""
    with listening(0) as sock:
        server = MapServer(capture_view, sock)
        thread = threading.Thread(target=server.run)
        thread.start()
        until = time.monotonic() + 120
        while not server.started and time.monotonic() < until:
            time.sleep(0.01)
        yield server
        server.stop()
        thread.join(20)
        assert not thread.is_alive()


def fetched(running: MapServer, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, Any, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=120)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def raw(running: MapServer, sent: bytes) -> bytes:
    """What comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", running.port), timeout=120) as sock:
        sock.sendall(sent)
        found = b""
        while piece := sock.recv(65536):
            found += piece
        return found
