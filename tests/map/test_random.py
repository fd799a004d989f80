"""Ten thousand random requests: no answer is missing, none is a failure, none lacks a header."""

import json
import random
import string
from typing import Any

from regard.map.server import MapServer
from regard.pages.guard import HEADERS

from .conftest import HOST, Client, fetched, raw


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


NAMES = ["layer", "batch", "head", "tiles", "q", "k", "from", "to", "bins", "axis", "text", "limit", "count", "size"]


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


def test_random_requests_over_a_socket(running: MapServer) -> None:
    draw = random.Random(2)
    own = {"host": f"127.0.0.1:{running.port}", "x-regard-token": running.token.text}
    for _ in range(300):
        method, path, headers, body = request(draw, list(running.viewer.names), own)
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {text}" for name, text in headers.items() if name != "te")]
        sent = (
            "\r\n".join([*lines, f"content-length: {len(body)}", "connection: close", "", ""]).encode("latin-1") + body
        )
        status = int(raw(running, sent).split(b" ", 2)[1])
        assert 200 <= status < 500, (status, sent)
    asked = {"X-Regard-Token": running.token.text, "Content-Type": "application/json"}
    assert fetched(running, "POST", "/api/info", b"{}", asked)[0] == 200
