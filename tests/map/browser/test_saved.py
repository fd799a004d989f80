"""A saved view in the browser: from a file, without a server and without a network."""

import re
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from regard.map import demo, save
from tests.map.browser.conftest import PATIENCE, Seen, Served, watch
from tests.map.browser.test_compare import FIRST, colors
from tests.map.browser.test_pixels import Slab, bytes_of, color_of

STRIPES = demo.HEADS.index("stripes")
Open = Callable[..., Seen]


@pytest.fixture
def open_file(browser: Browser) -> Iterator[Open]:
    """Opens a saved view; it may complain about nothing and request nothing but itself."""
    opened: list[Seen] = []

    def opener(path: Path, hash: str = "", size: tuple[int, int] = (1280, 800)) -> Seen:
        viewport = {"width": size[0], "height": size[1]}
        context = browser.new_context(viewport=viewport, reduced_motion="reduce", offline=True)  # type: ignore[arg-type]
        seen = Seen(context.new_page())
        opened.append(seen)
        watch(seen, exact=True)
        seen.page.goto(f"{path.as_uri()}#{hash}" if hash else path.as_uri())
        until = time.monotonic() + PATIENCE
        while not seen.state("idle") and time.monotonic() < until:
            seen.page.wait_for_timeout(20)
        seen.settle()
        return seen

    yield opener
    for seen in opened:
        seen.page.context.close()
    assert [complaint for seen in opened for complaint in seen.complaints] == []
    assert all(address.startswith("file:") for seen in opened for address in seen.asked)
    assert sum(len(seen.asked) for seen in opened) == len(opened)


def test_the_weights_of_a_short_text(open_file: Open, few: Served, tmp_path: Path) -> None:
    """Pointer, pin, profile, text and search answer from the file."""
    saved = save(few.capture_view, tmp_path / "view.html", head=2)
    seen, own = open_file(saved.path, size=(1400, 900)), few.head(2)
    assert "with the exact weights" in seen.page.locator(".note").inner_text()
    view = seen.state("view()")
    cells = [(q, k) for q in range(12) for k in range(q + 1)]
    for (q, k), color in zip(cells, colors(seen, FIRST, cells), strict=True):
        exact = Slab(own, q, 1).pooled(q, k, "max")
        assert color in {color_of(byte, 12, view) for byte in bytes_of(exact, 12)}, (q, k)
    seen.page.evaluate("window.regardMap.set({ row: 9, column: 4 })")
    seen.settle()
    card = seen.page.locator(".card")
    assert float(card.get_attribute("data-weight") or "nan") == pytest.approx(float(own[9, 4]), rel=1e-5)
    assert int(card.get_attribute("data-rank") or 0) == int((own[9, :10] > own[9, 4]).sum()) + 1
    entropy = re.search(r"entropy (\S+) nats", card.inner_text())
    assert entropy
    assert float(entropy[1]) == pytest.approx(float(own.entropy()[9]), abs=0.006)
    received = re.search(r"receives (\S+) in all", card.inner_text())
    assert received
    assert float(received[1]) == pytest.approx(float(own.received()[4]), rel=1e-3)
    text = "".join(seen.page.locator(".word").all_inner_texts())
    assert text.startswith("[CLS] the quick brown foxes jumped")
    title = seen.page.locator('.word[data-at="3"]').get_attribute("title") or ""
    factor = re.search(r"3: (\S+)× uniform", title)
    assert factor
    assert float(Fraction(factor[1])) == pytest.approx(float(own[9, 3]) * 10, rel=0.05)
    seen.page.keyboard.press("f")
    seen.page.keyboard.type("brown foxes")
    seen.settle()
    assert seen.page.locator(".found [role=option]").count() == 2
    seen.page.keyboard.press("Enter")
    seen.settle()
    assert seen.state("view()")["column"] == 3
    assert "column=3" in seen.page.url
    assert not seen.page.get_by_role("button", name="Compare with another head").is_visible()


@pytest.mark.parametrize("width", [500, 1280])
def test_the_levels_of_a_long_text(open_file: Open, small: Served, tmp_path: Path, width: int) -> None:
    """As far as they are inside, exact; nearer, larger squares of the same; the page says so."""
    saved = save(small.capture_view, tmp_path / "view.html", head=STRIPES, limit=6 << 20)
    seen, levels = open_file(saved.path, size=(width, 800)), small.capture_view.layers[0].levels
    assert saved.side > 1
    note = seen.page.locator(".note").inner_text()
    assert f"down to {saved.side} × {saved.side} weights; single weights are not" in note
    assert not seen.state("view()")["estimate"]
    assert seen.page.evaluate("document.documentElement.scrollWidth") == width
    seen.goto(q=10_000, k=7_144, scale=24 / saved.side)
    view = seen.state("view()")
    assert levels.side(view["level"]) == saved.side
    assert seen.colors() > 3
    n, side = 20_000, saved.side
    middle = {"q": (10_000 // side) * side + side // 2, "k": (7_144 // side) * side + side // 2}
    (color,) = colors(seen, FIRST, [(middle["q"], middle["k"])])
    exact = Slab(small.head(STRIPES), middle["q"], side).pooled(middle["q"], middle["k"], "max")
    assert color in {color_of(byte, n, view) for byte in bytes_of(exact, n)}
    seen.page.keyboard.press("+")
    seen.page.keyboard.press("+")
    seen.page.keyboard.press("+")
    seen.page.keyboard.press("+")
    seen.settle()
    assert seen.state("view()")["scale"] <= 96 / side * 1.001
    seen.page.keyboard.press("Enter")
    seen.settle()
    card = seen.page.locator(".card").inner_text()
    assert f"its finest squares are {side} × {side} weights" in card
    assert f"shown by squares of {side} weights a side" in card
    assert f"1 dot = {side} × {side} weights, the largest shown" in seen.page.locator(".meaning").inner_text()


def test_tokens_are_text_in_a_saved_view_too(open_file: Open, hostile: Served, tmp_path: Path) -> None:
    seen = open_file(save(hostile.capture_view, tmp_path / "view.html").path, size=(1400, 900))
    assert "<img src=x onerror=alert(1)>" in "".join(seen.page.locator(".word").all_inner_texts())
    assert seen.page.locator("img").count() == 0
    assert seen.page.locator("h1").inner_text() == "<i>hostile</i>"
