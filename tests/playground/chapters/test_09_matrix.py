"""Chapter 9: the mini-course's map with its margins; pointing says who reads whom; a pull moves a column, no row."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import regard
from regard.lab.maps import SELF

PICTURE, RECEIVED = "Weights of every word with every word", "Attention received by each word"


def cells(chapter: Any) -> list[float]:
    texts: list[str] = chapter.page.locator(f'svg[aria-label="{PICTURE}"] .inks text').all_text_contents()
    return [float(text) for text in texts]


def margins(chapter: Any) -> tuple[list[float], list[float]]:
    """The sums at the right and below."""
    groups = chapter.page.locator(f'svg[aria-label="{PICTURE}"] .sums')
    right, below = ([float(text) for text in groups.nth(n).locator("text").all_text_contents()] for n in (0, 1))
    return right, below


def test_the_map_is_the_one_of_the_mini_course(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("matrix")
    expected = SELF.tensor()
    assert cells(chapter) == pytest.approx([w for w in expected.flatten().tolist() if w > 0], abs=1e-9)
    right, below = margins(chapter)
    assert right == [1.0] * 6
    assert below == pytest.approx(expected.sum(0).tolist(), abs=5e-3)
    assert chapter.numbers(RECEIVED) == pytest.approx(expected.sum(0).tolist(), abs=5e-4)
    assert chapter.reading("all weights") == "6 = n"


@pytest.mark.parametrize("settings", ["&pull=2.5&column=5", "&pull=-1.5&column=0&causal=1", "&tau=0.4&pull=1&column=3"])
def test_pull_and_temperature_are_those_of_regard(open_chapter: Callable[..., Any], settings: str) -> None:
    chapter = open_chapter("matrix", settings)
    state = chapter.state
    logits = SELF.tensor().log()
    logits[:, state["column"]] += state["pull"]
    zeros, eye = torch.zeros(6, 1, dtype=torch.float64), torch.eye(6, dtype=torch.float64)
    mask = "causal" if state["causal"] else None
    expected = regard.attend(zeros, zeros, eye, bias=logits, temperature=state["tau"], mask=mask)
    assert cells(chapter) == pytest.approx([w for w in expected.flatten().tolist() if w > 0], abs=5.001e-3)
    right, _ = margins(chapter)
    assert right == [1.0] * 6
    assert chapter.numbers(RECEIVED) == pytest.approx(expected.sum(0).tolist(), abs=5e-4)


def test_a_slider_pulls_a_column_and_rows_stay(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("matrix", "&source=longer&column=1")
    before = chapter.numbers(RECEIVED)
    chapter.slide("pull of “river”, added to the scores of its column", 0.9)
    after = chapter.numbers(RECEIVED)
    assert after[1] > before[1] + 3
    assert all(new < old for n, (old, new) in enumerate(zip(before, after, strict=True)) if n != 1)
    assert margins(chapter)[0] == [1.0] * 9
    assert sum(after) == pytest.approx(9, abs=0.01)


def test_pointing_says_who_reads_whom(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("matrix")
    said = chapter.page.locator(".matrix-said")
    assert said.inner_text() == "Row 2: what “cat” reads. 0.1 + 0.6 + 0.2 + 0.05 + 0 + 0.05 = 1."
    assert chapter.page.locator(".lines-drawing path").count() == 5  # one for each key that is read
    picture = chapter.page.locator(f'svg[aria-label="{PICTURE}"]')
    picture.focus()
    for _ in range(3):
        chapter.page.keyboard.press("ArrowDown")
    chapter.settle()
    assert said.inner_text().startswith("Cell (3, 1): “sleeps” takes nothing")
    drawing = chapter.page.locator(".lines-drawing")
    drawing.scroll_into_view_if_needed()
    box = drawing.bounding_box()
    chapter.page.mouse.move(box["x"] + box["width"] - 12, box["y"] + 26 + 5.5 * 46)  # the key "mat"
    chapter.settle()
    assert said.inner_text() == "Column 6: who reads “mat”. 0 + 0.05 + 0.1 + 0.1 + 0.5 + 0.6 = 1.35."
    drawing.focus()
    chapter.page.keyboard.press("ArrowLeft")
    chapter.page.keyboard.press("ArrowUp")
    chapter.settle()
    assert chapter.state["side"] == "query"
    assert chapter.state["query"] == 4
    assert chapter.colors(PICTURE) >= 6


def test_sizes(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("matrix", "&length=100000")
    assert chapter.reading("numbers, n²") == "10 G"
    assert chapter.reading("one head") == "20 GB"
    chapter.set(length=1000)
    assert chapter.reading("numbers, n²").replace("\u202f", "") == "1000000"
