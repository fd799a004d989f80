"""Chapter 4: a shared matrix makes scores symmetric and weights not; the numbers are regard's."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import regard


def turned(degrees: float) -> Tensor:
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return torch.tensor([[c, s], [-s, c]], dtype=torch.float64)


def weights(state: dict[str, Any]) -> Tensor:
    x = torch.tensor(state["x"], dtype=torch.float64)
    query, key = x @ turned(state["q"]), x @ turned(state["q"] if state["shared"] else state["k"])
    return regard.attend(query, key, torch.eye(len(x), dtype=torch.float64))


def shown(chapter: Any, label: str) -> Tensor:
    texts = chapter.page.locator(f'svg[aria-label="{label}"] .inks text').all_text_contents()
    return torch.tensor([float(text.replace("−", "-")) for text in texts], dtype=torch.float64).view(5, 5)


def test_scores_are_symmetric_and_weights_are_not(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("separate", width=1800)
    assert chapter.reading("scores: largest") == "0"
    found = weights(chapter.state)
    assert float(chapter.reading("weights: largest")) == pytest.approx(float((found - found.mT).abs().max()), abs=1e-3)
    assert float((shown(chapter, "Weights of all pairs") - found).abs().max()) <= 0.0051


def test_two_matrices_and_dragged_words(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("separate", "&shared=0&q=60&k=-20", width=1800)
    assert float(chapter.reading("scores: largest")) > 0.1
    chapter.drag("bites", 40, 50)
    assert chapter.state["x"][2] != [0.5, 1.3]
    found = weights(chapter.state)
    assert float((shown(chapter, "Weights of all pairs") - found).abs().max()) <= 0.0051
    before = shown(chapter, "Scores of all pairs")
    chapter.set(v=90)  # what is handed over changes no weight
    assert torch.equal(shown(chapter, "Scores of all pairs"), before)
    assert chapter.colors("Scores of all pairs") > 8


def test_a_pair_and_its_mirror_image(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("separate")
    cell = chapter.page.locator('svg[aria-label="Scores of all pairs"] .cells rect').nth(1 * 5 + 2).bounding_box()
    assert cell is not None
    chapter.page.mouse.move(cell["x"] + 6, cell["y"] + 6)
    assert "dog → bites" in chapter.page.locator(".stage .sentence").inner_text()
    assert "Back, bites → dog" in chapter.page.locator(".stage .sentence").inner_text()
