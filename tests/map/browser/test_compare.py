"""Two heads at once: linked panes, and their difference, whose every color is that of A − B."""

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch

from regard.inspection.matrix import matrix
from regard.map import CaptureView, demo
from regard.map.levels import SIGNED_STEP
from regard.map.views import LayerView
from tests.map.browser.conftest import Served, serving
from tests.map.browser.test_pixels import Slab, bytes_of, color_of, ramp

if TYPE_CHECKING:
    from tests.map.browser.conftest import Opener, Seen

N = 100_000
BAND, STRIPES, SINK = (demo.HEADS.index(name) for name in ("band", "stripes", "sink"))

PIXELS = """([name, points]) => {
  const canvas = document.querySelector(name), { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  return points.map(([x, y]) => Array.from(data.slice(4 * (y * width + x), 4 * (y * width + x) + 3)));
}"""
FIRST, SECOND = "canvas.plot", "canvas.twin"


def middle(view: dict[str, Any], q: int, k: int) -> tuple[int, int]:
    """The pixel in the middle of a cell, or the one pixel of the dot that starts with it."""
    half = view["scale"] / 2 if view["scale"] > 1 else 0.5
    x, y = (math.floor(at * view["scale"] + view["offset"][axis] + half) for at, axis in ((k, "x"), (q, "y")))
    return x, y


def colors(seen: "Seen", canvas: str, cells: list[tuple[int, int]]) -> list[tuple[int, ...]]:
    view = seen.state("view()")
    found = seen.page.evaluate(PIXELS, [canvas, [middle(view, q, k) for q, k in cells]])
    return [tuple(color) for color in found]


def signed_colors(value: float, keys: int, view: dict[str, Any]) -> set[tuple[int, ...]]:
    """The colors that a difference times visible keys may have, two of them where it lies between two bytes."""
    top, found = math.ceil(math.log2(keys)), set()
    for shift in (-0.02, 0.0, 0.02):
        exact = 127 + ((math.log2(abs(value)) if value else -math.inf) - top) / SIGNED_STEP
        steps = min(max(round(exact + shift) if math.isfinite(exact) else 0, 0), 127)
        part = 0.5
        if steps:
            log = top - (127 - steps) * SIGNED_STEP
            part += math.copysign(0.5, value) * min(max((log - view["low"]) / (view["high"] - view["low"]), 0), 1)
        found.add(ramp(view["colors"], part))
    return found


def test_both_panes_show_their_head_at_100000(open_map: "Opener", large: Served) -> None:
    """One scale of colors, one place; every pixel is that of the pane's own head."""
    seen = open_map(large, f"head={STRIPES}&compare=0,{BAND}&at=60000.5,59990.5,12")
    view = seen.state("view()")
    assert (view["other"], view["mode"]) == ({"layer": 0, "batch": 0, "head": BAND}, "side")
    cells = [(60_000 + row, 60_000 + row - back) for row in (-12, 0, 9) for back in (0, 1, 2, 5, 9)]
    for canvas, head in ((FIRST, STRIPES), (SECOND, BAND)):
        found = colors(seen, canvas, cells)
        for (q, k), color in zip(cells, found, strict=True):
            exact = Slab(large.head(head), q, 1).pooled(q, k, "max")
            assert color in {color_of(byte, N, view) for byte in bytes_of(exact, N)}, (head, q, k)
    assert colors(seen, FIRST, cells) != colors(seen, SECOND, cells)


@pytest.mark.parametrize("how", ["max", "mean"])
@pytest.mark.parametrize("scale", [20, 1 / 8])
def test_the_difference_has_the_colors_of_the_difference(
    open_map: "Opener", large: Served, how: str, scale: float
) -> None:
    """Along the band, where B has more, and along a stripe, where A has."""
    seen = open_map(large, f"head={STRIPES}&compare=0,{BAND}&mode=difference&statistic={how}")
    both, side = large.head(STRIPES) - large.head(BAND), 1 if scale == 20 else 8
    for start, sign in ((0, -1), (demo.period(N) - 1, 1)):
        seen.goto(q=60_000.5, k=60_000.5 - start, scale=scale)
        view, signs = seen.state("view()"), set()
        assert not view["estimate"]
        assert large.capture_view.layers[0].levels.side(view["level"]) == side
        cells = [
            ((60_000 // side + row) * side, ((60_000 - start) // side + row - back) * side)
            for row in (-8, 0, 8)
            for back in (-1, 0, 1, 2, 4)
            if start or back >= 0
        ]
        found = colors(seen, FIRST, cells)
        for (q, k), color in zip(cells, found, strict=True):
            visible = torch.arange(q, q + side).view(-1, 1) + 1
            part = both[q : q + side, k : k + side].double() * visible
            shown = part[torch.arange(k, k + side) < visible]
            value = float(shown.mean() if how == "mean" else shown[shown.abs().argmax()])
            assert color in signed_colors(value, N, view), (q, k, value)
            signs.add(math.copysign(1, value))
        assert sign in signs
    statistic = "the largest by size" if how == "max" else "the mean"
    dot = f"1 dot = 8 × 8 differences, {statistic} shown"
    meaning = "1 square = 1 difference, 20 pixels wide" if side == 1 else dot
    assert seen.page.locator(".meaning").inner_text() == meaning


def test_a_coarse_difference_says_that_it_is_an_estimate(open_map: "Opener", large: Served) -> None:
    seen = open_map(large, f"head={STRIPES}&compare=0,{BAND}&mode=difference")
    assert seen.state("view()")["estimate"]
    assert seen.page.locator(".notice").inner_text().startswith("Estimate")
    assert seen.page.locator(".estimate-corner").is_visible()
    assert seen.colors() > 8


def test_the_exact_levels_of_a_difference_follow(open_map: "Opener", small: Served) -> None:
    seen = open_map(small, f"head={STRIPES}&compare=0,{SINK}&mode=difference", wait="exact")
    seen.settle()
    view = seen.state("view()")
    assert not view["estimate"]
    assert not seen.page.locator(".notice").is_visible()
    assert view["level"] < small.capture_view.layers[0].levels.exact_from


def test_moving_one_pane_moves_both(open_map: "Opener", small: Served) -> None:
    seen = open_map(small, f"head={STRIPES}&compare=0,{BAND}")
    home, twin = seen.state("view()"), seen.page.locator(SECOND).bounding_box()
    assert twin is not None
    x, y = int(twin["x"] + twin["width"] / 2), int(twin["y"] + twin["height"] / 2)  # a click has whole pixels
    seen.page.mouse.move(x, y)
    seen.page.mouse.wheel(0, -400)
    seen.settle()
    near = seen.state("view()")
    assert near["scale"] > 1.5 * home["scale"]
    seen.page.mouse.down()
    seen.page.mouse.move(x - 90, y - 60, steps=4)
    seen.page.mouse.up()
    seen.settle()
    dragged = seen.state("view()")
    assert (dragged["offset"]["x"], dragged["offset"]["y"]) == pytest.approx(
        (near["offset"]["x"] - 90, near["offset"]["y"] - 60), abs=1
    )
    seen.page.mouse.click(x, y)
    seen.settle()
    pinned = seen.state("view()")
    offset, scale = dragged["offset"], dragged["scale"]
    q, k = int((y - twin["y"] - offset["y"]) / scale), int((x - twin["x"] - offset["x"]) / scale)
    assert (pinned["row"], pinned["column"]) == (q, k)


def test_the_pointer_and_the_card_tell_both(open_map: "Opener", few: Served) -> None:
    seen = open_map(few, "head=3&compare=0,1&row=8&column=3")
    first, second = (float(few.head(head)[8, 3]) for head in (3, 1))
    card = seen.page.locator(".card").inner_text()
    assert float(seen.page.locator(".card").get_attribute("data-weight") or "nan") == pytest.approx(first - second)
    assert ("A reads from" in card, "B reads from" in card) == (True, True)
    assert f"A {first:.6g}"[:7] in card
    view, twin = seen.state("view()"), seen.page.locator(SECOND).bounding_box()
    assert twin is not None
    x, y = middle(view, 6, 2)
    seen.page.mouse.move(twin["x"] + x, twin["y"] + y)
    seen.settle()
    tip = seen.page.locator(".tip")
    assert (tip.get_attribute("data-q"), tip.get_attribute("data-k")) == ("6", "2")
    exact = float(few.head(3)[6, 2]) - float(few.head(1)[6, 2])
    assert float(tip.get_attribute("data-weight") or "nan") == pytest.approx(exact)
    assert "A − B" in tip.inner_text()
    seen.page.keyboard.press("d")
    seen.settle()
    assert "of its weight lies elsewhere" in seen.page.locator(".card").inner_text()


def test_keys_and_the_address(open_map: "Opener", few: Served) -> None:
    """b, d, w, comma and period; the address holds the comparison, and the back button leaves it."""
    seen = open_map(few, "head=1")
    seen.page.keyboard.press("b")
    seen.settle()
    assert seen.page.url.endswith("#head=1&compare=0,2")
    assert seen.page.locator(SECOND).is_visible()
    for key, hash in (
        (".", "head=1&compare=0,3"),
        (",", "head=1&compare=0,2"),
        ("d", "head=1&compare=0,2&mode=difference"),
        ("w", "head=2&compare=0,1&mode=difference"),
    ):
        seen.page.keyboard.press(key)
        seen.settle()
        assert seen.page.url.split("#")[1] == hash
    assert not seen.page.locator(SECOND).is_visible()
    again = open_map(few, "head=2&compare=0,1&mode=difference&row=4")
    assert again.page.locator(".compare .chip").all_inner_texts() == [
        "A\nlayer · head 2 · text 0",
        "B\nlayer · head 1 · text 0",
    ]
    assert again.page.title().startswith("layer · head 2 · text 0, less layer · head 1")
    again.page.keyboard.press("b")
    again.settle()
    assert again.page.url.endswith("#head=2&row=4")
    assert again.page.locator(".chip").first.is_visible()
    again.page.go_back()
    again.settle()
    assert again.state("view()")["other"] == {"layer": 0, "batch": 0, "head": 1}
    for wrong in ("0,9", "7,0", "0", "x", "0,1,9"):
        assert open_map(few, f"compare={wrong}").state("view()")["other"] is None


def test_the_second_head_and_its_text_are_chosen_from_the_list(open_map: "Opener", few: Served) -> None:
    seen = open_map(few, "head=1&compare=0,0")
    seen.page.locator('.compare .chip[data-letter="B"]').click()
    seen.settle()
    assert seen.page.locator(".picker h2").inner_text() == "Head B"
    seen.page.locator(".picker .head").nth(3).click()
    seen.settle()
    assert seen.page.url.endswith("#head=1&compare=0,3")
    seen.page.get_by_label("Text", exact=True).select_option("1")
    seen.settle()
    assert seen.page.url.endswith("#head=1&compare=0,3,1")
    assert seen.state("view()")["batch"] == 0
    seen.page.keyboard.press("Escape")
    assert seen.page.locator(".pane-name").all_inner_texts() == [
        "A · layer · head 1 · text 0",
        "B · layer · head 3 · text 1",
    ]


@pytest.mark.parametrize("mode", ["side", "difference"])
@pytest.mark.parametrize("width", [500, 760, 900, 1400])
def test_there_is_room_for_two(open_map: "Opener", few: Served, width: int, mode: str) -> None:
    """Nothing is clipped, no pane lies over another or over the card."""
    seen = open_map(few, f"head=3&compare=0,1&mode={mode}&row=8&column=3", viewport={"width": width, "height": 800})
    assert seen.page.evaluate("document.documentElement.scrollWidth") == width
    for name in (".compare .chip", ".compare .segmented", ".compare .tool", ".legend .switches", ".card", ".scale"):
        for box in (element.bounding_box() for element in seen.page.locator(name).all()):
            assert box is not None
            assert box["x"] >= 0, name
            assert box["x"] + box["width"] <= width + 0.5, name
    view, stage, card = (
        seen.state("view()"),
        seen.page.locator(".stage").bounding_box(),
        seen.page.locator(".card").bounding_box(),
    )
    assert stage is not None
    assert card is not None
    boxes = []
    for pane in view["panes"]:
        frame = view["frame"]
        left, top = stage["x"] + pane["x"] + frame["left"], stage["y"] + pane["y"] + frame["top"]
        boxes.append((left, top, left + frame["right"] - frame["left"], top + frame["bottom"] - frame["top"]))
    boxes.append((card["x"], card["y"], card["x"] + card["width"], card["y"] + card["height"]))
    assert len(boxes) == (3 if mode == "side" else 2)
    for at, one in enumerate(boxes):
        assert one[2] - one[0] > 60
        for other in boxes[at + 1 :]:
            apart = one[2] <= other[0] + 1 or other[2] <= one[0] + 1 or one[3] <= other[1] + 1 or other[3] <= one[1] + 1
            assert apart, (one, other)


def test_a_layer_of_another_size_ends_the_comparison(open_map: "Opener") -> None:
    draw = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 1, 2, 40, 8, generator=draw)
    layers = (LayerView("long", matrix(query, key)), LayerView("short", matrix(query[:, :1, :20], key[:, :1, :20])))
    for served in serving(CaptureView(layers, "two sizes")):
        seen = open_map(served, "compare=0,1")
        seen.page.keyboard.press("}")
        seen.settle()
        assert seen.page.url.endswith("#layer=1")
        assert "another size" in seen.page.locator(".toast").inner_text()
        seen.page.keyboard.press("b")
        seen.settle()
        assert "no other head of this size" in seen.page.locator(".toast").inner_text()
        assert seen.state("view()")["other"] is None


@pytest.mark.parametrize("kind", ["PNG", "SVG"])
@pytest.mark.parametrize("mode", ["side", "difference"])
def test_a_comparison_is_saved(open_map: "Opener", few: Served, mode: str, kind: str) -> None:
    seen = open_map(few, f"head=3&compare=0,1&mode={mode}&row=8")
    seen.page.get_by_role("button", name="Save the view").click()
    with seen.page.expect_download() as download:
        seen.page.get_by_role("button", name=kind, exact=True).click()
    name = download.value.suggested_filename
    how = "less" if mode == "difference" else "beside"
    assert name == f"few-layer-head-3-text-0-{how}-layer-head-1-text-0.{kind.lower()}"
    content = download.value.path().read_bytes()
    assert content[:4] == (b"\x89PNG" if kind == "PNG" else b"<svg")
    if kind == "SVG":
        assert content.count(b"<image") == (2 if mode == "side" else 1)
        assert ("A − B" in content.decode()) == (mode == "difference")
