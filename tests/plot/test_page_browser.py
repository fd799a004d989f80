"""The page in a browser: exact weights under the pointer and by keyboard, and nothing that is loaded."""

import math
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

import regard
from regard.inspection.matrix.products import products
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

    def chip(self, head: int) -> Any:
        """The button that draws the lines of a head."""
        return self.page.locator(".chips button").nth(head)

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
    seen.page.locator("select[name=head]").select_option("0")
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
    seen.page.locator("select[name=layer]").select_option("0")
    seen.page.locator("select[name=head]").select_option("0")
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
    seen.page.get_by_label("words", exact=True).check()
    query, key, value = seen.point(1, 2)
    assert (query, key) == ("query 1 to 3: unbelievable", "key 4: 猫")
    assert weight(value) == pytest.approx(float(words(given[0])[0, 0, 1, 2]), rel=1e-5)
    assert weight(seen.point(2, 1)[2]) == pytest.approx(float(words(given[0])[0, 0, 2, 1]), rel=1e-5)
    assert "refused: its weights cannot be computed again" in seen.page.locator(".picker").inner_text()
    assert seen.page.locator("option:disabled").text_content() == "layer 1"
    assert seen.troubles == []


@pytest.mark.parametrize(
    "width, height, scheme", [(2560, 1440, "light"), (1280, 800, "dark"), (800, 600, "light"), (360, 740, "dark")]
)
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
    assert "each cell: the largest of up to 3 × 3 weights" in seen.page.locator(".summary").inner_text()
    seen.page.locator("select[name=cells]").select_option(label="mean weight")
    assert "each cell: the mean of up to 3 × 3 weights" in seen.page.locator(".summary").inner_text()
    assert seen.troubles == []


def test_lines_of_a_token_of_some_heads_and_as_a_file(tmp_path: Path, see: Callable[..., Seen]) -> None:
    tokens = ["[CLS]", EVIL[0], "b", "[SEP]", EVIL[1], "[SEP]"]
    matrix = causal(tokens)
    matrix.save(tmp_path / "page.html")
    seen = see(tmp_path / "page.html")
    seen.page.get_by_role("button", name="lines", exact=True).click()
    drawing, paths = seen.page.locator(".lines-drawing"), seen.page.locator(".lines-drawing path")
    seen.page.locator(".chips").get_by_label("head [0, 2]", exact=True).click()
    chosen = [int(chip) for chip in range(3) if seen.chip(chip).get_attribute("aria-pressed") == "true"]
    least = float(seen.page.locator(".lines-drawing").evaluate("() => document.querySelector('output').textContent"))
    strong = sum(int((matrix[0, head].dense() >= least).sum()) for head in chosen)
    assert abs(paths.count() - strong) <= 1  # the slider moves in steps
    drawing.focus()
    seen.press("ArrowDown", 5)
    lines = seen.told()
    assert lines[0] == f"query 4: {EVIL[1]} attends to"
    best = max(float(matrix[0, head, 4].max()) for head in chosen)
    assert weight(lines[1]) == pytest.approx(best, rel=5e-3)
    assert paths.count() == sum(int((matrix[0, head, 4] >= 0.001).sum()) for head in chosen)
    seen.press("ArrowRight")
    assert seen.told()[0] == f"key 4: {EVIL[1]} is attended to by"
    seen.press("Escape")
    assert seen.page.locator(".tip").is_hidden()
    seen.page.get_by_label("pairs").select_option("BA")
    seen.page.get_by_label("smallest weight that is drawn").fill("0")
    visible = sum(int((matrix[0, head, 4:, :4] > 0).sum()) for head in chosen)
    assert paths.count() == visible
    seen.page.get_by_label("without special tokens").check()
    assert paths.count() == len(chosen) * 2  # from B's one word to A's two
    with seen.page.expect_download() as saved:
        seen.page.get_by_role("button", name="save SVG").click()
    content = Path(saved.value.path()).read_text(encoding="utf-8")
    root = ElementTree.fromstring(content)
    assert [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")].count(f"{EVIL[1][:21]}…") == 2
    assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) == len(chosen) * 2
    assert seen.page.locator("img").count() == 0
    assert seen.troubles == []


def test_the_vectors_of_a_pair_give_its_weight(tmp_path: Path, see: Callable[..., Seen]) -> None:
    torch.manual_seed(3)
    tokens = list("abcdef")
    matrix = regard.matrix(
        torch.randn(1, 4, 6, 8), torch.randn(1, 2, 6, 8), mask="causal", query_tokens=tokens, key_tokens=tokens
    )
    matrix.save(tmp_path / "page.html")
    seen = see(tmp_path / "page.html", 1280, 1000)
    seen.page.locator("select[name=head]").select_option("3")
    seen.page.locator(".map canvas").focus()
    seen.press("ArrowDown", 5)
    seen.press("ArrowRight", 2)
    seen.press("Enter")
    pair, own = seen.page.locator(".pair"), products(matrix)
    assert pair.locator("h2").inner_text() == "query e → key c"
    each = (own.query[3, 4] * own.key[own.kv_head[3], 2]).double()
    total, score, rest = (
        float(number.replace("−", "-"))
        for number in re.findall(r"= (?:score )?([−\d.e-]+)|− ([−\d.]+)\)", pair.locator(".sums").inner_text())[:3]
        for number in number
        if number
    )
    assert total == pytest.approx(float(each.sum()), rel=5e-3)
    assert score == pytest.approx(float(each.sum()) * own.scale, rel=5e-3)
    assert math.exp(score - rest) == pytest.approx(float(matrix[0, 3, 4, 2]), rel=2e-2)
    assert weight(pair.locator(".sums").inner_text()) == pytest.approx(float(matrix[0, 3, 4, 2]), rel=1e-5)
    pair.locator("canvas").focus()
    seen.press("ArrowRight")
    assert seen.told()[0] == "dimension 0"
    assert weight(seen.told()[3].replace("−", "-")) == pytest.approx(float(each[0]), rel=5e-3)
    seen.press("Escape")
    assert pair.is_hidden()
    assert seen.troubles == []


def test_stored_weights_say_that_there_are_no_vectors(tmp_path: Path, see: Callable[..., Seen]) -> None:
    regard.AttentionMatrix.from_weights(torch.eye(3)).save(tmp_path / "page.html")
    seen = see(tmp_path / "page.html")
    seen.page.locator(".map canvas").focus()
    seen.press("ArrowDown")
    seen.press("Enter")
    assert "queries and keys are not there" in seen.page.locator(".pair").inner_text()
    assert seen.page.locator(".pair canvas").is_hidden()
    assert seen.troubles == []


@pytest.mark.parametrize("width", [360, 1400])
@pytest.mark.parametrize("count", [66, 300])
def test_a_long_text_keeps_its_words(tmp_path: Path, see: Callable[..., Seen], count: int, width: int) -> None:
    tokens = [f"word{n}" for n in range(count)]
    matrix = causal(tokens, heads=2)
    matrix.save(tmp_path / "page.html")
    seen = see(tmp_path / "page.html", width, 800)
    for _ in range(4 if count == 300 else 0):
        seen.page.get_by_label("larger").click()
    canvas = seen.page.locator(".map canvas")
    canvas.focus()
    seen.page.locator(".map").evaluate("(map) => map.scrollTo(1e6, 1e6)")
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    query, key, _ = seen.point(count - 1, count - 2)
    assert (query, key) == (f"query {count - 1}: word{count - 1}", f"key {count - 2}: word{count - 2}")
    seen.page.get_by_role("button", name="lines", exact=True).click()
    assert seen.page.locator(".lines-drawing text").count() == 2 * count + 2
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    seen.page.get_by_label("all at once").click()
    assert seen.page.locator(".lines").evaluate("(box) => box.scrollHeight - box.clientHeight") <= 20
    assert seen.troubles == []


def test_everything_has_a_name_and_is_reached_by_keyboard(
    tmp_path: Path, see: Callable[..., Seen], captured: Callable[..., Any], softmax: Callable[..., Any]
) -> None:
    save_capture(captured([softmax(3, 6, seed=1), softmax(3, 6, seed=2)], WORDS), tmp_path / "page.html")
    seen = see(tmp_path / "page.html")
    unnamed = seen.page.evaluate(
        """() => [...document.querySelectorAll("button, select, input, canvas[role], svg[role]")].filter(
          (each) => !(each.getAttribute("aria-label") || each.textContent.trim() || each.labels?.length)).length"""
    )
    assert unnamed == 0
    assert seen.page.locator(".picker .head").all_inner_texts() == ["0", "1", "2"]
    assert seen.page.locator(".picker .name").all_inner_texts() == ["0", "1"]
    assert seen.page.locator("select[name=layer] option").all_inner_texts() == ["layer 0", "layer 1"]
    reached = set()
    for _ in range(30):
        seen.press("Tab")
        reached.add(
            seen.page.evaluate(
                "(document.activeElement.getAttribute('aria-label') || document.activeElement.name || "
                "document.activeElement.textContent).split(/[;,:]/)[0]"
            )
        )
    assert {"map", "lines", "layer", "head", "larger", "light / dark", "Heatmap of attention weights"} <= reached
    assert any(name.startswith("layer ") for name in reached)
    assert seen.troubles == []


def test_a_capture_in_a_notebook_is_the_page(tmp_path: Path, see: Callable[..., Seen]) -> None:
    capture = regard.capture(torch.nn.MultiheadAttention(8, 2, batch_first=True), *[torch.randn(1, 5, 8)] * 3)
    (tmp_path / "notebook.html").write_text(f"<!DOCTYPE html><body>{capture._repr_html_()}", encoding="utf-8")
    seen = see(tmp_path / "notebook.html")
    frame = seen.page.frame_locator("iframe")
    frame.get_by_role("button", name="lines", exact=True).click()
    assert frame.locator(".lines-drawing path").count() > 0
    frame.get_by_role("button", name="map", exact=True).click()
    assert frame.locator(".map canvas").is_visible()
    assert [trouble for trouble in seen.troubles if "about:srcdoc" not in trouble] == []


def test_a_difference_has_signed_numbers_and_colors(tmp_path: Path, see: Callable[..., Seen]) -> None:
    difference = causal(list("abcdef")) - causal(list("abXdef"), heads=6)[:, 3:]
    difference.save(tmp_path / "page.html")
    seen = see(tmp_path / "page.html")
    assert seen.page.get_by_role("button", name="lines", exact=True).count() == 0
    seen.page.locator("select[name=head]").select_option("1")
    query, key, value = seen.point(4, 2)
    assert (query, key) == ("query 4: e", "key 2: c / X")
    assert value.startswith("difference ")
    assert weight(value) == pytest.approx(float(difference[0, 1, 4, 2]), rel=1e-5)
    low, high = (float(each) for each in seen.page.locator(".scale > span").all_inner_texts()[:2])
    assert low == -high
    assert seen.point(1, 4)[2] == "hidden"
    seen.page.locator(".map canvas").click()
    assert "a difference has no queries and keys of its own" in seen.page.locator(".pair").inner_text()
    assert seen.troubles == []
