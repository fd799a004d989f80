"""The server on a socket: what comes in pieces, late, broken or not at all."""

import http.client
import json
import socket
import time
from contextlib import suppress

import pytest

from regard.map import server
from regard.map.server import MapServer
from regard.pages.guard import HEADERS

from .conftest import fetched, place, raw


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
