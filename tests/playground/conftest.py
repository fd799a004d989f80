"""The exported playground in a browser without a screen; a page may neither complain nor ask anyone for anything."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from regard.playground import export

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Chapter:
    """A chapter in a page, what the page complained about and what it asked for."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.address, self.complaints = page, address, list[str]()
        page.on("console", lambda message: self.complaints.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("dialog", self._dismissed)
        page.on("request", self._asked)

    def _dismissed(self, dialog: Any) -> None:
        self.complaints.append("dialog")
        dialog.dismiss()

    def _asked(self, request: Any) -> None:
        if request.url.split("#")[0] != self.address and not request.url.startswith("data:"):
            self.complaints.append(f"request: {request.url}")

    def open(self, name: str, settings: str = "") -> None:
        self.page.goto(f"{self.address}#chapter={name}{settings}")
        self.settle()

    def settle(self) -> None:
        """Wait until everything is drawn and written in the address."""
        for _ in range(500):
            if self.page.evaluate("Boolean(window.regardPlay && window.regardPlay.idle)"):
                return
            self.page.wait_for_timeout(10)
        raise TimeoutError(f"the page does not settle: {self.complaints}")

    @property
    def state(self) -> dict[str, Any]:
        """All that the chapter remembers."""
        values: dict[str, Any] = self.page.evaluate("window.regardPlay.state")
        return values

    def set(self, **values: Any) -> None:
        self.page.evaluate("values => window.regardPlay.set(values)", values)
        self.settle()

    def numbers(self, picture: str) -> list[float]:
        """The numbers beside the bars of the picture with this label."""
        texts = self.page.locator(f'svg[aria-label="{picture}"] .numbers text').all_text_contents()
        return [float(text.replace("−", "-")) for text in texts]

    def reading(self, label: str, nth: int = 0) -> str:
        """The number with this name."""
        found = self.page.locator(".reading", has_text=label).nth(nth)
        text: str = found.locator(".reading-value").inner_text()
        return text

    def drag(self, name: str, dx: float, dy: float) -> None:
        """Drag the handle whose name starts so, by this many pixels."""
        handle = self.page.locator(f'[role="slider"][aria-label^="{name}"]').first
        handle.scroll_into_view_if_needed()
        box = handle.bounding_box()
        assert box is not None
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        self.page.mouse.move(x, y)
        self.page.mouse.down()
        self.page.mouse.move(x + dx / 2, y + dy / 2)
        self.page.mouse.move(x + dx, y + dy)
        self.page.mouse.up()
        self.settle()

    def slide(self, label: str, share: float) -> None:
        """Put a slider's thumb at this share of its length."""
        slider = self.page.get_by_role("slider", name=label, exact=True)
        slider.scroll_into_view_if_needed()
        box = slider.bounding_box()
        assert box is not None
        self.page.mouse.click(box["x"] + 12 + share * (box["width"] - 24), box["y"] + box["height"] / 2)
        self.settle()

    def colors(self, picture: str) -> int:
        """How many different fills the picture with this label has."""
        script = """label => new Set([...document.querySelectorAll(`svg[aria-label="${label}"] rect`)]
          .map((rect) => getComputedStyle(rect).fill)).size"""
        count: int = self.page.evaluate(script, picture)
        return count


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("playground") / "play.html"
    export(path)
    return path


@pytest.fixture(scope="module")  # in its thread no other loop of events can run
def browser() -> Iterator[Browser]:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None and "CI" in os.environ:
        pytest.fail("there is no chromium; .ci/run installs it")
    if found is None:
        pytest.skip("needs chromium on the PATH: the playground is tested in a real browser")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield running
        running.close()


@pytest.fixture
def open_chapter(browser: Browser, exported: Path) -> Iterator[Callable[..., Chapter]]:
    """open_chapter(name, settings, width=…): the chapter in a new page, which must not have complained at the end."""
    opened: list[Chapter] = []

    def opener(name: str, settings: str = "", *, width: int = 1280, height: int = 900, **options: Any) -> Chapter:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        chapter = Chapter(context.new_page(), exported.as_uri())
        opened.append(chapter)
        chapter.open(name, settings)
        return chapter

    yield opener
    for chapter in opened:
        chapter.page.context.close()
    assert [complaint for chapter in opened for complaint in chapter.complaints] == []
