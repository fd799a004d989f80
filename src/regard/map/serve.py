"""Show a capture view in the browser until Ctrl-C."""

import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from regard import checks
from regard.inspection.capture import Capture
from regard.inspection.matrix import AttentionMatrix
from regard.map.views import CaptureView
from regard.pages.guard import AccessToken
from regard.pages.stored_token import stored_token

if TYPE_CHECKING:
    from regard.map.server import PageServer

HOST = "127.0.0.1"


def serve(
    shown: "CaptureView | Capture | AttentionMatrix | Iterable[AttentionMatrix]",
    port: int = 0,
    open_browser: bool | None = None,
    *,
    first: tuple[int, int] = (0, 0),
    compare: tuple[int, int] | None = None,
    announce: Callable[[str], object] = print,
    new_token: bool = False,
) -> None:
    """Serve a map on this machine until Ctrl-C; `announce` gets the address once.

    `port` 0 is any that is free, with a token that is valid until the end. The token of any other port is stored, so
    that its addresses are valid again after a restart, unless there is to be a new one. `open_browser` None opens one
    if someone sits at the terminal. `first` are the layer and the head that are shown first, `compare`
    those that they are compared with.
    """
    view = CaptureView.of(shown)
    named = [f"{name}={number}" for name, number in zip(("layer", "head"), first, strict=True) if number]
    named += [] if compare is None else [f"compare={compare[0]},{compare[1]}"]
    place = f"#{'&'.join(named)}" if named else ""

    def made(sock: socket.socket, token: AccessToken) -> "PageServer":
        from regard.map.server import MapServer

        return MapServer(view, sock, token)

    serve_page(made, port, open_browser, place=place, name="map", announce=announce, new_token=new_token)


def serve_page(
    made: "Callable[[socket.socket, AccessToken], PageServer]",
    port: int,
    open_browser: bool | None,
    *,
    place: str = "",
    name: str,
    announce: Callable[[str], object] = print,
    new_token: bool = False,
) -> None:
    """Serve a page until Ctrl-C, as `serve` does; `made` makes its server, `place` is what follows its address."""
    if not 0 <= checks.whole("port", port) < 1 << 16:
        raise ValueError(f"port must be a number from 0 to {(1 << 16) - 1}, got {port!r}")
    with listening(port) as sock:
        try:
            running = made(sock, _token(name, port, new=new_token))
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] == "regard":
                raise
            raise ImportError(f"the {name} needs {error.name}; run: pip install regard[map]") from None
        with ended_by_signals(running.stop):  # from when the address is printed
            announce(running.address + place)
            if open_browser or (open_browser is None and sys.stdout.isatty()):
                webbrowser.open(running.entry + place)
            running.run()


def _token(name: str, port: int, *, new: bool) -> AccessToken:
    """The stored one of a port that was chosen; another one if it cannot be stored."""
    if port == 0:
        return AccessToken()
    try:
        return AccessToken(stored_token(f"{name}-{port}", new=new))
    except OSError:
        return AccessToken()


@contextmanager
def ended_by_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` at Ctrl-C, and raise nothing. SIGTERM does the same, and ends the process after that.

    Only the main thread may ask for signals; elsewhere nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    terminated: list[int] = []

    def end(number: int, frame: object) -> None:
        if number == signal.SIGTERM:
            terminated.append(number)
        stop()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if terminated:
            signal.raise_signal(signal.SIGTERM)


def listening(port: int) -> socket.socket:
    """A socket of this machine alone."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((HOST, port))
        sock.listen()  # now, so that the printed address answers at once
    except OSError as error:
        sock.close()
        raise OSError(f"port {port} cannot be used ({error.strerror}); leave it out, and a free one is taken") from None
    return sock
