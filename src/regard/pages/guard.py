"""What every request to a local server must pass first, and the headers that every answer carries.

The server listens on this machine alone, but any page in the browser can send requests there. So the Host header must
name this server (else a foreign name was made to point here), the page that sent the request must be ours, and the
request must carry the token that was printed at the start.
"""

import hmac
import json
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any

from regard.pages.document import from_template

LONGEST_URL, LONGEST_HEADERS = 8 << 10, 16 << 10  # bytes
ENTRY_SECONDS = 60.0  # in which the address that a browser is started with opens the page

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
class AccessToken:
    """256 random bits: in the address that is printed, then in a cookie and a header."""

    text: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    def matches(self, given: str) -> bool:
        """Whether this is the token, compared in constant time."""
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.text.encode())


@dataclass
class OneTimeToken:
    """The token that a browser is started with: valid once, soon after the start.

    Everybody on the machine can read the command line of a process, so it must be of no use afterwards.
    """

    text: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    until: float = field(default_factory=lambda: time.monotonic() + ENTRY_SECONDS)
    used: bool = False

    def take(self, given: str) -> bool:
        """Whether this is the token, for the first time and in time; it is used up then."""
        matches = hmac.compare_digest(given.encode("utf-8", "replace"), self.text.encode())
        if not matches or self.used or time.monotonic() > self.until:
            return False
        self.used = True
        return True


@dataclass(frozen=True)
class Refusal:
    """An answer of the guard itself: the request was refused."""

    status: int
    text: str
    allow: str = ""

    async def __call__(self, send: Send, *, page: bool = False) -> None:
        """Send it: JSON for a program, a page for a person."""
        if page:
            sentence = self.text[:1].upper() + self.text[1:] + "."
            body = from_template("refusal.html", title="regard", text=sentence).encode()
        else:
            body = json.dumps({"error": self.text}).encode()
        kind = b"text/html; charset=utf-8" if page else b"application/json"
        headers = [*RAW_HEADERS, (b"content-type", kind), (b"content-length", str(len(body)).encode())]
        if self.allow:
            headers.append((b"allow", self.allow.encode()))
        if self.status == 429:
            headers.append((b"retry-after", b"1"))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Guard:
    """An ASGI application behind the checks; `routes` are the (path, method) pairs that exist."""

    def __init__(
        self,
        app: App,
        token: AccessToken,
        port: int,
        routes: frozenset[tuple[str, str]],
        entry_token: OneTimeToken | None = None,
    ) -> None:
        self.app, self.token, self.routes, self.entry_token = app, token, routes, entry_token
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
        refusal = self.refusal(scope)
        if refusal is not None:
            await refusal(send, page=_wants_page(scope))
            return
        if scope["path"] == "/" and scope["query_string"]:
            await self._enter(send)
            return

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in RAW_HEADERS}
                others = [(name, value) for name, value in message.get("headers", []) if name.lower() not in own]
                message["headers"] = [*others, *RAW_HEADERS]
            await send(message)

        await self.app(scope, receive, marked)

    def refusal(self, scope: Scope) -> Refusal | None:
        """Why the request goes no further, if it does not."""
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        if headers.get("host", []) not in [[host] for host in self.hosts]:
            return Refusal(403, "this server is called by another name; use the address that regard printed")
        if any(origin not in self.origins for origin in headers.get("origin", [])):
            return Refusal(403, "requests from other pages are refused")
        if any(site not in ("same-origin", "none") for site in headers.get("sec-fetch-site", [])):
            return Refusal(403, "requests from other sites are refused")
        if any("websocket" in kind.lower() for kind in headers.get("upgrade", [])):
            return Refusal(403, "there are no web sockets here")
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > LONGEST_URL:
            return Refusal(414, f"the address is longer than {LONGEST_URL} bytes")
        if sum(len(name) + len(value) + 4 for name, value in scope["headers"]) > LONGEST_HEADERS:
            return Refusal(431, f"the headers are longer than {LONGEST_HEADERS} bytes")
        return self._not_found(scope) or self._unauthorized(scope, headers)

    def _not_found(self, scope: Scope) -> Refusal | None:
        path, method = scope["path"], scope["method"]
        if scope.get("raw_path") not in (None, path.encode("utf-8", "replace")):
            return Refusal(404, "there is nothing here")  # an address that is written in another way than ours
        allowed = sorted(allowed for at, allowed in self.routes if at == path)
        if not allowed:
            return Refusal(404, "there is nothing here")
        if method not in allowed:
            return Refusal(405, f"this address takes {', '.join(allowed)}", ", ".join(allowed))
        return None

    def _unauthorized(self, scope: Scope, headers: dict[str, list[str]]) -> Refusal | None:
        """API requests carry the token in a header, the page in a cookie, and the first call in its address."""
        if scope["path"].startswith("/api/"):
            words = headers.get(HEADER, [])
            return None if len(words) == 1 and self.token.matches(words[0]) else _no_token()
        if scope["path"] == "/" and scope["query_string"]:
            name, _, given = scope["query_string"].decode("latin-1").partition("=")
            valid = name == "token" and self.token.matches(given)
            once = name == "once" and self.entry_token is not None and self.entry_token.take(given)
            return None if valid or once else _no_token()
        return None if self.token.matches(self._cookie(headers)) else _no_token()

    def _cookie(self, headers: dict[str, list[str]]) -> str:
        try:
            cookies = SimpleCookie("; ".join(headers.get("cookie", [])))
        except CookieError:
            return ""
        return cookies[self.cookie].value if self.cookie in cookies else ""

    async def _enter(self, send: Send) -> None:
        """The token leaves the address: it becomes a cookie that no script can read and no other site can send."""
        cookie = f"{self.cookie}={self.token.text}; HttpOnly; SameSite=Strict; Path=/"
        headers = [*RAW_HEADERS, (b"location", b"/"), (b"set-cookie", cookie.encode()), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


def _wants_page(scope: Scope) -> bool:
    """Whether a person waits for the answer: a browser opens the address itself."""
    kinds = [value for name, value in scope["headers"] if name.lower() == b"accept"]
    return scope["method"] == "GET" and any(b"text/html" in kind.lower() for kind in kinds)


def _no_token() -> Refusal:
    return Refusal(401, "open the address that regard printed: it holds the token")
