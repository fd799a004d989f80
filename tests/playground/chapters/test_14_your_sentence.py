"""Chapter 14: with `regard play` running, models answer as one types; in a file the chapter says what it needs."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from regard.map.serve import listening
from regard.map.server import PageServer
from regard.playground.serve import server

EVIL = "<img src=x onerror=alert(1)> cats </script>"


@pytest.fixture(scope="module")
def running() -> Iterator[PageServer]:
    served = server(listening(0))
    thread = threading.Thread(target=served.run, daemon=True)
    thread.start()
    while not served.started:
        time.sleep(0.01)
    yield served
    served.stop()
    thread.join(20)


def until(page: Any, script: str, seconds: float = 120) -> None:
    """Playwright's own waiting needs eval, which the page forbids."""
    end = time.monotonic() + seconds
    while not page.evaluate(script):
        assert time.monotonic() < end, page.locator(".stage .sentence").inner_text()
        page.wait_for_timeout(50)


def test_a_file_says_what_it_needs(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("your-sentence", "&sentence=" + EVIL.replace(" ", "%20"))
    assert "run regard play" in chapter.page.locator(".stage .sentence").inner_text()
    assert chapter.page.get_by_label("your sentence").input_value() == EVIL
    assert chapter.page.locator("main img").count() == 0


def test_models_answer_as_one_types(browser: Browser, running: PageServer, get_model: Callable[[str], Path]) -> None:
    for name in ("minilm", "smollm2"):
        get_model(name)
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append("dialog"))
    page.goto(running.address)
    page.evaluate("location.hash = '#chapter=your-sentence'")
    tokens = "[...document.querySelectorAll('svg[aria-label=\"Weights of the chosen head\"] .rows text')]"
    until(page, f"{tokens}.length > 5")
    page.get_by_label("your sentence").fill(EVIL)
    until(page, f"{tokens}.some((text) => text.textContent === 'cats')")
    assert page.locator("main img").count() == 0
    bars = "document.querySelectorAll('svg[aria-label=\"Probabilities of the next token\"] .fills rect')"
    until(page, f"{bars}.length === 12")
    first = page.locator('svg[aria-label="Probabilities of the next token"] .names text').first.text_content()
    assert first is not None
    assert "Rome" in first
    numbers = page.locator('svg[aria-label="Probabilities of the next token"] .numbers text')
    before = numbers.all_text_contents()
    page.evaluate("window.regardPlay.set({ off: Array.from({ length: 90 }, (_, n) => 3 * n) })")
    until(
        page,
        f"JSON.stringify({before!r}) !== JSON.stringify([...document.querySelectorAll("
        "'svg[aria-label=\"Probabilities of the next token\"] .numbers text')].map((text) => text.textContent))",
    )
    assert complaints == []
    page.context.close()
