"""The page as a person uses it: pointer, keys, search, heads, the address, saved files."""

import re
import xml.etree.ElementTree
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib.image
import pytest

from regard.map import demo

if TYPE_CHECKING:
    from tests.map.browser.conftest import Opener, Seen, Served

N = 100_000
ROUNDING = 2 * 32 * 2**-24  # of e to a float32 logit of up to 32, computed in two ways
BAND, STRIPES, SINK, NEEDLE = (demo.HEADS.index(name) for name in ("band", "stripes", "sink", "needle"))


def on_screen(seen: "Seen", q: float, k: float) -> tuple[float, float]:
    """Where the middle of a cell is on the page."""
    view, box = seen.state("view()"), seen.page.locator("canvas.plot").bounding_box()
    assert box is not None
    return (
        box["x"] + (k + 0.5) * view["scale"] + view["offset"]["x"],
        box["y"] + (q + 0.5) * view["scale"] + view["offset"]["y"],
    )


def tip(seen: "Seen") -> dict[str, Any]:
    found: dict[str, Any] = seen.page.evaluate("({ ...document.querySelector('.tip').dataset })")
    return found


def test_the_whole_of_100000_opens_and_says_what_it_shows(open_map: "Opener", large: "Served") -> None:
    seen = open_map(large, f"head={STRIPES}")
    view = seen.state("view()")
    assert view["box"]["q0"] <= 0
    assert view["box"]["k1"] >= N
    assert seen.page.locator(".meaning").inner_text() == "1 dot = 256 × 256 weights, the largest shown"
    assert seen.colors() > 8
    notice = seen.page.locator(".notice")
    assert view["estimate"] == notice.is_visible() == seen.page.locator(".estimate-corner").is_visible()
    assert not view["estimate"] or notice.inner_text().startswith("Estimate")


def test_dragging_and_the_wheel_move_the_map_and_keep_what_is_under_the_pointer(
    open_map: "Opener", large: "Served"
) -> None:
    seen = open_map(large, f"head={STRIPES}&at=60000,50000,2")
    mouse, before = seen.page.mouse, seen.state("view()")
    mouse.move(600, 400)
    mouse.down()
    mouse.move(500, 350, steps=4)
    mouse.up()
    seen.settle()
    after = seen.state("view()")
    assert (after["q"] - before["q"], after["k"] - before["k"]) == pytest.approx((25, 50))
    assert after["row"] is None  # a drag is not a click
    x, y = on_screen(seen, 60_000, 50_000)
    mouse.move(x, y)
    mouse.wheel(0, -400)
    seen.settle()
    assert seen.state("view()")["scale"] > 2.5
    assert on_screen(seen, 60_000, 50_000) == pytest.approx((x, y), abs=3)


def test_tiles_that_left_the_view_are_given_up(open_map: "Opener", large: "Served") -> None:
    seen = open_map(large, f"head={STRIPES}&at=90000,20000,0.08")
    for q in range(30_000, 90_000, 3_000):
        seen.page.evaluate("q => window.regardMap.goto({ q, k: q / 2, scale: 0.08 })", q)
        seen.page.wait_for_timeout(60)
    seen.settle()
    counts = seen.state("counts")
    assert counts["aborted"] > 0
    seen.complaints.clear()  # a browser may report an aborted request
    assert seen.colors() > 8


def test_the_pointer_reads_the_exact_weight(open_map: "Opener", large: "Served") -> None:
    seen, words = open_map(large, f"head={STRIPES}&at=60000,45716,30"), demo.tokens(N)
    for q, k in [(60_000, 45_716), (60_000, 45_720), (99_999, 99_998), (60_000, 60_001)]:
        seen.goto(q=q + 0.5, k=k + 0.5, scale=30)
        seen.page.mouse.move(*on_screen(seen, q, k))
        seen.page.wait_for_timeout(150)
        seen.settle()
        told, text, row = tip(seen), seen.page.locator(".tip").inner_text(), large.head(STRIPES)[q : q + 1, :][0]
        assert (told["q"], told["k"], told["state"]) == (str(q), str(k), "exact")
        assert re.search(rf"query\s*{q:,}\s*{re.escape(words[q])}\s*key\s*{k:,}\s*{re.escape(words[k])}", text)
        if k > q:
            assert "does not see" in text
            continue
        assert float(told["weight"]) == pytest.approx(float(row[k]), rel=ROUNDING)
        assert int(told["rank"]) == int((row > row[k]).sum()) + 1
        shown = re.search(r"(\S+) \S+× uniform", text)
        assert shown
        assert float(shown[1]) == pytest.approx(float(row[k]), rel=1e-3)


def test_the_needle_is_found_from_the_overview(open_map: "Opener", large: "Served") -> None:
    n = large.capture_view.layers[0].keys
    seen = open_map(large, f"head={NEEDLE}", wait="exact")
    seen.page.keyboard.press("s")
    seen.settle()
    seen.page.keyboard.press("Enter")  # the strongest is the first of the list, and has the focus
    seen.settle()
    assert not seen.page.locator(".menu .entry").first.is_visible()
    q, k = demo.needle(n)
    view = seen.state("view()")
    assert (view["row"], view["column"]) == (q, k)
    assert (view["q"], view["k"]) == pytest.approx((q + 0.5, k + 0.5))
    card = seen.page.locator(".card")
    weight = float(large.head(NEEDLE)[q : q + 1, k : k + 1])
    assert float(card.get_attribute("data-weight") or "nan") == pytest.approx(weight, rel=ROUNDING)
    assert "rank 1 of" in card.inner_text()
    assert "needle" in card.inner_text()


def test_a_click_pins_and_escape_unpins(open_map: "Opener", small: "Served") -> None:
    q, k = 15_000, 9_000
    seen = open_map(small, f"head={BAND}&at={q},{k},20")
    seen.page.mouse.click(*on_screen(seen, q, k))
    seen.settle()
    view, card = seen.state("view()"), seen.page.locator(".card")
    assert (view["row"], view["column"]) == (q, k)
    row = small.head(BAND)[q : q + 1, :][0]
    assert float(card.get_attribute("data-weight") or "nan") == pytest.approx(float(row[k]), rel=ROUNDING)
    best = card.locator("section").first.locator(".entry").first
    assert f"{int(row.argmax()):,}" in best.inner_text()
    best.click()
    seen.settle()
    assert seen.state("view()")["column"] == int(row.argmax())
    seen.page.keyboard.press("Escape")
    seen.settle()
    assert (seen.state("view()")["row"], card.is_visible()) == (None, False)
    seen.page.mouse.click(20, on_screen(seen, q, k)[1])  # the axis of queries
    seen.settle()
    assert (seen.state("view()")["row"], seen.state("view()")["column"]) == (q, None)


def test_the_keyboard_reaches_everything(open_map: "Opener", small: "Served") -> None:
    seen = open_map(small, f"head={BAND}")
    press = seen.page.keyboard.press

    def view() -> dict[str, Any]:
        found: dict[str, Any] = seen.state("view()")
        return found

    seen.page.locator("canvas.plot").focus()
    scale = view()["scale"]
    for _ in range(3):
        press("+")
    seen.settle()
    assert view()["scale"] == pytest.approx(scale * 1.5**3)
    place = view()
    press("ArrowRight")
    press("ArrowDown")
    seen.settle()
    assert (view()["q"] > place["q"], view()["k"] > place["k"]) == (True, True)
    press("m")
    assert view()["statistic"] == "mean"
    press("]")
    seen.settle()
    assert view()["head"] == BAND + 1
    press("[")
    press("g")
    seen.page.keyboard.type("12000, 11990")
    press("Enter")
    seen.settle()
    assert (view()["row"], view()["column"]) == (12_000, 11_990)
    assert (view()["q"], view()["k"]) == pytest.approx((12_000.5, 11_990.5))
    press("Shift+ArrowLeft")
    press("Shift+ArrowUp")
    seen.settle()
    assert (view()["row"], view()["column"]) == (11_999, 11_989)
    press("f")
    seen.page.keyboard.type("needle?")
    seen.page.wait_for_timeout(200)
    seen.settle()
    words, at = demo.tokens(20_000), demo.needle(20_000)[0]
    assert "".join(words[at - 3 : at + 4]) in re.sub(r"\s", "", seen.page.locator(".found").inner_text())
    press("Enter")
    seen.settle()
    assert demo.needle(20_000)[0] in (view()["row"], view()["column"])
    press("Escape")
    press("h")
    seen.settle()
    assert seen.page.locator(".picker").is_visible()
    press("ArrowRight")
    press("Enter")
    seen.settle()
    assert view()["head"] == BAND + 1
    press("Escape")
    press("?")
    assert "find words" in seen.page.locator(".menu.help").inner_text()
    press("Escape")
    press("0")
    seen.settle()
    assert view()["scale"] == pytest.approx(scale)
    assert seen.page.evaluate("document.activeElement.className") == "plot"


def test_the_address_keeps_the_view_and_back_leads_back(open_map: "Opener", large: "Served") -> None:
    seen = open_map(large, f"head={STRIPES}&at=61234.5,43210.25,3&row=61234&column=43210&statistic=mean&scale=linear")
    view, kept = seen.state("view()"), seen.page.url
    assert (view["head"], view["row"], view["column"], view["statistic"]) == (STRIPES, 61_234, 43_210, "mean")
    assert (view["q"], view["k"], view["scale"]) == pytest.approx((61_234.5, 43_210.25, 3))
    assert "token" not in kept
    seen.page.locator(".search input").fill("77, 11")
    seen.page.keyboard.press("Enter")
    seen.settle()
    assert seen.state("view()")["row"] == 77
    assert seen.page.url != kept
    seen.page.go_back()
    seen.settle()
    assert seen.page.url == kept
    assert seen.state("view()") | {"low": 0, "high": 0} == view | {"low": 0, "high": 0}
    seen.page.go_forward()
    seen.settle()
    assert seen.state("view()")["row"] == 77
    other = open_map(large, kept.split("#")[1])
    assert (other.state("view()")["q"], other.state("view()")["scale"]) == (view["q"], view["scale"])


@pytest.mark.parametrize("wrong", ["head=99&layer=-1&at=a,b,c&%%%", "at=1,2&row=100000&threshold=x&scale=loud"])
def test_a_wrong_address_shows_the_whole(open_map: "Opener", small: "Served", wrong: str) -> None:
    view = open_map(small, wrong).state("view()")
    assert (view["head"], view["row"], view["box"]["k0"] <= 0) == (0, None, True)


def test_another_head_keeps_the_place(open_map: "Opener", small: "Served") -> None:
    seen = open_map(small, "at=11234.5,3210.25,3")
    before = seen.state("view()")
    seen.page.keyboard.press("]")
    seen.settle()
    after = seen.state("view()")
    assert (after["head"], after["q"], after["k"], after["scale"]) == (1, before["q"], before["k"], before["scale"])


def test_saved_pictures_hold_the_map_its_axes_and_its_scale(
    open_map: "Opener", small: "Served", tmp_path: Path
) -> None:
    seen = open_map(small, f"head={BAND}&at=15000.5,14990.5,20", accept_downloads=True)
    with seen.page.expect_download() as waiting:
        seen.page.keyboard.press("E")
    waiting.value.save_as(tmp_path / "view.svg")
    root = xml.etree.ElementTree.parse(tmp_path / "view.svg").getroot()
    words = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"15,000", "1×", "1 square = 1 weight, 20 pixels wide"} <= words
    assert demo.tokens(20_000)[15_000] in words
    assert len(list(root.iter("{http://www.w3.org/2000/svg}image"))) == 1
    with seen.page.expect_download() as waiting:
        seen.page.keyboard.press("e")
    waiting.value.save_as(tmp_path / "view.png")
    picture = matplotlib.image.imread(tmp_path / "view.png")
    assert picture.shape[1] == 1280
    rows = {tuple(color) for color in (picture[200:600:7, 200:1200:7, :3] * 255).round().astype(int).reshape(-1, 3)}
    on_map = {
        tuple(each[:3]) for each in seen.pixels([(x, y) for x in range(200, 900, 31) for y in range(150, 500, 31)])
    }
    assert len(rows) > 20
    assert len(on_map & rows) > 10


def test_tokens_with_markup_are_text(open_map: "Opener", hostile: "Served") -> None:
    seen = open_map(hostile, "row=0&column=1")
    assert seen.page.locator("h1").inner_text() == "<i>hostile</i>"
    card = seen.page.locator(".card").inner_text()
    assert "<img src=x onerror=alert(1)>" in card
    assert "</script>" in card
    seen.page.locator(".search input").fill("<")
    seen.page.wait_for_timeout(200)
    seen.settle()
    assert "<b>bold</b>" in seen.page.locator(".found").inner_text()
    seen.page.mouse.move(*on_screen(seen, 4, 3))
    seen.page.wait_for_timeout(150)
    seen.settle()
    words = seen.page.locator(".tip").inner_text()
    assert "a↵b" in words
    assert "\\u202eabc" in words
    assert seen.page.locator(".regard-map img, .regard-map b, .regard-map i, .regard-map script").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_page_has_everything_within_reach(open_map: "Opener", small: "Served", scheme: str) -> None:
    size = {"width": 390, "height": 844}
    seen = open_map(small, viewport=size, color_scheme=scheme, has_touch=True, device_scale_factor=2)
    assert seen.page.locator(".regard-map").get_attribute("data-theme") == scheme
    assert seen.page.evaluate("document.documentElement.scrollWidth") == 390
    tools = (".top .chip", ".search input", ".tools button", ".zoom button")
    names = (*tools, ".legend .segmented button", ".legend select")
    for name in names:
        for each in seen.page.locator(name).all():
            box = each.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 390
            assert box["y"] + box["height"] <= 844
    scale = seen.state("view()")["scale"]
    for _ in range(2):
        seen.page.touchscreen.tap(150, 300)
    seen.settle()
    assert (seen.state("view()")["scale"], seen.state("view()")["row"]) == (pytest.approx(2 * scale), None)
    seen.page.touchscreen.tap(150, 300)
    seen.settle()
    assert seen.page.locator(".card").is_visible()
    assert seen.colors() > 8


def test_the_server_may_go_away_and_come_back(open_map: "Opener", small: "Served") -> None:
    seen = open_map(small, "at=12000,11000,2")
    seen.page.context.set_offline(True)
    seen.page.evaluate("window.regardMap.goto({ q: 17000, k: 3000, scale: 2 })")
    seen.page.locator(".notice.trouble").wait_for()
    seen.page.context.set_offline(False)
    seen.settle()
    assert not seen.page.locator(".notice").is_visible()
    assert all("ERR_INTERNET_DISCONNECTED" in text for text in seen.complaints)
    seen.complaints.clear()


def test_the_threshold_hides_what_is_weak(open_map: "Opener", small: "Served") -> None:
    seen = open_map(small, f"head={SINK}&at=15000,100,4&threshold=3")
    assert seen.page.locator(".scale input").get_attribute("aria-valuetext") == "below 8× uniform is hidden"
    assert seen.page.locator(".scale input").is_visible()
    x, y = on_screen(seen, 15_000, 100)
    box = seen.page.locator("canvas.plot").bounding_box()
    assert box is not None
    assert seen.pixels([(round(x - box["x"]), round(y - box["y"]))]) == [[255, 255, 255, 255]]
    strong = seen.pixels([(round(on_screen(seen, 15_000, 0)[0] - box["x"]), round(y - box["y"]))])
    assert strong != [[255, 255, 255, 255]]
