"""Everything has a room of its own: nothing lies over the cells of a matrix that fits, nor over the card."""

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib.image
import numpy
import pytest

if TYPE_CHECKING:
    from tests.map.browser.conftest import Opener, Seen, Served

WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 390, "height": 800}

COVERED = """() => {
  const { scale, offset, frame } = window.regardMap.view(), [{ queries, keys }] = window.regardMap.info.layers;
  const plot = document.querySelector("canvas.plot"), over = document.querySelector("canvas.over");
  const ratio = over.width / over.clientWidth, box = plot.getBoundingClientRect(), covered = [];
  const drawn = over.getContext("2d").getImageData(0, 0, over.width, over.height);
  for (let q = 0; q < queries; q++) for (let k = 0; k < keys; k++) for (const part of [0.1, 0.5, 0.9]) {
    const x = (k + part) * scale + offset.x, y = (q + part) * scale + offset.y;
    const pixel = 4 * (Math.round((y + frame.y) * ratio) * over.width + Math.round((x + frame.x) * ratio)) + 3;
    const top = document.elementFromPoint(box.left + x, box.top + y);
    if (top !== plot || drawn.data[pixel]) covered.push([q, k, part, top?.className, drawn.data[pixel]]);
  }
  return covered;
}"""

OVERLAP = """([one, other]) => {
  const words = (element) => {
    const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT), found = [];
    while (walker.nextNode()) {
      const range = document.createRange();
      range.selectNodeContents(walker.currentNode);
      found.push(...range.getClientRects());
    }
    return found;
  };
  const boxes = [...document.querySelectorAll(other)].flatMap((each) => [each.getBoundingClientRect()]);
  const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  return [...document.querySelectorAll(one)].flatMap(words).filter((a) => boxes.some((b) => meet(a, b))).length;
}"""


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_no_cell_of_a_small_matrix_is_covered(open_map: "Opener", few: "Served", size: dict[str, int]) -> None:
    seen = open_map(few, "row=11&column=0", viewport=size)
    for row, column in [(11, 0), (None, None), (0, 11), (None, 11), (0, None)]:
        seen.page.evaluate("pins => window.regardMap.set(pins)", {"row": row, "column": column})
        seen.settle()
        assert seen.page.evaluate(COVERED) == []
        assert seen.state("view()")["scale"] > 14  # and each has a token at its side
        assert seen.page.locator(".card").is_visible() == ((row, column) != (None, None))


def test_a_click_leaves_the_map_where_it_is_if_there_is_room(open_map: "Opener", few: "Served") -> None:
    seen = open_map(few)
    before = seen.state("view()")
    seen.page.keyboard.press("Enter")
    seen.settle()
    after = seen.state("view()")
    assert after["row"] is not None
    assert (after["offset"], after["scale"]) == (before["offset"], before["scale"])


def test_what_is_pinned_is_in_sight(open_map: "Opener", small: "Served") -> None:
    seen = open_map(small, "at=15000,9000,20")
    frame = seen.state("view()")["frame"]
    seen.page.mouse.click(frame["right"] - 30, 400)  # where the card will be
    seen.settle()
    view = seen.state("view()")
    assert view["free"]["k0"] <= view["column"] < view["free"]["k1"]
    box, card = on_page(seen, view["row"], view["column"]), seen.page.locator(".card").bounding_box()
    assert card is not None
    assert box < card["x"]


def on_page(seen: "Seen", q: int, k: int) -> float:
    """Where a cell ends, from the left."""
    view, box = seen.state("view()"), seen.page.locator("canvas.plot").bounding_box()
    assert box is not None
    return float(box["x"] + (k + 1) * view["scale"] + view["offset"]["x"])


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_a_saved_picture_has_every_cell(
    open_map: "Opener", few: "Served", tmp_path: Path, size: dict[str, int]
) -> None:
    seen = open_map(few, "head=3", viewport=size, accept_downloads=True)
    with seen.page.expect_download() as waiting:
        seen.page.keyboard.press("e")
    waiting.value.save_as(tmp_path / "view.png")
    picture = (matplotlib.image.imread(tmp_path / "view.png")[..., :3] * 255).round().astype(int).reshape(-1, 3)
    colors, counts = numpy.unique(picture, axis=0, return_counts=True)
    found = {tuple(color): count for color, count in zip(colors.tolist(), counts.tolist(), strict=True)}
    view = seen.state("view()")
    places = [((n + 0.5) * view["scale"]) for n in range(12)]
    points = [(round(x + view["offset"]["x"]), round(y + view["offset"]["y"])) for x in places for y in places]
    cells = [tuple(color) for *color, _ in seen.pixels(points)]
    assert len(set(cells)) > 20
    for color in set(cells):
        assert found.get(color, 0) >= 0.9 * cells.count(color) * int(view["scale"]) ** 2


def test_the_tip_keeps_off_the_card_and_within_the_page(open_map: "Opener", few: "Served") -> None:
    seen = open_map(few, "row=3&column=5", viewport=NARROW)
    view, plot = seen.state("view()"), seen.page.locator("canvas.plot").bounding_box()
    assert plot is not None
    for q, k in [(0, 0), (6, 6), (11, 0), (11, 11)]:
        x, y = ((n + 0.5) * view["scale"] + view["offset"][axis] for n, axis in ((k, "x"), (q, "y")))
        seen.page.mouse.move(plot["x"] + x, plot["y"] + y)
        seen.page.wait_for_timeout(120)
        seen.settle()
        tip, card = (seen.page.locator(name).bounding_box() for name in (".tip", ".card"))
        assert tip is not None
        assert card is not None
        assert tip["y"] + tip["height"] <= card["y"]
        assert (tip["x"] >= 0, tip["x"] + tip["width"] <= 390) == (True, True)


def test_the_words_of_the_card_keep_off_its_button(open_map: "Opener", few: "Served") -> None:
    seen = open_map(few, "head=1")
    for row, column, words in [(2, 8, "Hidden"), (8, 2, "rank"), (8, None, "reads from"), (None, 8, "is read by")]:
        seen.page.evaluate("pins => window.regardMap.set(pins)", {"row": row, "column": column})
        seen.settle()
        text = seen.page.locator(".card").inner_text()
        assert (words in text, "extraordinarily" in text) == (True, True)
        assert seen.page.evaluate(OVERLAP, [".card", ".card .tool"]) == 0


def test_the_labels_of_the_scale_are_several_and_apart(open_map: "Opener", few: "Served") -> None:
    seen = open_map(few)
    for head in range(4):
        seen.page.evaluate("head => window.regardMap.set({ head })", head)
        seen.settle()
        words = seen.page.locator(".ticks span").all_inner_texts()
        assert (len(words) >= 3, "1×" in words) == (True, True), words
        boxes: list[Any] = [each.bounding_box() for each in seen.page.locator(".ticks span").all()]
        assert all(a["x"] + a["width"] < b["x"] for a, b in pairwise(boxes)), words


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_balance_turns_at_uniform(open_map: "Opener", few: "Served", scale: str) -> None:
    seen = open_map(few, f"head=2&ramp=balance&scale={scale}")
    view, weights, sides = seen.state("view()"), few.head(2)[:, :], set()
    for q in range(12):
        points = [
            [round((n + 0.5) * view["scale"] + view["offset"][axis]) for n, axis in ((k, "x"), (q, "y"))]
            for k in range(q + 1)
        ]
        for k, (red, _, blue, _) in enumerate(seen.pixels([(x, y) for x, y in points])):
            relative = float(weights[q, k]) * (q + 1)
            if not 0.8 < relative < 1.25:
                assert (red > blue) == (relative > 1), (q, k, relative)
                sides.add(relative > 1)
    assert sides == {True, False}
