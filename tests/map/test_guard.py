"""The guard: every route × method refuses what is not from our own page, and every answer has every header."""

import random
import time
from typing import Any

import anyio
import pytest

from regard.map.server import MapServer
from regard.map.viewer import PAGE
from regard.pages import guard
from regard.pages.assets import assets
from regard.pages.guard import HEADERS, AccessToken, OneTimeToken

from .conftest import HOST, PORT, Answer, Client, fetched

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get", "X")
BAD_HOSTS = (
    "evil.example",
    f"evil.example:{PORT}",
    "127.0.0.1",
    "localhost",
    f"127.0.0.1:{PORT + 1}",
    f"127.0.0.2:{PORT}",
)
MORE_BAD_HOSTS = (
    f"{HOST}.",
    f"localhost.:{PORT}",
    f"{HOST} ",
    f"a@{HOST}",
    f"[::1]:{PORT}.evil",
    "",
    f"LOCALHOST:{PORT}",
)
BAD_ORIGINS = (
    "null",
    "http://evil.example",
    f"https://{HOST}",
    "http://127.0.0.1",
    f"http://{HOST}/",
    f"http://{HOST}.evil",
    "",
)


def routes(client: Client) -> list[tuple[str, str]]:
    """Every (path, method) that exists."""
    files = ["/", *(f"/{name}" for name in assets(PAGE))]
    return [*((path, "GET") for path in files), *((f"/api/{name}", "POST") for name in client.viewer.names)]


def every(client: Client, headers: dict[str, str]) -> list[Answer]:
    """All routes with all methods, with these headers."""
    paths = [path for path, _ in routes(client)]
    return client.send([(method, path, headers, b"{}") for path in paths for method in METHODS])


def has_every_header(answer: Answer) -> None:
    for name, value in HEADERS.items():
        assert answer.all(name) == [value], name
    assert not [name for name, _ in answer.headers if name.startswith("access-control")]
    assert answer.all("content-type") or answer.status == 303


def test_right_headers_open_every_route(client: Client) -> None:
    known = routes(client)
    assert len(known) >= 12
    asked = [(method, path, client.headers | {"content-type": "application/json"}, b"{}") for path, method in known]
    for (path, _), answer in zip(known, client.send(asked), strict=True):
        assert answer.status == (400 if path.startswith("/api/") and path != "/api/info" else 200), path
        has_every_header(answer)


def test_other_methods_are_refused_on_every_route(client: Client) -> None:
    known = set(routes(client))
    paths = [path for path, _ in routes(client)]
    answers = iter(every(client, client.headers | {"content-type": "application/json"}))
    for path in paths:
        for method in METHODS:
            answer = next(answers)
            has_every_header(answer)
            if (path, method) not in known:
                assert answer.status == 405, (path, method)
                assert answer["allow"] == ("POST" if path.startswith("/api/") else "GET")


@pytest.mark.parametrize("host", [*BAD_HOSTS, *MORE_BAD_HOSTS])
def test_a_foreign_host_is_refused_everywhere(client: Client, host: str) -> None:
    for answer in every(client, client.headers | {"host": host, "content-type": "application/json"}):
        assert answer.status == 403
        has_every_header(answer)


def test_our_own_names_are_known(client: Client) -> None:
    for host in (HOST, f"localhost:{PORT}", f"[::1]:{PORT}"):
        assert client.ask("info", {}, host=host).status == 200
        assert client.ask("info", {}, host=host, origin=f"http://{host}").status == 200


@pytest.mark.parametrize("origin", BAD_ORIGINS)
def test_a_foreign_origin_is_refused_everywhere(client: Client, origin: str) -> None:
    for answer in every(client, client.headers | {"origin": origin, "content-type": "application/json"}):
        assert answer.status == 403
        has_every_header(answer)


@pytest.mark.parametrize("site", ["cross-site", "same-site", "", "none, cross-site"])
def test_another_site_is_refused_everywhere(client: Client, site: str) -> None:
    for answer in every(client, client.headers | {"sec-fetch-site": site, "content-type": "application/json"}):
        assert answer.status == 403
    assert client.ask("info", {}, **{"sec-fetch-site": "same-origin"}).status == 200
    assert client.get("/", **{"sec-fetch-site": "none"}).status == 200


def test_without_the_token_nothing_is_told(client: Client) -> None:
    token = client.token.text
    wrong = [
        {},
        {"x-regard-token": "", "cookie": ""},
        {"x-regard-token": token[:-1], "cookie": f"regard-map-{PORT}={token[:-1]}"},
        {"x-regard-token": token + "x", "cookie": f"regard-map-{PORT}={token}x"},
        {"x-regard-token": AccessToken().text, "cookie": f"regard-map-{PORT + 1}={token}"},
        {"authorization": f"Bearer {token}", "cookie": f"token={token}"},
        {"x-regard-token": "é", "cookie": f"regard-map-{PORT}=\xff; =;;"},
    ]
    known = set(routes(client))
    for headers in wrong:
        sent = {"host": HOST, "content-type": "application/json"} | headers
        asked = [(method, path, sent, b"{}") for path, method in sorted(known)]
        for answer in client.send(asked):
            assert answer.status == 401
            has_every_header(answer)
            assert token.encode() not in answer.content


def test_a_person_is_refused_in_words(client: Client) -> None:
    """A browser that opens an address gets a page, a program JSON; both with every header."""
    accept = {"host": HOST, "accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    for path, status in (("/", 401), ("/?token=<b>", 401), ("/nothing", 404), ("/main.js", 401)):
        (answer,) = client.send([("GET", path, accept, b"")])
        assert (answer.status, answer["content-type"]) == (status, "text/html; charset=utf-8")
        assert b"<p>" in answer.content
        assert not any(sign in answer.content for sign in (b"{", b"<b>", b"<script"))
        has_every_header(answer)
    (answer,) = client.send([("GET", "/", {"host": "evil.example", "accept": "text/html"}, b"")])
    assert answer.status == 403
    assert b"use the address that regard printed" in answer.content
    (answer,) = client.send([("POST", "/api/info", accept, b"{}")])
    assert answer["content-type"] == "application/json"


def test_the_cookie_opens_the_page_but_asks_no_question(client: Client) -> None:
    own = {"host": HOST, "cookie": client.cookie, "content-type": "application/json"}
    page, question = client.send([("GET", "/", own, b""), ("POST", "/api/info", own, b"{}")])
    assert (page.status, question.status) == (200, 401)
    header = {"host": HOST, "x-regard-token": client.token.text}
    assert client.send([("GET", "/", header, b"")])[0].status == 401


def test_the_token_leaves_the_address(client: Client) -> None:
    answer = client.send([("GET", f"/?token={client.token.text}", {"host": HOST}, b"")])[0]
    assert answer.status == 303
    assert answer["location"] == "/"
    cookie = answer["set-cookie"]
    assert cookie == f"regard-map-{PORT}={client.token.text}; HttpOnly; SameSite=Strict; Path=/"
    has_every_header(answer)
    for query in ("token=", "token=x", f"token={client.token.text}&next=//evil.example", "x=1", "%00", "&" * 300):
        refused = client.send([("GET", f"/?{query}", client.headers, b"")])[0]
        assert refused.status == 401, query
        assert not refused.all("location")
        has_every_header(refused)


def test_the_page_knows_the_token_and_no_file_does(client: Client) -> None:
    assert client.token.text.encode() in client.get("/").content
    for name, asset in assets(PAGE).items():
        answer = client.get(f"/{name}")
        assert answer.status == 200
        assert answer.content == asset.content
        assert b"{{ token }}" not in answer.content


def test_long_addresses_and_headers_are_refused(client: Client) -> None:
    assert client.get("/" + "a" * guard.LONGEST_URL).status == 414
    assert client.get("/?" + "a" * guard.LONGEST_URL).status == 414
    assert client.get("/", x="a" * guard.LONGEST_HEADERS).status == 431


def test_two_hosts_are_none(client: Client) -> None:
    scope: dict[str, Any] = {
        "type": "http",
        "headers": [(b"host", HOST.encode()), (b"host", HOST.encode())],
        "path": "/",
        "raw_path": b"/",
        "query_string": b"",
        "method": "GET",
    }
    refused = client.app.refusal(scope)  # type: ignore[attr-defined]
    assert refused is not None
    assert refused.status == 403


def traversals(count: int) -> list[str]:
    """Ways to leave a folder that were tried on others, mixed at random."""
    draw = random.Random(0)
    dots = ["..", "%2e%2e", ".%2e", "%2e.", "..;", "%c0%ae%c0%ae", "%252e%252e", "....", "..%00", "..%5c", "%uff0e"]
    marks = ["/", "//", "%2f", "\\", "%5c", "%252f", "/./", "/%00/", ";/"]
    ends = ["etc/passwd", "index.html", "server.py", "guard.py", "pyproject.toml", ".git/config", "C:/boot.ini", "%00"]
    starts = ["/", "//", "/api/", "/page/", "/main.js/", "/api/info/", "/%2f", "/\\", "/file:", "/~", "/index.html/"]
    names = list(assets(PAGE))
    found = []
    for number in range(count):
        middle = "".join(draw.choice(dots) + draw.choice(marks) for _ in range(draw.randrange(5)))
        end = draw.choice(ends) if number % 3 else draw.choice(["", "/", "?", "%3f"]) + draw.choice(names)
        found.append(draw.choice(starts) + middle + end)
    return found


def test_two_thousand_ways_out_lead_nowhere(client: Client) -> None:
    paths = [path for path in traversals(2000) if path.split("?")[0] not in {known for known, _ in routes(client)}]
    assert len(paths) > 1900
    for path, answer in zip(paths, client.send([("GET", path, client.headers, b"") for path in paths]), strict=True):
        has_every_header(answer)
        assert answer.status in (401, 404, 414), path
        assert set(answer.json()) == {"error"}


def test_web_sockets_are_closed(client: Client) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError

    anyio.run(client.app, {"type": "websocket", "headers": [], "path": "/"}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_what_a_browser_is_started_with_opens_the_page_once(running: MapServer) -> None:
    """Everybody on the machine can read a command line: what stands there is worth nothing a moment later."""
    path = "/" + running.entry.split("/", 3)[3]
    wrong = "/?once=" + "a" * 43
    assert running.token.text not in running.entry
    assert fetched(running, "GET", wrong, b"", {})[0] == 401
    for refused in ({"Host": "evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        assert fetched(running, "GET", path, b"", refused)[0] == 403  # and it is not used up
    assert fetched(running, "POST", path, b"", {})[0] == 405
    status, headers, _ = fetched(running, "GET", path, b"", {})
    cookie = headers["set-cookie"].split(";")[0]
    assert (status, headers["location"]) == (303, "/")
    assert fetched(running, "GET", "/", b"", {"Cookie": cookie})[0] == 200
    assert fetched(running, "GET", path, b"", {})[0] == 401
    assert fetched(running, "GET", f"/?token={running.entry_token.text}", b"", {})[0] == 401
    assert fetched(running, "GET", f"/?once={running.token.text}", b"", {})[0] == 401
    api = {"Content-Type": "application/json", "X-Regard-Token": running.entry_token.text}
    assert fetched(running, "POST", "/api/info", b"{}", api)[0] == 401
    assert (
        fetched(running, "GET", "/", b"", {"Cookie": f"regard-map-{running.port}={running.entry_token.text}"})[0] == 401
    )


def test_what_a_browser_is_started_with_is_soon_too_late() -> None:
    ticket = OneTimeToken()
    assert ticket.until > time.monotonic()
    ticket.until = time.monotonic() - 1
    assert not ticket.take(ticket.text)
    assert OneTimeToken().text != ticket.text
