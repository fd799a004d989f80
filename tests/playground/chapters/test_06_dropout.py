"""Chapter 6: the pattern is the one of regard.Dropout with the same seed; the mean comes back to the weights."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import regard

DROPPED = "Weights with dropout"


def kept(chapter: Any, n: int = 8) -> list[bool]:
    """Whether each cell of the pattern is drawn as kept."""
    fills = chapter.page.locator(f'svg[aria-label="{DROPPED}"] .cells rect').evaluate_all(
        "cells => cells.map((cell) => cell.getAttribute('fill'))"
    )
    assert len(fills) == n * n
    return [not fill.startswith("url") for fill in fills]


@pytest.mark.parametrize("p, seed", [(0.3, 1), (0.75, 12345)])
def test_the_pattern_is_that_of_regard(open_chapter: Callable[..., Any], p: float, seed: int) -> None:
    chapter = open_chapter("dropout", f"&p={p}&seed={seed}")
    even = torch.zeros(8, 4, dtype=torch.float64)
    dropped = regard.attend(even, even, torch.eye(8, dtype=torch.float64), dropout=regard.Dropout(p, seed))
    assert kept(chapter) == (dropped > 0).flatten().tolist()
    assert chapter.reading("dropped") == f"{int((dropped == 0).sum())} of 64"


def test_another_seed_and_another_rate(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("dropout")
    first = kept(chapter)
    chapter.page.get_by_role("button", name="another seed").click()
    chapter.settle()
    assert chapter.state["seed"] == 2
    assert kept(chapter) != first
    chapter.slide("p, probability of being dropped", 0.0)
    assert all(kept(chapter))
    assert chapter.reading("row sums") == "1 to 1"


def test_the_mean_comes_back_to_the_weights(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("dropout", "&count=4")
    few = float(chapter.reading("mean: largest"))
    chapter.set(count=400)
    assert float(chapter.reading("mean: largest")) < few / 3
