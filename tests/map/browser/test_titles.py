"""Long titles give way: what is needed to know where one is, and what is shown, stays readable."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from regard.map import CaptureView

if TYPE_CHECKING:
    from tests.map.browser.conftest import Opener, Served

LAYER = "encoder.blocks.0.attention"


@pytest.fixture
def long(few: "Served", monkeypatch: pytest.MonkeyPatch) -> "Served":
    """The same map under the name of a long text."""
    (layer,) = few.capture_view.layers
    named = CaptureView((replace(layer, name=LAYER),), "minilm: " + "the quick brown foxes jumped over lazy dogs " * 4)
    monkeypatch.setattr(few.running.viewer, "view", named)
    return few


def test_a_saved_picture_says_which_head_it_shows(open_map: "Opener", long: "Served", tmp_path: Path) -> None:
    seen = open_map(long, "head=3", accept_downloads=True)
    with seen.page.expect_download() as waiting:
        seen.page.keyboard.press("E")
    assert waiting.value.suggested_filename.endswith("-encoder-blocks-0-attention-head-3.svg")
    waiting.value.save_as(tmp_path / "view.svg")
    words = re.findall(r"<text[^>]*>([^<]*)</text>", (tmp_path / "view.svg").read_text(encoding="utf-8"))
    (title,) = [text for text in words if "minilm" in text or LAYER in text]
    assert title.endswith(f"{LAYER} · head 3")


def test_what_was_found_can_be_read(open_map: "Opener", long: "Served") -> None:
    seen = open_map(long)
    seen.page.keyboard.press("/")
    seen.page.keyboard.type("fox")
    seen.page.wait_for_timeout(200)
    seen.settle()
    words = "[...document.querySelectorAll('.found .token')]"
    assert seen.page.locator(".found .hit").count() == 2
    assert seen.page.evaluate(f"{words}.filter((each) => each.scrollWidth > each.clientWidth).length") == 0


@pytest.mark.parametrize("width", [240, 390, 800, 1000, 1280])
def test_the_scale_is_whole_at_every_width(open_map: "Opener", few: "Served", width: int) -> None:
    seen = open_map(few, viewport={"width": width, "height": 700})
    meaning: Any = seen.page.evaluate(
        "() => { const e = document.querySelector('.meaning'); return [e.scrollWidth, e.clientWidth]; }"
    )
    assert meaning[0] <= meaning[1]
    for name in (".legend .segmented", ".switches select", ".scale"):
        for each in seen.page.locator(name).all():
            box = each.bounding_box()
            assert box is not None
            assert (box["x"] >= 0, box["x"] + box["width"] <= width) == (True, True), name
    ticks: list[Any] = [each.bounding_box() for each in seen.page.locator(".ticks span").all()]
    assert all(a["x"] + a["width"] < b["x"] for a, b in pairwise(ticks))


def test_a_head_is_told_with_its_statistics_once_they_come(open_map: "Opener", few: "Served") -> None:
    seen = open_map(few)
    seen.page.keyboard.press("h")  # the focus is on a head before its statistics are there
    seen.settle()
    assert "entropy" in seen.page.locator(".detail").inner_text()
