"""The text beside the map: its words, their colors, and how it and the map lead to each other."""

import re
from typing import TYPE_CHECKING

import pytest
import torch

from regard.inspection.matrix import matrix
from regard.map import CaptureView, demo
from tests.map.browser.conftest import Served, serving

if TYPE_CHECKING:
    from tests.map.browser.conftest import Opener, Seen

WIDE = {"width": 1400, "height": 900}
STRIPES = demo.HEADS.index("stripes")


def word(seen: "Seen", at: int) -> dict[str, str]:
    """Text, colors and title of a word that is on screen."""
    found: dict[str, str] = seen.page.evaluate(
        """at => {
          const word = document.querySelector(`.word[data-at="${at}"]`);
          const { backgroundColor: color, opacity } = word.style;
          return { text: word.textContent, color, opacity, title: word.title, name: word.className };
        }""",
        at,
    )
    return found


def test_the_text_of_100000_tokens(open_map: "Opener", large: Served) -> None:
    """A few chunks have words; the text follows the map and the pin, wherever they go."""
    seen, words = open_map(large, f"head={STRIPES}&at=60000,45716,30", viewport=WIDE), demo.tokens(100_000)
    assert seen.page.locator(".reader").is_visible()
    seen.page.wait_for_timeout(400)
    seen.settle()
    assert seen.page.locator(".word").count() <= 8 * 256
    assert word(seen, 45_716)["text"].strip() == words[45_716]
    seen.page.evaluate("window.regardMap.set({ row: 99000 })")
    seen.settle()
    seen.page.wait_for_timeout(300)
    seen.settle()
    found, row = word(seen, 99_000), large.head(STRIPES)[99_000:99_001, :][0]
    assert "pinned" in found["name"]
    factor = re.search(r"99,000: (\S+)× uniform", found["title"])
    assert factor
    assert (found["color"] != "", word(seen, 99_001)["opacity"]) == (bool(row[99_000] > 0), "0.3")
    assert seen.page.locator(".word").count() <= 8 * 256
    assert "What query 99,000" in seen.page.locator(".hint").inner_text()


def test_a_word_is_pinned_by_a_click(open_map: "Opener", few: Served) -> None:
    seen = open_map(few, viewport=WIDE)
    assert "".join(seen.page.locator(".word").all_inner_texts()).startswith("[CLS] the quick brown foxes jumped")
    seen.page.locator(".word", has_text="lazy").click()
    seen.settle()
    assert (seen.state("view()")["row"], seen.state("view()")["column"]) == (9, None)
    weights = few.head(0)[9, :]
    for at in range(12):
        found = word(seen, at)
        if at > 9:
            assert (found["color"], found["opacity"], found["title"]) == ("", "0.3", f"{at}: hidden")
        else:
            value = re.search(r": (\S+)× uniform", found["title"])
            assert value
            assert float(value[1]) == pytest.approx(float(weights[at]) * 10, rel=0.05)
    seen.page.locator(".reader-list").press("ArrowRight")
    seen.settle()
    assert seen.state("view()")["row"] == 10
    seen.page.get_by_role("button", name="is read by").click()
    seen.page.locator(".word", has_text="quick").click()
    seen.settle()
    assert (seen.state("view()")["row"], seen.state("view()")["column"]) == (10, 2)
    assert word(seen, 1)["title"] == "1: hidden"
    assert "text=read" in seen.page.url
    seen.page.keyboard.press("x")
    assert not seen.page.locator(".reader").is_visible()


@pytest.mark.parametrize("width", [500, 900, 1300])
def test_the_text_leaves_room_for_the_map(open_map: "Opener", few: Served, width: int) -> None:
    seen = open_map(few, "row=3&column=2", viewport={"width": width, "height": 800})
    assert not seen.page.locator(".reader").is_visible()
    seen.page.get_by_role("button", name="The text beside the map").click()
    seen.settle()
    reader, stage = seen.page.locator(".reader").bounding_box(), seen.page.locator(".stage").bounding_box()
    assert reader is not None
    assert stage is not None
    assert reader["x"] + reader["width"] <= stage["x"] + 1 or stage["y"] + stage["height"] <= reader["y"] + 1
    assert seen.page.evaluate("document.documentElement.scrollWidth") == width
    frame, card = seen.state("view()")["frame"], seen.page.locator(".card").bounding_box()
    assert card is not None
    beside, below = stage["x"] + frame["right"] <= card["x"] + 1, stage["y"] + frame["bottom"] <= card["y"] + 1
    assert beside or below


LATE = """
const Prompt = window.IntersectionObserver;
window.IntersectionObserver = class extends Prompt {
  constructor(call, options) {
    super((...told) => setTimeout(() => call(...told), 400), options);
  }
};
"""  # as on a machine that is busy


@pytest.mark.parametrize("script", ["", LATE], ids=["prompt", "late"])
def test_two_texts(open_map: "Opener", script: str) -> None:
    """Cross attention: the text is that of the keys, or that of the queries; a click pins a word of it."""
    draw = torch.Generator().manual_seed(0)
    query, key = torch.randn(1, 1, 4, 8, generator=draw), torch.randn(1, 1, 5, 8, generator=draw)
    both = matrix(
        query,
        key,
        query_tokens=["der", "Hund", "bellt", "laut"],
        key_tokens=["the", "dog", "barks", "<b>", "\u202eloud"],
    )
    for served in serving(CaptureView.of(both)):
        seen = open_map(served, viewport=WIDE, script=script)
        assert "".join(seen.page.locator(".word").all_inner_texts()) == "the dog barks <b> \\u202eloud"
        assert "Pin a query on the map" in seen.page.locator(".hint").inner_text()
        seen.page.locator(".word", has_text="dog").click()
        seen.settle()
        assert (seen.state("view()")["row"], seen.state("view()")["column"]) == (None, 1)
        seen.page.get_by_role("button", name="is read by").click()
        seen.settle()
        assert "".join(seen.page.locator(".word").all_inner_texts()) == "der Hund bellt laut"
        assert word(seen, 2)["color"] != ""
        assert "Who reads key 1 dog" in seen.page.locator(".hint").inner_text()


def test_a_map_without_tokens_has_no_text(open_map: "Opener") -> None:
    for served in serving(CaptureView.of(matrix(*torch.randn(2, 1, 1, 40, 8)))):
        seen = open_map(served, viewport=WIDE)
        assert not seen.page.locator(".reader").is_visible()
        assert not seen.page.get_by_role("button", name="The text beside the map").is_visible()
