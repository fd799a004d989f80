"""Show the playground: in the browser until Ctrl-C, or in a notebook."""

import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from regard.map.serve import serve_page
from regard.pages.document import framed, from_template
from regard.pages.guard import AccessToken
from regard.playground.document import data, document, files

if TYPE_CHECKING:
    from regard.map.server import PageServer


class Playground:
    """The playground; the last line of a cell shows it."""

    def _repr_html_(self) -> str:
        return framed(document())

    def __repr__(self) -> str:
        return "Playground(): a notebook shows it; regard.playground.export('play.html') writes it"


def play() -> Playground | None:
    """The playground: in a notebook as what the cell gives, elsewhere in the browser until Ctrl-C.

    A notebook has the chapters that need no server. `regard.playground.export` writes them as one file.
    """
    shell = sys.modules.get("IPython")
    running = None if shell is None else shell.get_ipython()
    if running is not None and hasattr(running, "kernel"):
        return Playground()
    serve()
    return None


def serve(
    port: int = 0,
    open_browser: bool | None = None,
    *,
    announce: Callable[[str], object] = print,
    new_token: bool = False,
) -> None:
    """Serve the playground on this machine until Ctrl-C, with models for its last chapter; as `regard.map.serve`."""
    serve_page(server, port, open_browser, name="playground", announce=announce, new_token=new_token)


def server(sock: socket.socket, token: AccessToken | None = None) -> "PageServer":
    """The server on an open socket."""
    from regard.map.server import PageServer
    from regard.playground.live import Live

    return PageServer(Live(), files(), _page, sock, token)


def _page(token: str) -> str:
    return from_template("play.html", script="", style="", token=token, data=data())
