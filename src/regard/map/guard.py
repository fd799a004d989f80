"""Guard: what every request must pass before anything looks at it, and the headers that every answer carries.

The server listens on this machine alone, but any page in the browser can send requests there. So the name that was
called must be this server's (else a foreign name was made to point here), the page that sent it must be ours, and
whoever asks must know the token that was printed at the start.
"""

import hmac
import json
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any

from regard.map import limits

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
RAW_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
HEADER = "x-regard-token"


@dataclass(frozen=True)
class Secret:
    """What the visitor must know: 256 bits, in the address that is printed, then in a cookie and a header."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    def is_known(self, given: str) -> bool:
        """Whether this is the token, in a time that does not tell how much of it is right."""
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())


@dataclass
class Ticket:
    """What the browser is started with: good for one entry, soon after the start.

    Everybody on the machine can read the command line of a process, so it must be worth nothing to who reads it there.
    """

    word: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    until: float = field(default_factory=lambda: time.monotonic() + limits.ENTRY)
    used: bool = False

    def take(self, given: str) -> bool:
        """Whether this is the word, for the first time and in time."""
        known = hmac.compare_digest(given.encode("utf-8", "replace"), self.word.encode())
        if not known or self.used or time.monotonic() > self.until:
            return False
        self.used = True
        return True


@dataclass(frozen=True)
class Refusal:
    """An answer of the guard itself."""

    status: int
    text: str
    allow: str = ""

    async def __call__(self, send: Send) -> None:
        """Send it."""
        body = json.dumps({"error": self.text}).encode()
        headers = [*RAW_HEADERS, (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if self.allow:
            headers.append((b"allow", self.allow.encode()))
        if self.status == 429:
            headers.append((b"retry-after", b"1"))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Guard:
    """An application inside its fence: `routes` are the (path, method) pairs that exist."""

    def __init__(
        self, app: App, secret: Secret, port: int, routes: frozenset[tuple[str, str]], ticket: Ticket | None = None
    ) -> None:
        self.app, self.secret, self.routes, self.ticket = app, secret, routes, ticket
        self.hosts = {f"{host}:{port}" for host in ("127.0.0.1", "localhost", "[::1]")}
        self.origins = {f"http://{host}" for host in self.hosts}
        self.cookie = f"regard-map-{port}"  # cookies are shared by all ports of a host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on or answer it."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            return
        refused = self.refused(scope)
        if refused is not None:
            await refused(send)
            return
        if scope["path"] == "/" and scope["query_string"]:
            await self._enter(send)
            return

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in RAW_HEADERS}
                kept = [(name, value) for name, value in message.get("headers", []) if name.lower() not in own]
                message["headers"] = [*kept, *RAW_HEADERS]
            await send(message)

        await self.app(scope, receive, marked)

    def refused(self, scope: Scope) -> Refusal | None:
        """Why the request goes no further, if it does not."""
        found: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        if found.get("host", []) not in [[host] for host in self.hosts]:
            return Refusal(403, "this server is called by another name; use the address that regard printed")
        if any(origin not in self.origins for origin in found.get("origin", [])):
            return Refusal(403, "requests from other pages are refused")
        if any(site not in ("same-origin", "none") for site in found.get("sec-fetch-site", [])):
            return Refusal(403, "requests from other sites are refused")
        if any("websocket" in kind.lower() for kind in found.get("upgrade", [])):
            return Refusal(403, "there are no web sockets here")
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > limits.URL:
            return Refusal(414, f"the address is longer than {limits.URL} bytes")
        if sum(len(name) + len(value) + 4 for name, value in scope["headers"]) > limits.HEADERS:
            return Refusal(431, f"the headers are longer than {limits.HEADERS} bytes")
        return self._off_route(scope) or self._stranger(scope, found)

    def _off_route(self, scope: Scope) -> Refusal | None:
        path, method = scope["path"], scope["method"]
        if scope.get("raw_path") not in (None, path.encode("utf-8", "replace")):
            return Refusal(404, "there is nothing here")  # an address that is written in another way than ours
        allowed = sorted(known for at, known in self.routes if at == path)
        if not allowed:
            return Refusal(404, "there is nothing here")
        if method not in allowed:
            return Refusal(405, f"this address takes {', '.join(allowed)}", ", ".join(allowed))
        return None

    def _stranger(self, scope: Scope, found: dict[str, list[str]]) -> Refusal | None:
        """Questions bring the token in a header, the page in a cookie, and the first call in its address."""
        if scope["path"].startswith("/api/"):
            words = found.get(HEADER, [])
            return None if len(words) == 1 and self.secret.is_known(words[0]) else _unknown()
        if scope["path"] == "/" and scope["query_string"]:
            name, _, given = scope["query_string"].decode("latin-1").partition("=")
            known = name == "token" and self.secret.is_known(given)
            once = name == "once" and self.ticket is not None and self.ticket.take(given)
            return None if known or once else _unknown()
        return None if self.secret.is_known(self._cookie(found)) else _unknown()

    def _cookie(self, found: dict[str, list[str]]) -> str:
        try:
            cookies = SimpleCookie("; ".join(found.get("cookie", [])))
        except CookieError:
            return ""
        return cookies[self.cookie].value if self.cookie in cookies else ""

    async def _enter(self, send: Send) -> None:
        """The token leaves the address: it becomes a cookie that no script can read and no other site can send."""
        cookie = f"{self.cookie}={self.secret.token}; HttpOnly; SameSite=Strict; Path=/"
        headers = [*RAW_HEADERS, (b"location", b"/"), (b"set-cookie", cookie.encode()), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


def _unknown() -> Refusal:
    return Refusal(401, "open the address that regard printed: it holds the token")
