"""The page in a browser: exact weights under the pointer and by keyboard, and nothing that is loaded."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.plot.capture import save_capture
from regard.plot.words import words

playwright = pytest.importorskip("playwright.sync_api", reason="the page is looked at through playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None and "CI" not in os.environ, reason="no chromium on the PATH")

OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
EVIL = ["<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>", "\u202eevil", "שלום", "😀", "日本語"]
WORDS = ["[CLS]", "un", "##believ", "##able", "猫", "[SEP]"]


class Seen:
    """A page, and all that it said, asked for or ran into."""

    def __init__(self, page: Any, path: Path) -> None:
        self.page, self.troubles = page, list[str]()
        page.on("console", lambda message: self.troubles.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        page.on("dialog", self._dismissed)
        page.on("request", self._asked)
        self._address = path.as_uri()
        page.goto(self._address)

    def _dismissed(self, dialog: Any) -> None:
        self.troubles.append("dialog")
        dialog.dismiss()

    def _asked(self, request: Any) -> None:
        if request.url != self._address:
            self.troubles.append(f"request: {request.url}")

    def point(self, row: int, column: int) -> list[str]:
        """What the page tells about a cell of the map."""
        map = self.page.locator(".map canvas")
        map.scroll_into_view_if_needed()
        box = map.bounding_box()
        left, top, side = (float(map.get_attribute(f"data-{name}")) for name in ("left", "top", "side"))
        self.page.mouse.move(box["x"] + left + (column + 0.5) * side, box["y"] + top + (row + 0.5) * side)
        return self.told()

    def told(self) -> list[str]:
        """The lines of the tip."""
        lines: list[str] = self.page.locator(".tip > div").all_inner_texts()
        return lines

    def press(self, key: str, times: int = 1) -> None:
        """Some strokes of a key."""
        for _ in range(times):
            self.page.keyboard.press(key)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=list(OPTIONS))
        yield opened
        opened.close()


@pytest.fixture
def see(browser: Any) -> Iterator[Callable[..., Seen]]:
    contexts = []

    def seen(path: Path, width: int = 1280, height: int = 800, scheme: str = "light") -> Seen:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        contexts.append(context)
        return Seen(context.new_page(), path)

    yield seen
    for context in contexts:
        context.close()


def weight(line: str) -> float:
    return float(line.rsplit(" ", 1)[1])


def causal(tokens: list[str], heads: int = 3) -> regard.AttentionMatrix:
    torch.manual_seed(4)
    q, k = torch.randn(1, heads, len(tokens), 8), torch.randn(1, heads, len(tokens), 8)
    return regard.matrix(q, k, mask="causal", query_tokens=tokens, key_tokens=tokens)


def test_pointer_keys_and_heads_of_a_matrix(tmp_path: Path, see: Callable[..., Seen]) -> None:
    matrix = causal(EVIL)
    matrix.save(tmp_path / "page.html", title=EVIL[1])
    seen = see(tmp_path / "page.html")
    query, key, value = seen.point(4, 1)
    assert (query, key) == ("query 4: 😀", f"key 1: {EVIL[1]}")
    assert weight(value) == pytest.approx(float(matrix[0, 0, 4, 1]), rel=1e-5)
    assert seen.point(1, 4)[2] == "hidden"
    seen.page.locator("select[name=head]").select_option("2")
    assert weight(seen.point(5, 2)[2]) == pytest.approx(float(matrix[0, 2, 5, 2]), rel=1e-5)
    assert seen.told()[1] == r"key 2: \u202eevil"
    seen.page.mouse.move(0, 0)
    seen.page.locator(".map canvas").focus()
    seen.press("ArrowDown", 4)  # the first stroke shows the first cell
    seen.press("ArrowRight", 2)
    assert seen.told()[:2] == ["query 3: שלום", r"key 2: \u202eevil"]
    assert weight(seen.told()[2]) == pytest.approx(float(matrix[0, 2, 3, 2]), rel=1e-5)
    seen.press("Escape")
    assert seen.page.locator(".tip").is_hidden()
    assert seen.page.locator("h1").inner_text() == EVIL[1]
    assert seen.page.locator("img").count() == 0
    assert seen.troubles == []


def test_layers_heads_and_words_of_a_capture(
    tmp_path: Path, see: Callable[..., Seen], captured: Callable[..., Any], softmax: Callable[..., Any]
) -> None:
    given = captured([softmax(4, 6, seed=1), None, softmax(2, 3, 6, seed=2), softmax(4, 6, seed=3)], WORDS)
    save_capture(given, tmp_path / "page.html", title="a capture")
    seen = see(tmp_path / "page.html")
    assert weight(seen.point(2, 5)[2]) == pytest.approx(float(given[0][0, 0, 2, 5]), rel=1e-5)
    seen.page.locator("select[name=layer]").select_option("3")
    seen.page.locator("select[name=head]").select_option("1")
    query, key, value = seen.point(1, 4)
    assert (query, key) == ("query 1: un", "key 4: 猫")
    assert weight(value) == pytest.approx(float(given[3][0, 1, 1, 4]), rel=1e-5)
    seen.page.locator(".picker button[aria-pressed='true']").focus()
    seen.press("ArrowRight")
    assert seen.page.locator("select[name=head]").input_value() == "2"
    seen.press("ArrowUp")  # over the refused layer, to one with two heads
    assert seen.page.locator("select[name=layer]").input_value() == "2"
    assert seen.page.locator("select[name=head]").input_value() == "1"
    assert weight(seen.point(2, 4)[2]) == pytest.approx(float(given[2][0, 1, 2, 4]), rel=1e-5)
    seen.page.locator(".picker button").first.click()
    seen.page.locator("input[type=checkbox]").check()
    query, key, value = seen.point(1, 2)
    assert (query, key) == ("query 1 to 3: unbelievable", "key 4: 猫")
    assert weight(value) == pytest.approx(float(words(given[0])[0, 0, 1, 2]), rel=1e-5)
    assert weight(seen.point(2, 1)[2]) == pytest.approx(float(words(given[0])[0, 0, 2, 1]), rel=1e-5)
    assert "refused: its weights cannot be computed again" in seen.page.locator(".picker").inner_text()
    assert seen.page.locator("option:disabled").inner_text() == "1 blocks.1.attention"
    assert seen.troubles == []


@pytest.mark.parametrize("width, height, scheme", [(1280, 800, "dark"), (800, 600, "light"), (390, 844, "dark")])
def test_the_page_fits_every_window_and_draws_colors(
    tmp_path: Path, see: Callable[..., Seen], width: int, height: int, scheme: str
) -> None:
    torch.manual_seed(0)
    regard.matrix(*torch.randn(2, 1, 2, 400, 8), mask="causal").save(tmp_path / "page.html")
    seen = see(tmp_path / "page.html", width, height, scheme)
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    paper = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    seen.page.locator("button:has-text('light / dark')").click()
    assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") != paper
    colors = seen.page.evaluate(
        """() => {
          const map = document.querySelector(".map canvas");
          const dots = map.getContext("2d").getImageData(0, 0, map.width, map.height).data;
          const found = new Set();
          for (let n = 0; n < dots.length; n += 4) found.add(dots.slice(n, n + 3).join());
          return found.size;
        }"""
    )
    assert colors > 50
    assert seen.troubles == []


def test_a_long_matrix_tells_what_its_cells_hold(tmp_path: Path, see: Callable[..., Seen]) -> None:
    weights = torch.zeros(2100, 2100)
    weights[7, 1050] = 1.0
    regard.AttentionMatrix.from_weights(weights).save(tmp_path / "page.html")
    seen = see(tmp_path / "page.html")
    seen.page.locator(".map canvas").focus()
    seen.press("ArrowDown", 3)
    assert seen.told()[0] == "query 6 to 8"
    assert "each cell: the largest of up to 3 × 3 weights" in seen.page.locator(".note").inner_text()
    seen.page.locator("select[name=cells]").select_option(label="mean weight")
    assert "each cell: the mean of up to 3 × 3 weights" in seen.page.locator(".note").inner_text()
    assert seen.troubles == []
