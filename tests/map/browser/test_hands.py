"""Pointer and keys: what a click, a double click, n and p, and the small maps do."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from regard.map import demo

if TYPE_CHECKING:
    from playwright.sync_api import Route

    from tests.map.browser.conftest import Opener, Seen, Served

DOCS = Path(__file__).parents[3] / "docs"


def at(seen: "Seen", q: int, k: int) -> tuple[float, float]:
    """The middle of a cell on the page."""
    view, box = seen.state("view()"), seen.page.locator("canvas.plot").bounding_box()
    assert box is not None
    return (
        box["x"] + (k + 0.5) * view["scale"] + view["offset"]["x"],
        box["y"] + (q + 0.5) * view["scale"] + view["offset"]["y"],
    )


def pins(seen: "Seen") -> tuple[Any, Any]:
    view = seen.state("view()")
    return view["row"], view["column"]


def times(seen: "Seen", name: str) -> int:
    return sum(address.endswith(f"/api/{name}") for address in seen.asked)


def test_one_click_pins_once_and_two_zoom(open_map: "Opener", few: "Served") -> None:
    seen = open_map(few)
    before, place = seen.state("view()"), at(seen, 4, 6)
    seen.page.mouse.dblclick(*place)
    seen.settle()
    assert seen.state("view()")["scale"] == pytest.approx(2 * before["scale"])
    assert at(seen, 4, 6) == pytest.approx(place, abs=1)
    assert (pins(seen), times(seen, "row"), seen.page.locator(".card").is_visible()) == ((None, None), 0, False)
    seen.page.keyboard.down("Shift")
    seen.page.mouse.dblclick(*place)
    seen.page.keyboard.up("Shift")
    seen.settle()
    assert seen.state("view()")["scale"] == pytest.approx(before["scale"])
    seen.page.keyboard.press("0")
    seen.settle()
    seen.page.mouse.click(*at(seen, 5, 7))
    seen.settle()
    assert (pins(seen), times(seen, "row"), times(seen, "column")) == ((5, 7), 1, 1)
    seen.page.mouse.click(*at(seen, 1, 2))  # two that are far from each other are two clicks
    seen.page.mouse.click(*at(seen, 8, 3))
    seen.settle()
    assert pins(seen) == (8, 3)


def test_n_and_p_go_through_what_is_listed(open_map: "Opener", few: "Served") -> None:
    seen = open_map(few, "head=2")
    press = seen.page.keyboard.press

    def found(text: str) -> None:
        press("f")
        seen.page.keyboard.type(text)
        seen.page.wait_for_timeout(200)
        seen.settle()

    def step(key: str) -> tuple[Any, Any]:
        press(key)
        seen.settle()
        return pins(seen)

    found("fox")
    press("Escape")
    assert [step("n"), step("n"), step("n"), step("p")] == [(None, 4), (4, None), (None, 4), (4, None)]
    press("s")
    seen.settle()
    cells = few.running.viewer.answer("strongest", {"layer": 0, "head": 2, "count": 3}, _stop())
    assert isinstance(cells, dict)
    first, second, third = ((cell["q"], cell["k"]) for cell in cells["cells"])
    assert [step("n"), step("n"), step("n"), step("p")] == [first, second, third, second]
    current = seen.page.locator(".menu [aria-current=true]")
    assert f"{second[0]} → {second[1]}" in current.inner_text()
    words = few.capture_view.layers[0].tokens("query") or ()
    assert current.inner_text().split()[:3] == [words[second[0]], "→", words[second[1]]]
    press("]")  # another head has others, and the list is its own
    seen.settle()
    other = few.running.viewer.answer("strongest", {"layer": 0, "head": 3, "count": 3}, _stop())
    assert isinstance(other, dict)
    assert step("n") == (other["cells"][0]["q"], other["cells"][0]["k"])
    press("Escape")
    found("lazy")
    press("Escape")
    assert step("n") == (None, 9)


SLOW_FIND = """
() => { const real = window.fetch;
  const late = (address, options) => new Promise((answer, fail) => {
    options.signal?.addEventListener("abort", () => fail(new DOMException("", "AbortError")));
    setTimeout(() => real(address, options).then(answer, fail), 500);
  });
  window.fetch = (address, options) => (String(address).endsWith("api/find") ? late : real)(address, options);
}
"""


def test_the_list_of_the_strongest_is_made_again_once_it_can_be_whole(open_map: "Opener", small: "Served") -> None:
    seen = open_map(small, wait="exact")
    asked: list[str] = []

    def late(route: "Route") -> None:
        asked.append("progress")
        if len(asked) < 3:
            route.fulfill(json={"state": "building", "done": 1, "total": 3})
        else:
            route.continue_()

    early = {"cells": [{"q": 5, "k": 1, "weight": 0.5, "visible": 6}], "exact": False}
    seen.page.route("**/api/progress", late)
    seen.page.route("**/api/strongest", lambda route: route.fulfill(json=early), times=1)
    seen.page.evaluate("window.regardMap.set({ head: 3 })")
    seen.page.keyboard.press("s")
    seen.page.get_by_text("Best so far").wait_for()
    seen.settle("exact")
    seen.settle()
    row, column = demo.needle(20_000)
    assert seen.page.locator(".found-cell .number").first.inner_text() == f"{row:,} → {column:,}"


def test_a_search_that_was_overtaken_stays_closed(open_map: "Opener", few: "Served") -> None:
    """What "4" finds comes after "4 6" has led somewhere, and has nothing to say any more."""
    seen = open_map(few)
    seen.page.evaluate(SLOW_FIND)
    seen.page.keyboard.press("g")
    seen.page.keyboard.type("4")
    seen.page.wait_for_timeout(250)  # it is being looked for
    seen.page.keyboard.type(" 6")
    seen.page.keyboard.press("Enter")
    seen.page.wait_for_timeout(900)
    assert pins(seen) == (4, 6)
    assert not seen.page.locator(".found").is_visible()
    seen.page.keyboard.press("f")
    seen.page.keyboard.type("fox")
    seen.page.keyboard.press("Enter")  # at once: it waits for what is found
    seen.page.wait_for_timeout(900)
    seen.settle()
    assert pins(seen) == (None, 4)


def _stop() -> Any:
    from regard.map.jobs import Stop

    return Stop()


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_home_has_the_address_of_the_first_look(open_map: "Opener", few: "Served", motion: str) -> None:
    seen = open_map(few, "head=1", reduced_motion=motion)
    first, length = seen.page.url, seen.page.evaluate("history.length")
    seen.page.keyboard.press("+")
    seen.settle()
    assert "at=" in seen.page.url
    seen.page.keyboard.press("0")
    assert seen.page.url == first
    seen.settle()
    assert seen.page.url == first
    assert seen.page.evaluate("history.length") == length + 1
    seen.page.keyboard.press("0")  # leads nowhere, and is no step back
    seen.settle()
    assert seen.page.evaluate("history.length") == length + 1
    seen.page.go_back()
    seen.settle()
    assert "at=" in seen.page.url


SMALL_MAPS = """() => [...document.querySelectorAll(".head canvas")].map((canvas) => {
  const { width, height } = canvas, { data } = canvas.getContext("2d").getImageData(0, 0, width, height), cells = [];
  for (let q = 0; q < 12; q++) for (let k = 0; k < 12; k++) {
    const pixel = 4 * (Math.floor(((q + 0.5) * height) / 12) * width + Math.floor(((k + 0.5) * width) / 12));
    cells.push(Array.from(data.slice(pixel, pixel + 4)));
  }
  return { width: canvas.clientWidth, height: canvas.clientHeight, cells };
})"""


def test_a_small_matrix_fills_its_small_map(open_map: "Opener", few: "Served") -> None:
    seen = open_map(few, "head=2")
    view = seen.state("view()")
    places = [(n + 0.5) * view["scale"] for n in range(12)]
    points = [(round(x + view["offset"]["x"]), round(y + view["offset"]["y"])) for y in places for x in places]
    cells = seen.pixels(points)
    seen.page.keyboard.press("h")
    seen.settle()
    thumbs = seen.page.evaluate(SMALL_MAPS)
    assert [(each["width"], each["height"]) for each in thumbs] == [(56, 56)] * 4
    assert thumbs[2]["cells"] == cells
    assert len({tuple(color) for color in cells}) > 20
    assert thumbs[3]["cells"] != cells


def test_heads_go_round_and_have_the_names_of_the_docs(open_map: "Opener", small: "Served") -> None:
    seen = open_map(small)
    seen.page.keyboard.press("[")
    seen.settle()
    assert seen.state("view()")["head"] == len(demo.HEADS) - 1
    seen.page.keyboard.press("]")
    seen.page.keyboard.press("h")
    seen.settle()
    shown = seen.page.locator(".head > span:last-child").all_inner_texts()
    assert tuple(shown) == demo.HEADS
    text = (DOCS / "map.md").read_text()
    assert all(f"`{name}`" in text for name in demo.HEADS)
    seen.page.keyboard.press("Escape")
    seen.goto(scale=1)
    assert seen.page.locator(".meaning").inner_text() == "1 square = 1 weight, 1 pixel wide"


def test_each_text_of_a_batch_has_its_own_tokens(open_map: "Opener", few: "Served") -> None:
    seen = open_map(few, "batch=1&row=4")
    assert "wolf" in seen.page.locator(".card h2").inner_text()
    seen.page.locator(".search input").fill("wolf")
    seen.page.wait_for_timeout(200)
    seen.settle()
    assert seen.page.locator(".found .hit").first.inner_text() == "wolf"
