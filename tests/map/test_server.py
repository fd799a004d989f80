"""The server: questions and answers with and without a socket, limits, cancelling, ten thousand random requests."""

import asyncio
import http.client
import json
import random
import socket
import string
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import anyio
import pytest

from regard.map import limits
from regard.map.ask import Refused
from regard.map.atlas import Atlas
from regard.map.guard import HEADERS
from regard.map.page import assets
from regard.map.serve import listening, serve
from regard.map.server import Running, parsed
from regard.map.stop import Stop
from regard.map.work import Work

from .conftest import HOST, Client, place


@pytest.fixture
def running(atlas: Atlas) -> Iterator[Running]:
    """The server on a socket, in a thread."""
    with listening(0) as sock:
        server = Running(atlas, sock)
        thread = threading.Thread(target=server.run)
        thread.start()
        until = time.monotonic() + 10
        while not server.started and time.monotonic() < until:
            time.sleep(0.01)
        yield server
        server.stop()
        thread.join(20)
        assert not thread.is_alive()


def fetched(running: Running, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, Any, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=20)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def raw(running: Running, sent: bytes) -> bytes:
    """What comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", running.port), timeout=20) as sock:
        sock.sendall(sent)
        found = b""
        while piece := sock.recv(65536):
            found += piece
        return found


def test_questions_and_answers(client: Client) -> None:
    info = client.ask("info", {}).json()
    assert [sheet["name"] for sheet in info["sheets"]] == ["layer 0", "layer 1"]
    tiles = client.ask("tiles", place(tiles=[[1, 0, 0]]))
    assert tiles["content-type"] == "application/octet-stream"
    assert tiles.content[:4] == b"RGT1"
    words = client.ask("tokens", {"sheet": 0, "axis": "key", "from": 7, "to": 8})
    assert words.json() == {"tokens": ['<img src=x onerror="alert(1)">']}
    assert words["content-type"] == "application/json"


@pytest.mark.parametrize(
    "body, status, text",
    [
        (b"", 400, "must be JSON"),
        (b"{", 400, "must be JSON"),
        (b"[]", 400, "must be a JSON object"),
        (b'{"sheet": NaN}', 400, "must be JSON"),
        (b'{"sheet": Infinity}', 400, "must be JSON"),
        (b"\xff", 400, "must be UTF-8"),
        (b"[" * 40 + b"]" * 40, 400, "nested deeper than 32"),
        (b'{"a":' * 33 + b"1" + b"}" * 33, 400, "nested deeper than 32"),
        (b'{"sheet": "' + b"[" * 99 + b'"}', 400, "sheet must be a whole number"),
        (b'{"sheet": 1' + b"0" * 5000 + b"}", 400, "must be JSON"),
        (b'{"sheet": 10000000000000000000000000}', 400, "sheet must be from 0 to 1, got a number far outside"),
        (b" " * (limits.BODY + 1), 413, "longer than 1048576 bytes"),
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
    with pytest.raises(Refused, match="deeper than 32"):
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
    assert found.count(429) == 30 - limits.AT_ONCE - limits.WAITING
    assert found.count(200) == limits.AT_ONCE + limits.WAITING


def test_work_that_waits_is_dropped_and_work_that_runs_is_stopped() -> None:
    work, hold, ran = Work(at_once=1, waiting=2), threading.Event(), []

    def job(stop: Stop) -> None:
        hold.wait(20)
        stop.check()
        ran.append(1)

    first, stop = work.start(job)
    second, _ = work.start(job)
    third, _ = work.start(job)
    with pytest.raises(Refused, match="busy") as refused:
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
        until = time.monotonic() + 20
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
    monkeypatch.setattr(limits, "SECONDS", 0.05)

    def slow(name: str, body: object, stop: Stop) -> dict[str, Any]:
        while True:
            stop.check()
            time.sleep(0.005)

    monkeypatch.setattr(client.viewer, "answer", slow)
    answer = client.ask("cell", {})
    assert answer.status == 503
    assert "too long" in answer.json()["error"]


def test_over_a_socket(running: Running) -> None:
    status, headers, _ = fetched(running, "GET", "/" + running.address.split("/", 3)[3], b"", {})
    assert status == 303
    own = {"Cookie": headers["set-cookie"].split(";")[0]}
    status, headers, page = fetched(running, "GET", headers["location"], b"", own)
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert running.secret.token.encode() in page
    assert "server" not in headers
    asked = {"X-Regard-Token": running.secret.token, "Content-Type": "application/json"}
    status, _, body = fetched(running, "POST", "/api/tiles", json.dumps(place(tiles=[[0, 0, 0]])).encode(), asked)
    assert (status, body[:4]) == (200, b"RGT1")
    status, headers, _ = fetched(running, "POST", "/api/info", b"{}", asked | {"Host": "evil.example"})
    assert status == 403
    for name, value in HEADERS.items():
        assert headers.get_all(name) == [value]


def test_what_is_not_http_gets_our_headers_too(running: Running) -> None:
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


def test_the_token_is_in_no_log(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    fetched(running, "GET", "/" + running.address.split("/", 3)[3], b"", {})
    fetched(running, "GET", f"/?token={running.secret.token}x", b"", {})
    assert running.secret.token not in caplog.text


def test_an_upgrade_is_no_way_in(running: Running) -> None:
    host = f"127.0.0.1:{running.port}"
    sent = (
        f"GET /api/info HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    assert raw(running, sent.encode()).startswith(b"HTTP/1.1 405")


def ended(running: Running, *sent: bytes) -> bytes:
    """What comes back for pieces that are sent one by one, until the server breaks the connection."""
    with socket.create_connection(("127.0.0.1", running.port), timeout=20) as sock:
        found = b""
        with suppress(ConnectionError):
            for piece in sent:
                sock.sendall(piece)
                time.sleep(0.05)
            while piece := sock.recv(65536):
                found += piece
        return found


def test_silent_connections_are_closed(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "IDLE", 0.3)
    assert ended(running) == b""
    assert ended(running, b"GET / HT") == b""
    assert ended(running, *[b"a"] * 20) == b""  # a word now and then is not enough
    whole = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\n\r\n".encode()
    assert ended(running, whole, b"GET").startswith(b"HTTP/1.1 401")


def test_a_body_that_does_not_come_is_not_waited_for(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.2)
    head = (
        f"POST /api/info HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\nX-Regard-Token: {running.secret.token}\r\n"
        "Content-Type: application/json\r\nContent-Length: 9\r\nConnection: close\r\n\r\n"
    )
    assert raw(running, head.encode() + b"{").startswith(b"HTTP/1.1 408")


def test_whoever_reads_too_slowly_is_let_go(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running._server.config, "timeout_keep_alive", 0.3)
    monkeypatch.setattr(running.viewer, "answer", lambda *_: b"x" * (64 << 20))
    head = (
        f"POST /api/cell HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\nX-Regard-Token: {running.secret.token}\r\n"
        "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    )
    with socket.create_connection(("127.0.0.1", running.port), timeout=20) as sock:
        sock.sendall(head.encode())
        time.sleep(1.5)
        size = 0
        with suppress(ConnectionError):
            while piece := sock.recv(1 << 20):
                size += len(piece)
        assert size < 64 << 20


def test_more_connections_than_may_be_are_closed(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONNECTIONS", 2)
    held = [socket.create_connection(("127.0.0.1", running.port), timeout=20) for _ in range(2)]
    time.sleep(0.1)
    assert ended(running) == b""
    for sock in held:
        sock.close()
    time.sleep(0.1)
    asked = {"X-Regard-Token": running.secret.token, "Content-Type": "application/json"}
    assert fetched(running, "POST", "/api/info", b"{}", asked)[0] == 200


def test_an_answer_is_not_too_long_and_a_failure_is_told(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ANSWER", 10)
    answer = client.ask("info", {})
    assert (answer.status, answer.json()["error"][:11]) == (400, "the answer ")

    def broken(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(client.viewer, "answer", broken)
    for name in ("info", "cell"):
        answer = client.ask(name, {})
        assert (answer.status, answer.json()) == (500, {"error": "MemoryError: no room"})


def test_a_cancelled_fetch_leaves_the_server_well(running: Running) -> None:
    asked = {"X-Regard-Token": running.secret.token, "Content-Type": "application/json"}
    for _ in range(20):
        connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=20)
        connection.request("POST", "/api/tiles", json.dumps(place(tiles=[[1, 1, 0], [1, 1, 1]])), asked)
        connection.close()
    assert fetched(running, "POST", "/api/info", b"{}", asked)[0] == 200


def noise(draw: random.Random, length: int) -> str:
    return "".join(draw.choice(string.printable) for _ in range(length))


def value(draw: random.Random, depth: int = 0) -> Any:
    """Any JSON, often near to what is asked for."""
    match draw.randrange(9 if depth < 3 else 6):
        case 0:
            return draw.choice([0, 1, 2, 3, 7, 299, 300, -1, 2**31, 2**63, 2**64, -(2**70)])
        case 1:
            return draw.choice([0.5, -0.0, 1e308, True, False, None])
        case 2:
            return draw.choice(["query", "key", "w1", "", "<b>", "\x00", "\ud83d\ude00", noise(draw, 9)])
        case 3 | 4 | 5:
            return draw.randrange(4)
        case 6:
            return [value(draw, depth + 1) for _ in range(draw.randrange(4))]
        case 7:
            return [[draw.randrange(4) for _ in range(3)] for _ in range(draw.randrange(4))]
    return {noise(draw, 3): value(draw, depth + 1) for _ in range(draw.randrange(3))}


NAMES = ["sheet", "batch", "head", "tiles", "q", "k", "from", "to", "bins", "axis", "text", "limit", "count", "size"]


def request(draw: random.Random, names: list[str], headers: dict[str, str]) -> tuple[str, str, dict[str, str], bytes]:
    """A random request, most of them with the right headers and a question."""
    kind = draw.randrange(10)
    if kind < 7:
        body = json.dumps({name: value(draw) for name in draw.sample(NAMES, draw.randrange(len(NAMES)))}).encode()
        if kind == 0:
            at = draw.randrange(len(body))
            body = body[:at] + bytes([draw.randrange(256)]) + body[at + 1 :]
        return "POST", f"/api/{draw.choice(names)}", headers | {"content-type": "application/json"}, body
    path = "/" + "".join(
        draw.choice(string.ascii_letters + "/%.?&=;:@~\\'\"<>[]{}|^`\x7f ") for _ in range(draw.randrange(30))
    )
    method = draw.choice(
        ["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "".join(draw.choices(string.ascii_uppercase, k=4))]
    )
    strange = {
        draw.choice(["origin", "cookie", "range", "accept", "x-regard-token", "content-length", "te"]): noise(
            draw, 12
        ).strip()
    }
    body = bytes(draw.randrange(256) for _ in range(draw.randrange(40)))
    return method, path, draw.choice([headers, {"host": HOST}, {}]) | strange, body


def test_ten_thousand_random_requests(client: Client) -> None:
    draw = random.Random(1)
    names = list(client.viewer.names)
    asked = [request(draw, names, client.headers) for _ in range(10_000)]
    counts: dict[int, int] = {}
    for answer in client.send(asked):
        assert answer.status < 500
        assert answer.status != 429
        counts[answer.status] = counts.get(answer.status, 0) + 1
        for name, wanted in HEADERS.items():
            assert answer.all(name) == [wanted]
        if answer.status >= 400:
            assert set(answer.json()) == {"error"}
    assert counts[200] > 500, counts
    assert counts[400] > 1000, counts


def test_random_requests_over_a_socket(running: Running) -> None:
    draw = random.Random(2)
    own = {"host": f"127.0.0.1:{running.port}", "x-regard-token": running.secret.token}
    for _ in range(300):
        method, path, headers, body = request(draw, list(running.viewer.names), own)
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {text}" for name, text in headers.items() if name != "te")]
        sent = (
            "\r\n".join([*lines, f"content-length: {len(body)}", "connection: close", "", ""]).encode("latin-1") + body
        )
        status = int(raw(running, sent).split(b" ", 2)[1])
        assert 200 <= status < 500, (status, sent)
    asked = {"X-Regard-Token": running.secret.token, "Content-Type": "application/json"}
    assert fetched(running, "POST", "/api/info", b"{}", asked)[0] == 200


def test_a_port_that_is_taken_is_told(atlas: Atlas) -> None:
    with listening(0) as sock:
        sock.listen()
        taken = sock.getsockname()[1]
        with pytest.raises(OSError, match=f"port {taken} cannot be used"):
            serve(atlas, taken, False)
    with pytest.raises(ValueError, match="port must be a number from 0 to 65535, got 70000"):
        serve(atlas, 70000, False)


def test_without_the_server_packages_the_way_out_is_told(atlas: Atlas, monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins
    import sys

    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.split(".")[0] == "starlette":
            raise ModuleNotFoundError("No module named 'starlette'", name="starlette")
        return real(name, *rest)

    monkeypatch.delitem(sys.modules, "regard.map.server")
    import regard.map

    monkeypatch.delattr(regard.map, "server", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"the map needs starlette; run: pip install regard\[map\]"):
        serve(atlas, 0, False)


def test_every_asset_is_named_by_a_plain_file() -> None:
    assert all("/" not in name and name[0] != "." for name in assets())
