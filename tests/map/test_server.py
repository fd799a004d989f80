"""The server without a socket: questions and answers, limits, cancelling."""

import asyncio
import builtins
import http.client
import json
import re
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import anyio
import pytest

import regard.map
from regard.map import jobs, server
from regard.map.jobs import RequestError, Stop, WorkerPool
from regard.map.serve import listening, serve
from regard.map.server import MapServer, parsed
from regard.map.viewer import PAGE
from regard.map.views import CaptureView
from regard.pages.assets import assets
from regard.pages.guard import HEADERS

from .conftest import Client, fetched, place, raw


def test_questions_and_answers(client: Client) -> None:
    info = client.ask("info", {}).json()
    assert [layer["name"] for layer in info["layers"]] == ["layer 0", "layer 1"]
    tiles = client.ask("tiles", place(tiles=[[1, 0, 0]]))
    assert tiles["content-type"] == "application/octet-stream"
    assert tiles.content[:4] == b"RGT1"
    words = client.ask("tokens", {"layer": 0, "axis": "key", "from": 7, "to": 8})
    assert words.json()["tokens"] == ['<img src=x onerror="alert(1)">']
    assert words["content-type"] == "application/json"


@pytest.mark.parametrize(
    "body, status, text",
    [
        (b"", 400, "must be JSON"),
        (b"{", 400, "must be JSON"),
        (b"[]", 400, "must be a JSON object"),
        (b'{"layer": NaN}', 400, "must be JSON"),
        (b'{"layer": Infinity}', 400, "must be JSON"),
        (b"\xff", 400, "must be UTF-8"),
        (b"[" * 40 + b"]" * 40, 400, "nested deeper than 32"),
        (b'{"a":' * 33 + b"1" + b"}" * 33, 400, "nested deeper than 32"),
        (b'{"layer": "' + b"[" * 99 + b'"}', 400, "layer must be a whole number"),
        (b'{"layer": 1' + b"0" * 5000 + b"}", 400, "must be JSON"),
        (b'{"layer": 10000000000000000000000000}', 400, "layer must be from 0 to 1, got a number far outside"),
        (b" " * (server.BODY + 1), 413, "longer than 1048576 bytes"),
    ],
)
def test_bad_bodies_are_refused(client: Client, body: bytes, status: int, text: str) -> None:
    headers = client.headers | {"content-type": "application/json"}
    (answer,) = client.send([("POST", "/api/tokens", headers, body)])
    assert answer.status == status
    assert text in answer.json()["error"]


@pytest.mark.parametrize("kind", ["text/plain", "", "application/x-www-form-urlencoded", "application/jsonp"])
def test_only_json_asks_a_question(client: Client, kind: str) -> None:
    (answer,) = client.send([("POST", "/api/info", client.headers | {"content-type": kind}, b"{}")])
    assert answer.status == 415


def test_depth_is_counted_outside_of_texts() -> None:
    deep: object = "end"
    for _ in range(32):
        deep = [deep]
    assert parsed(json.dumps(deep).encode()) == deep
    assert parsed(rb'{"a": "\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["}') == {"a": '"' + "[" * 40}
    with pytest.raises(RequestError, match="deeper than 32"):
        parsed(json.dumps([deep]).encode())


def test_more_questions_than_may_wait_are_told_to_come_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    hold = threading.Event()

    def slow(name: str, body: object, stop: Stop) -> dict[str, Any]:
        hold.wait(20)
        return {}

    monkeypatch.setattr(client.viewer, "answer", slow)
    headers = client.headers | {"content-type": "application/json"}

    async def run() -> list[int]:
        tasks = [asyncio.create_task(client._one("POST", "/api/cell", headers, b"{}")) for _ in range(30)]
        done, _ = await asyncio.wait(tasks, timeout=5, return_when=asyncio.FIRST_COMPLETED)
        while len(done) < 10:
            done, _ = await asyncio.wait(tasks, timeout=0.1)
        hold.set()
        return [(await task).status for task in tasks]

    found = anyio.run(run)
    assert found.count(429) == 30 - jobs.RUNNING - jobs.WAITING
    assert found.count(200) == jobs.RUNNING + jobs.WAITING


def test_work_that_waits_is_dropped_and_work_that_runs_is_stopped() -> None:
    work, hold, ran = WorkerPool(running=1, waiting=2), threading.Event(), []

    def job(stop: Stop) -> None:
        hold.wait(20)
        stop.check()
        ran.append(1)

    first, stop = work.start(job)
    second, _ = work.start(job)
    third, _ = work.start(job)
    with pytest.raises(RequestError, match="busy") as refused:
        work.start(job)
    assert refused.value.status == 429
    assert second.cancel()
    stop.set()
    hold.set()
    assert first.exception(20) is not None
    assert third.result(20) is None
    assert ran == [1]
    work.close()


def test_a_question_nobody_waits_for_is_stopped(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, stopped = threading.Event(), threading.Event()

    def slow(name: str, body: object, stop: Stop) -> dict[str, Any]:
        begun.set()
        until = time.monotonic() + 120
        while time.monotonic() < until:
            try:
                stop.check()
            except Exception:
                stopped.set()
                raise
            time.sleep(0.005)
        return {}

    monkeypatch.setattr(client.viewer, "answer", slow)
    body = [{"type": "http.request", "body": b"{}", "more_body": False}]

    async def receive() -> Any:
        if body:
            return body.pop()
        while not begun.is_set():
            await asyncio.sleep(0.005)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        pass

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/cell",
        "raw_path": b"/api/cell",
        "query_string": b"",
        "root_path": "",
        "headers": [
            (name.encode(), value.encode())
            for name, value in (client.headers | {"content-type": "application/json"}).items()
        ],
    }
    anyio.run(client.app, scope, receive, send)
    assert stopped.wait(5)


def test_a_question_that_takes_too_long_is_stopped(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SECONDS", 0.05)

    def slow(name: str, body: object, stop: Stop) -> dict[str, Any]:
        while True:
            stop.check()
            time.sleep(0.005)

    monkeypatch.setattr(client.viewer, "answer", slow)
    answer = client.ask("cell", {})
    assert answer.status == 503
    assert "too long" in answer.json()["error"]


def test_an_answer_is_not_too_long_and_a_failure_is_told(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ANSWER", 10)
    answer = client.ask("info", {})
    assert (answer.status, answer.json()["error"][:11]) == (400, "the answer ")

    def broken(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(client.viewer, "answer", broken)
    for name in ("info", "cell"):
        answer = client.ask(name, {})
        assert (answer.status, answer.json()) == (500, {"error": "MemoryError: no room"})


def test_a_port_that_is_taken_is_told(capture_view: CaptureView) -> None:
    with listening(0) as sock:
        sock.listen()
        taken = sock.getsockname()[1]
        with pytest.raises(OSError, match=f"port {taken} cannot be used"):
            serve(capture_view, taken, False)
    with pytest.raises(ValueError, match="port must be a number from 0 to 65535, got 70000"):
        serve(capture_view, 70000, False)


def test_without_the_server_packages_the_way_out_is_told(
    capture_view: CaptureView, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.split(".")[0] == "starlette":
            raise ModuleNotFoundError("No module named 'starlette'", name="starlette")
        return real(name, *rest)

    monkeypatch.delitem(sys.modules, "regard.map.server")
    monkeypatch.delattr(regard.map, "server", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"the map needs starlette; run: pip install regard\[map\]"):
        serve(capture_view, 0, False)


def test_every_asset_is_named_by_a_plain_file() -> None:
    assert all(re.fullmatch(r"(shared/)?[a-z0-9][\w.-]*", name) for name in assets(PAGE))


def test_over_a_socket(running: MapServer) -> None:
    status, headers, _ = fetched(running, "GET", "/" + running.address.split("/", 3)[3], b"", {})
    assert status == 303
    own = {"Cookie": headers["set-cookie"].split(";")[0]}
    status, headers, page = fetched(running, "GET", headers["location"], b"", own)
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert running.token.text.encode() in page
    assert "server" not in headers
    asked = {"X-Regard-Token": running.token.text, "Content-Type": "application/json"}
    status, _, body = fetched(running, "POST", "/api/tiles", json.dumps(place(tiles=[[0, 0, 0]])).encode(), asked)
    assert (status, body[:4]) == (200, b"RGT1")
    status, headers, _ = fetched(running, "POST", "/api/info", b"{}", asked | {"Host": "evil.example"})
    assert status == 403
    for name, value in HEADERS.items():
        assert headers.get_all(name) == [value]


def test_what_is_not_http_gets_our_headers_too(running: MapServer) -> None:
    host = f"127.0.0.1:{running.port}".encode()
    for sent in (
        b"hello\r\n\r\n",
        b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: " + host + b"\r\nX: " + b"a" * 40_000 + b"\r\nConnection: close\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: " + host + b"\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n",
    ):
        head = raw(running, sent).split(b"\r\n\r\n")[0].lower()
        assert head.startswith((b"http/1.1 400", b"http/1.1 403", b"http/1.1 431")), head
        for name, value in HEADERS.items():
            assert f"{name}: {value}".lower().encode() in head


def test_the_token_is_in_no_log(running: MapServer, caplog: pytest.LogCaptureFixture) -> None:
    fetched(running, "GET", "/" + running.address.split("/", 3)[3], b"", {})
    fetched(running, "GET", f"/?token={running.token.text}x", b"", {})
    assert running.token.text not in caplog.text


def test_an_upgrade_is_no_way_in(running: MapServer, caplog: pytest.LogCaptureFixture) -> None:
    host = f"127.0.0.1:{running.port}"
    sent = (
        f"GET /api/info HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    assert raw(running, sent.encode()).startswith(b"HTTP/1.1 403")
    secret = running.token.text
    known = sent.replace("/api/info", "/").replace("\r\n", f"\r\nCookie: regard-map-{running.port}={secret}\r\n", 1)
    assert raw(running, known.encode()).startswith(b"HTTP/1.1 403")
    assert raw(running, known.replace("websocket", "h2c").encode()).startswith(b"HTTP/1.1 200")  # may be ignored
    assert raw(running, b"this is no HTTP\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert caplog.text == ""  # uvicorn would advise to install more


def open_at(running: MapServer, number: int) -> None:
    """Wait until the server holds so many connections."""
    until = time.monotonic() + 60
    while len(running._server.server_state.connections) != number:
        assert time.monotonic() < until
        time.sleep(0.005)


def ended(running: MapServer, *sent: bytes) -> bytes:
    """What comes back for pieces that are sent one by one, until the server breaks the connection."""
    with socket.create_connection(("127.0.0.1", running.port), timeout=120) as sock:
        found = b""
        with suppress(ConnectionError):
            for piece in sent:
                sock.sendall(piece)
                time.sleep(0.05)
            while piece := sock.recv(65536):
                found += piece
        return found


def test_silent_connections_are_closed(running: MapServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IDLE", 0.3)
    assert ended(running) == b""
    assert ended(running, b"GET / HT") == b""
    assert ended(running, *[b"a"] * 20) == b""  # a word now and then is not enough
    whole = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\n\r\n".encode()
    assert ended(running, whole, b"GET").startswith(b"HTTP/1.1 401")


def test_a_body_that_does_not_come_is_not_waited_for(running: MapServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SECONDS", 0.2)
    head = (
        f"POST /api/info HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\nX-Regard-Token: {running.token.text}\r\n"
        "Content-Type: application/json\r\nContent-Length: 9\r\nConnection: close\r\n\r\n"
    )
    assert raw(running, head.encode() + b"{").startswith(b"HTTP/1.1 408")


def test_whoever_reads_too_slowly_is_let_go(running: MapServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running._server.config, "timeout_keep_alive", 0.3)
    monkeypatch.setattr(running.viewer, "answer", lambda *_: b"x" * (64 << 20))
    head = (
        f"POST /api/cell HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\nX-Regard-Token: {running.token.text}\r\n"
        "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    )
    with socket.create_connection(("127.0.0.1", running.port), timeout=120) as sock:
        sock.sendall(head.encode())
        open_at(running, 1)
        open_at(running, 0)
        size = 0
        with suppress(ConnectionError):
            while piece := sock.recv(1 << 20):
                size += len(piece)
        assert size < 64 << 20


def test_more_connections_than_may_be_are_closed(running: MapServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTIONS", 2)
    held = [socket.create_connection(("127.0.0.1", running.port), timeout=120) for _ in range(2)]
    open_at(running, 2)
    assert ended(running) == b""
    for sock in held:
        sock.close()
    open_at(running, 0)
    asked = {"X-Regard-Token": running.token.text, "Content-Type": "application/json"}
    assert fetched(running, "POST", "/api/info", b"{}", asked)[0] == 200


def test_a_cancelled_fetch_leaves_the_server_well(running: MapServer) -> None:
    asked = {"X-Regard-Token": running.token.text, "Content-Type": "application/json"}
    for _ in range(20):
        connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=120)
        connection.request("POST", "/api/tiles", json.dumps(place(tiles=[[1, 1, 0], [1, 1, 1]])), asked)
        connection.close()
    assert fetched(running, "POST", "/api/info", b"{}", asked)[0] == 200
