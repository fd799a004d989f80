"""Chapter 2: the spread of scores grows with √d_k unless divided; entropy and gradient follow."""

import math
from collections.abc import Callable
from typing import Any

import pytest


def number(text: str) -> float:
    return float(text.replace("−", "-"))


@pytest.mark.parametrize("d", [4, 64, 256])
def test_spread_is_the_root_of_the_width(open_chapter: Callable[..., Any], d: int) -> None:
    chapter = open_chapter("scaling", f"&d={d}")
    unscaled, root, whole = (number(chapter.reading("spread of scores", n)) for n in range(3))
    assert unscaled == pytest.approx(math.sqrt(d), rel=0.12)  # 512 products: the deviation's own error is 1/√1024
    assert root == pytest.approx(1, rel=0.12)
    assert whole == pytest.approx(1 / math.sqrt(d), rel=0.15)


def test_entropy_falls_unscaled_and_stays_scaled(open_chapter: Callable[..., Any]) -> None:
    """The experiment's own means at d_k = 8 and 512 (regard lab scaling): 1.5 and 0.1 unscaled, 2.5 scaled."""
    entropies = {}
    for d in (8, 512):
        chapter = open_chapter("scaling", f"&d={d}")
        entropies[d] = [number(chapter.reading("entropy", n)) for n in range(3)]
    assert entropies[8][0] > 1.2
    assert entropies[512][0] < 0.3
    assert abs(entropies[8][1] - entropies[512][1]) < 0.2
    assert entropies[512][2] == pytest.approx(math.log(20), abs=0.02)


def test_the_slider_moves_the_histogram_and_the_weights(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("scaling", "&d=2")
    label = "Scores as they are: q · k"
    widths = []
    for share in (0.1, 0.5, 0.95):
        chapter.slide("width d_k of queries and keys", share)
        bars = chapter.page.locator(f'svg[aria-label="{label}"] .fills rect').evaluate_all(
            "bars => bars.filter((bar) => Number(bar.getAttribute('height')) > 0).length"
        )
        widths.append(bars)
    assert widths == sorted(widths)
    assert widths[-1] > 3 * widths[0]
    before = chapter.reading("spread of scores")
    chapter.page.get_by_role("button", name="new random numbers").click()
    chapter.settle()
    assert chapter.state["seed"] == 2
    assert chapter.reading("spread of scores") != before
