"""Chapter 0: what is left of a word in a filter, a recurrence and attention."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import regard

PICTURE = "Contribution of each word to the last, for filter, recurrence and attention"


def share(text: str) -> float:
    return float(text.removesuffix(" %").removeprefix("<").removeprefix(">")) / 100


def test_what_is_left_of_a_word(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("why", "&at=17&layers=2&memory=0.7&match=4")
    words = chapter.page.locator(f'svg[aria-label="{PICTURE}"] .columns text').count()
    back = words - 1 - 17
    kernel = torch.nn.functional.conv1d(torch.ones(1, 1, 3) / 3, torch.ones(1, 1, 3) / 3, padding=2)[0, 0]
    assert share(chapter.reading("filter: of the word")) == pytest.approx(float(kernel[back]), abs=0.006)
    assert share(chapter.reading("recurrence: of the word")) == pytest.approx(0.3 * 0.7**back, abs=0.006)
    key, query = torch.zeros(words, 1), torch.ones(1, 1)
    key[17] = 4
    weights = regard.attend(query, key, torch.eye(words), score=regard.scores.Dot())
    assert share(chapter.reading("attention: of the word")) == pytest.approx(float(weights[0, 17]), abs=0.006)
    assert chapter.reading("steps between") == f"{math.ceil(back / 2)} · {back} · 1"


def test_a_word_is_asked_for_by_a_click_or_the_slider(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("why")
    before = chapter.reading("attention: of the word")
    picture = chapter.page.locator(f'svg[aria-label="{PICTURE}"]')
    box = picture.locator(".cells rect").nth(8).bounding_box()
    assert box is not None
    chapter.page.mouse.click(box["x"] + 5, box["y"] + 5)
    chapter.settle()
    assert chapter.state["at"] == 8
    assert chapter.reading("attention: of the word") == before  # distance does not enter
    chapter.slide("asked for", 0.0)
    assert chapter.state["at"] == 0
    assert chapter.reading("filter: of the word") == "0 %"
    assert chapter.colors(PICTURE) > 5
