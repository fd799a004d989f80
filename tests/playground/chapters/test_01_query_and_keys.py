"""Chapter 1: the three words of the mini-course; vectors are dragged; six scores give regard's own weights."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.spec import scores

WEIGHTS = "Weights of the keys"


def turned(degrees: float) -> Tensor:
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return torch.tensor([[c, -s], [s, c]], dtype=torch.float64)


def weights(state: dict[str, Any]) -> list[float]:
    """regard's weights of the state of the page."""
    w1, w2, v = turned(state["w1"]), turned(state["w2"]), math.sqrt(2) * turned(state["v"])[:, 0]
    score = {
        "dot": scores.Dot(),
        "scaled": scores.ScaledDot(),
        "general": scores.General(turned(state["w"])),
        "cosine": scores.Cosine(),
        "additive": scores.Additive(w1, w2, v),
        "concat": scores.ConcatMLP(w1, w2, torch.zeros(2, dtype=torch.float64), v, "relu"),
    }[state["score"]]
    query = torch.tensor([state["query"]], dtype=torch.float64)
    key = torch.tensor(state["keys"], dtype=torch.float64)
    value = torch.eye(len(key), dtype=torch.float64)
    found: list[float] = regard.attend(query, key, value, score=score)[0].tolist()
    return found


@pytest.mark.parametrize("score", ["dot", "scaled", "general", "cosine", "additive", "concat"])
def test_weights_of_all_scores_are_those_of_regard(open_chapter: Callable[..., Any], score: str) -> None:
    chapter = open_chapter("query-and-keys", f"&score={score}&w=30&w1=40&w2=-70&v=10&query=0.7,1.1")
    assert chapter.numbers(WEIGHTS) == pytest.approx(weights(chapter.state), abs=5e-4)


def test_the_query_and_a_key_can_be_dragged(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("query-and-keys")
    assert chapter.numbers(WEIGHTS) == [0.401, 0.198, 0.401]  # the mini-course's first row
    chapter.drag("q", -40, -90)
    x, y = chapter.state["query"]
    assert x < 1
    assert y > 0.5
    chapter.drag("k2", 60, 30)
    assert chapter.state["keys"][1] != [0, 1]
    assert chapter.state["keys"][0] == [1, 0]
    assert chapter.numbers(WEIGHTS) == pytest.approx(weights(chapter.state), abs=5e-4)


def test_keys_move_a_vector(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("query-and-keys")
    chapter.page.locator('[aria-label^="k3"]').focus()
    chapter.page.keyboard.press("ArrowUp")
    chapter.page.keyboard.press("Shift+ArrowLeft")
    chapter.settle()
    assert chapter.state["keys"][2] == pytest.approx([0.5, 1.1])


def test_the_field_shows_the_score(open_chapter: Callable[..., Any]) -> None:
    """Dot products change along the query only; the cosine along the angle only."""
    chapter = open_chapter("query-and-keys", "&score=dot")
    script = """() => {
      const cells = [...document.querySelectorAll(".field rect")].map((rect) => rect.getAttribute("fill"));
      const side = Math.sqrt(cells.length);
      const column = cells.filter((_, n) => n % side === 3);
      return { along: new Set(cells.slice(0, side)).size, across: new Set(column).size };
    }"""
    found = chapter.page.evaluate(script)
    assert found["along"] > 10
    assert found["across"] == 1
    chapter.set(score="cosine")
    assert chapter.page.evaluate(script)["across"] > 5


def test_three_words_step_by_step(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("query-and-keys")
    chapter.page.get_by_role("button", name="Step through every number").click()
    seen = []
    for _ in range(20):
        chapter.settle()
        seen.append(chapter.page.locator(".step h3").inner_text())
        following = chapter.page.get_by_role("button", name="next →")
        if not following.is_enabled():
            break
        following.click()
    words = ("Queries", "Keys", "Scores", "Exponentials", "Weights", "Output")
    assert [title.startswith(word) for title, word in zip(seen, words, strict=True)] == [True] * 6
    text = chapter.page.locator(".worked").inner_text()
    assert "0.8022" in text  # the output of word 1, as `regard explain --example` has it
    assert "0.5989" in text


def test_a_longer_key_gains_on_the_side_of_the_query(open_chapter: Callable[..., Any]) -> None:
    """Pulled outward, a key that points with the query gains and one that points away loses; not under the cosine."""
    chapter = open_chapter("query-and-keys", "&score=dot")
    chapter.page.get_by_role("button", name="opposite", exact=True).click()
    chapter.settle()
    before = chapter.numbers(WEIGHTS)
    chapter.drag("k2", -80, 40)
    assert chapter.numbers(WEIGHTS)[1] < before[1]
    chapter.drag("k1", 80, -40)
    assert chapter.numbers(WEIGHTS)[0] > before[0]
    chapter.set(score="cosine", keys=[[1, 0.5], [-1, -0.5], [-0.5, 1]])
    before = chapter.numbers(WEIGHTS)
    chapter.set(keys=[[2, 1], [-2, -1], [-0.5, 1]])
    assert chapter.numbers(WEIGHTS) == before


def test_a_right_angle_scores_zero(open_chapter: Callable[..., Any]) -> None:
    """W turns by 90°, so a key along the query has a score of 0 and no trace of rounding."""
    chapter = open_chapter("query-and-keys", "&score=general")
    assert chapter.page.locator('svg[aria-label="Scores of the keys"] .numbers text').first.text_content() == "0"


def test_the_exercise_names_the_parts_that_are_asked(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("query-and-keys")
    assert chapter.page.locator(".exercise legend").all_text_contents() == ["scores", "weights"]
    assert "Asked here: scores and weights." in chapter.page.locator(".exercise").inner_text()
    chapter.open("masks")
    assert "Asked here" not in chapter.page.locator(".exercise").inner_text()  # all of its parts are
