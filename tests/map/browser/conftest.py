"""A browser without a screen, servers of the map that all tests of this folder share, and pages that are watched."""

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
import torch
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Route, sync_playwright

from regard.inspection.matrix import AttentionMatrix, matrix
from regard.map import CaptureView, demo, server
from regard.map.serve import listening
from regard.map.server import MapServer
from regard.map.views import LayerView

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
PATIENCE = 120  # seconds


@dataclass(frozen=True)
class Served:
    """A map on this machine."""

    capture_view: CaptureView
    running: MapServer

    @property
    def address(self) -> str:
        return self.running.address

    def head(self, number: int) -> AttentionMatrix:
        return self.capture_view.layers[0].head(0, number)


@dataclass
class Seen:
    """A page, what it complained about and whom it asked."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def state(self, name: str) -> Any:
        """`idle`, `exact`, `counts`, or `view()` and the like, of window.regardMap."""
        return self.page.evaluate(f"window.regardMap && window.regardMap.{name}")

    def settle(self, also: str = "idle") -> None:
        """Wait until nothing is on its way. Playwright's own waiting needs eval, which the page forbids."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if self.state("idle") and self.state(also):
                return
            self.page.wait_for_timeout(20)
        raise TimeoutError(f"the page is not {also} after {PATIENCE} s; complaints: {self.complaints}")

    def goto(self, **place: float) -> None:
        self.page.evaluate("place => window.regardMap.goto(place)", place)
        self.settle()

    def pixels(self, points: list[tuple[int, int]]) -> list[list[int]]:
        """Red, green, blue and opacity at points of the map's canvas, in device pixels."""
        script = """points => {
          const canvas = document.querySelector("canvas.plot"), { width, height } = canvas;
          const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
          return points.map(([x, y]) => Array.from(data.slice(4 * (y * width + x), 4 * (y * width + x) + 4)));
        }"""
        found: list[list[int]] = self.page.evaluate(script, points)
        return found

    def colors(self) -> int:
        """How many colors the map has, in a sample of its pixels."""
        script = """() => {
          const { width, height } = document.querySelector("canvas.plot"), seen = new Set();
          const image = document.querySelector("canvas.plot").getContext("2d").getImageData(0, 0, width, height);
          const pixels = new Uint32Array(image.data.buffer);
          for (let n = 0; n < pixels.length; n += 7) seen.add(pixels[n]);
          return seen.size;
        }"""
        found: int = self.page.evaluate(script)
        return found


Opener = Callable[..., Seen]


@pytest.fixture(scope="session", autouse=True)
def _tile_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Maps that several tests share are made before any test has a folder of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("maps")))
        yield


@pytest.fixture(scope="module")  # in its thread no other loop of events can run
def browser() -> Iterator[Browser]:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None and "CI" in os.environ:
        pytest.fail("there is no chromium; .ci/run installs it")
    if found is None:
        pytest.skip("needs chromium on the PATH: the page of the map is tested in a real browser")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield running
        running.close()


@pytest.fixture
def open_map(browser: Browser) -> Iterator[Opener]:
    """Opens a map; at the end no page may have complained, or asked anyone but its own server.

    The long pass over the largest matrix is begun only for those who wait for it: asking how far it is would begin it.
    """
    opened: list[Seen] = []

    def opener(served: Served, hash: str = "", wait: str = "idle", script: str = "", **options: Any) -> Seen:
        size = {"width": 1280, "height": 800}
        context = browser.new_context(**{"viewport": size, "reduced_motion": "reduce", **options})
        if script:
            context.add_init_script(script)  # before any of the page's own
        seen = Seen(context.new_page())
        opened.append(seen)
        watch(seen, exact=wait == "exact" or served.capture_view.layers[0].keys < 100_000)
        seen.page.goto(f"{served.address}#{hash}" if hash else served.address)
        seen.settle(wait)
        return seen

    yield opener
    for seen in opened:
        seen.page.context.close()
    assert [complaint for seen in opened for complaint in seen.complaints] == []
    assert {urlsplit(address).hostname for seen in opened for address in seen.asked} <= {"127.0.0.1"}


def watch(seen: Seen, exact: bool) -> None:
    def told(message: ConsoleMessage) -> None:
        reading = "willReadFrequently" in message.text  # the tests read the canvas, the page does not
        if message.type in ("error", "warning") and not reading:
            seen.complaints.append(f"{message.type}: {message.text}")

    def asked(request: Request) -> None:
        if not request.url.startswith(("data:", "blob:")):
            seen.asked.append(request.url)

    def waiting(route: Route) -> None:
        route.fulfill(json={"state": "waiting", "done": 0, "total": 1})

    seen.page.on("console", told)
    seen.page.on("pageerror", lambda error: seen.complaints.append(f"thrown: {error}"))
    seen.page.on("request", asked)
    if not exact:
        seen.page.context.route("**/api/progress", waiting)


@pytest.fixture(scope="session")
def small() -> Iterator[Served]:
    """Long enough for coarse levels of its own, short enough for their exact pass."""
    yield from serving(demo.view(20_000))


@pytest.fixture(scope="session")
def large() -> Iterator[Served]:
    yield from serving(demo.view(100_000))


TEXTS = (
    ("[CLS]", "the", "quick", "brown", "fox", "##es", "jumped", "over", "extraordinarily", "lazy", "dogs", "[SEP]"),
    ("[CLS]", "a", "slow", "gray", "wolf", "##s", "slept", "under", "remarkably", "busy", "trees", "[SEP]"),
)


class Texts(LayerView):
    """Batch rows with words of their own."""

    def tokens(self, axis: str, batch: int = 0) -> tuple[str, ...]:
        return TEXTS[batch]


@pytest.fixture(scope="session")
def few() -> Iterator[Served]:
    """Two texts of twelve tokens, four heads: the first nearly even, each sharper than the one before."""
    draw = torch.Generator().manual_seed(3)
    query, key = torch.randn(2, len(TEXTS), 4, len(TEXTS[0]), 16, generator=draw)
    query *= torch.tensor([0.02, 0.5, 1.5, 4.0]).view(1, -1, 1, 1)
    yield from serving(CaptureView((Texts("layer", matrix(query, key, mask="causal")),), "few"))


HOSTILE = ["<img src=x onerror=alert(1)>", "</script>", "&lt;", "a\nb", "\u202eabc", "  ", "", "<b>bold</b>"]


@pytest.fixture(scope="session")
def hostile() -> Iterator[Served]:
    """Few tokens, all of them meant to be more than text."""
    draw = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 1, 2, len(HOSTILE), 8, generator=draw)
    yield from serving(CaptureView.of(matrix(query, key, query_tokens=HOSTILE, key_tokens=HOSTILE), "<i>hostile</i>"))


def serving(capture_view: CaptureView) -> Iterator[Served]:
    with listening(0) as sock, pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "SECONDS", float(PATIENCE))  # a machine that runs other tests too may be slow
        running = MapServer(capture_view, sock)
        thread = threading.Thread(target=running.run, daemon=True)
        thread.start()
        yield Served(capture_view, running)
        running.stop()
        thread.join(PATIENCE)
