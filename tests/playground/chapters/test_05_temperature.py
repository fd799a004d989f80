"""Chapter 5: weights at the temperature of the slider are regard's; scores can be dragged; both limits are seen."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import regard

WEIGHTS = "Weights at the temperature of the slider"


def weights(scores: list[float], tau: float) -> list[float]:
    """regard's own: a query [1] meets keys of width 1."""
    key = torch.tensor(scores, dtype=torch.float64)[:, None]
    query, value = torch.ones(1, 1, dtype=torch.float64), torch.eye(len(scores), dtype=torch.float64)
    result: list[float] = regard.attend(query, key, value, score=regard.scores.Dot(), temperature=tau)[0].tolist()
    return result


def test_weights_are_those_of_regard(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("temperature", "&tau=0.5&scores=2,1,0")
    assert chapter.numbers(WEIGHTS) == pytest.approx(weights([2, 1, 0], 0.5), abs=5e-4)
    chapter.slide("temperature τ", 0.9)
    state = chapter.state
    assert state["tau"] > 5
    assert chapter.numbers(WEIGHTS) == pytest.approx(weights([2, 1, 0], state["tau"]), abs=5e-4)


def test_a_score_can_be_dragged(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("temperature")
    before = chapter.state["scores"]
    chapter.drag("sat", 0, -60)
    after = chapter.state["scores"]
    assert after[2] > before[2] + 1
    assert after[:2] + after[3:] == before[:2] + before[3:]
    assert chapter.numbers(WEIGHTS) == pytest.approx(weights(after, 1.0), abs=5e-4)


def test_limits(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("temperature", "&tau=0.05")
    assert chapter.numbers(WEIGHTS) == pytest.approx([0, 1, 0, 0, 0], abs=1e-3)
    assert chapter.reading("keys in use").startswith("1")
    chapter.set(tau=20)
    assert chapter.numbers(WEIGHTS) == pytest.approx([0.2] * 5, abs=0.02)


def test_the_steps_are_those_of_explain(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("temperature", "&tau=0.5&scores=2,1,0&step=6")
    key = torch.tensor([[2.0], [1.0], [0.0]], dtype=torch.float64)
    query = torch.ones(1, 1, dtype=torch.float64)
    text = regard.explain(query, key, key, score=regard.scores.Dot(), temperature=0.5).text(100)
    assert "step 6 of 6" in chapter.page.locator(".steps").inner_text()
    lines = chapter.page.locator(".worked dd").all_inner_texts()
    assert len(lines) == 3
    for line in lines:  # 54.5982/62.9873 = 0.8668
        assert line.split(" = ")[-1] in text
        assert line.split(" = ")[0] in text


def test_an_exercise_knows_the_mistake(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("temperature")
    for field, number in zip(chapter.page.get_by_label("cold, number").all(), (0.51, 0.31, 0.19), strict=True):
        field.fill(str(number))
    chapter.page.get_by_role("button", name="Check").click()
    assert "the scores were multiplied by τ" in chapter.page.locator(".exercise").inner_text()
    assert chapter.colors("Weights at temperature 0.5") >= 5
