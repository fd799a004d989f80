"""Chapter 7: without positions a shuffle moves rows and nothing else; schemes are those of regard; long texts."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard import biases, positions

MOVED, SCHEMES = "How far each word's output moved", ("sinusoidal", "learned", "t5", "rotary", "alibi")
ORDER = "&order=4.0.2.3.1"  # man the bit the dog


def table(chapter: Any, step: str, nth: int = 0) -> Tensor:
    """A table of the step-through panel, to four decimals."""
    for number in range(1, 12):
        chapter.set(step=number)
        if chapter.page.locator(".steps .panel").get_attribute("data-step") == step:
            break
    lines = chapter.page.locator(".step .matrix").nth(nth).locator("tr").all()[1:]
    rows = [[float(cell.replace("−", "-")) for cell in line.locator("td").all_inner_texts()] for line in lines]
    return torch.tensor(rows, dtype=torch.float64)


def points(chapter: Any, picture: str) -> list[list[tuple[float, float]]]:
    """The lines of a chart, in pixels."""
    paths = chapter.page.locator(f'svg[aria-label="{picture}"] .line').all()
    texts = [path.get_attribute("d") for path in paths]
    return [[tuple(map(float, pair.split())) for pair in text[1:].split("L")] for text in texts]  # type: ignore[misc]


def test_without_positions_only_the_places_change(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("positions", ORDER)
    assert chapter.numbers(MOVED) == [0.0] * 5
    assert "only the rows have changed places" in chapter.page.locator(".stage").inner_text()
    cells = 'svg[aria-label="Outputs of the words in {}"] .inks text'
    first = chapter.page.locator(cells.format("the first order")).all_text_contents()
    second = chapter.page.locator(cells.format("your order")).all_text_contents()
    assert first != second
    for place, which in enumerate([4, 0, 2, 3, 1]):
        assert second[4 * place : 4 * place + 4] == first[4 * which : 4 * which + 4]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_with_positions_the_outputs_change_and_are_those_of_regard(
    open_chapter: Callable[..., Any], scheme: str
) -> None:
    chapter = open_chapter("positions", f"{ORDER}&scheme={scheme}&head=2")
    assert max(chapter.numbers(MOVED)) > 0.01
    query, key, value = table(chapter, "query"), table(chapter, "key"), table(chapter, "output")
    bias = table(chapter, "bias") if scheme in ("t5", "alibi") else torch.zeros(5, 5, dtype=torch.float64)
    output = table(chapter, "output", 1)
    assert torch.allclose(regard.attend(query, key, value, bias=bias), output, atol=5e-4)


def test_rotary_and_alibi_are_those_of_regard(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("positions", f"{ORDER}&base=500")
    query, key = table(chapter, "query"), table(chapter, "key")
    chapter.set(scheme="rotary")
    assert torch.allclose(positions.rotary(query, base=500.0), table(chapter, "query"), atol=2e-4)
    assert torch.allclose(positions.rotary(key, base=500.0), table(chapter, "key"), atol=2e-4)
    for head in (1, 5):
        chapter.set(scheme="alibi", head=head)
        zeros = torch.zeros(1, 8, 5, 1, dtype=torch.float64)
        eye = torch.eye(5, dtype=torch.float64).expand(1, 8, 5, 5)
        expected = regard.attend(zeros, zeros, eye, bias=biases.ALiBi(8))[0, head - 1]
        assert torch.allclose(torch.softmax(table(chapter, "bias"), -1), expected, atol=5e-4)


def test_words_are_dragged_and_moved_with_keys(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("positions", "&scheme=rotary")
    assert chapter.numbers(MOVED) == [0.0] * 5
    words = chapter.page.locator(".order-word")
    box = words.nth(4).bounding_box()
    chapter.drag("dog", box["x"] - words.nth(1).bounding_box()["x"], 0)
    assert chapter.state["order"] == [0, 2, 3, 4, 1]
    assert max(chapter.numbers(MOVED)) > 0.01
    words.nth(1).focus()
    chapter.page.keyboard.press("ArrowLeft")
    chapter.settle()
    assert chapter.state["order"] == [0, 2, 3, 1, 4]
    chapter.page.get_by_role("button", name="shuffle", exact=True).click()
    chapter.settle()
    assert sorted(chapter.state["order"]) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("scheme", "by_distance"), [("rotary", True), ("t5", True), ("alibi", True), ("sinusoidal", False)]
)
def test_what_depends_on_the_distance_alone(open_chapter: Callable[..., Any], scheme: str, by_distance: bool) -> None:
    """Then the line of a query at place 200 lies on that of a query at 127."""
    chapter = open_chapter("positions", f"&scheme={scheme}&at=200&head=6")
    *_, then, now = points(chapter, "Score against distance")
    assert (len(then), len(now)) == (128, 201)
    apart = max(abs(a[1] - b[1]) for a, b in zip(then, now, strict=False))
    assert (apart <= 0.11) == by_distance  # px, of which the path has one decimal


def test_past_the_trained_length(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("positions", "&scheme=learned&at=128")
    assert chapter.reading("weight beyond 128") == "no row"
    chapter.set(at=127)
    assert chapter.reading("weight beyond 128") == "0"
    chapter.set(at=255, scheme="t5")
    line = points(chapter, "Score against distance")[-1]
    assert len({y for _, y in line[128:]}) == 1  # one bucket for all
    chapter.set(scheme="alibi", head=8)
    slope = 2.0**-8
    weights = [math.exp(-slope * distance) for distance in range(256)]
    expected = sum(weights[128:]) / sum(weights)
    assert float(chapter.reading("weight beyond 128")) == pytest.approx(expected, abs=5e-4)
    chapter.slide("place of the query", 0.2)
    assert chapter.reading("weight beyond 128") == "0"
    assert chapter.colors("Outputs of the words in your order") >= 8
