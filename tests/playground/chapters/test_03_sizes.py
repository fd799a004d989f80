"""Chapter 3: shapes, parameters and operations are those of a real layer and of `regard.plan`."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import regard

PICTURE, SHARES = "Shapes through an attention layer", "Operations by part of the layer"
POWERS = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def amount(text: str) -> float:
    number, _, power = text.partition(" ")
    return float(number) * POWERS.get(power, 1)


def test_counts_are_those_of_a_layer(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("sizes", "&d=96&h=6&kv=2&n=40")
    layer = regard.nn.MultiHeadAttention(96, 6, kv_heads=2, projection_bias=False)
    assert amount(chapter.reading("parameters")) == pytest.approx(sum(p.numel() for p in layer.parameters()), rel=5e-3)
    q, k = torch.zeros(1, 6, 40, 16), torch.zeros(1, 2, 40, 16)
    texts = chapter.page.locator(f'svg[aria-label="{SHARES}"] .numbers text').all_text_contents()
    _, scores, mixing, _ = map(amount, texts)
    assert scores + mixing == pytest.approx(regard.plan(q, k, k, engine="reference").flops, rel=5e-3)
    shapes = chapter.page.locator(f'svg[aria-label="{PICTURE}"] .shapes text').all_text_contents()
    assert shapes == [
        "40 × 96",
        "6 × 40 × 16",
        "2 × 40 × 16",
        "2 × 40 × 16",
        "6 × 40 × 40",
        "6 × 40 × 16",
        "40 × 96",
        "40 × 96",
    ]


def test_presets_and_sliders_change_the_picture(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("sizes")
    chapter.page.get_by_role("button", name="Llama 3 8B").click()
    chapter.settle()
    assert chapter.reading("d_k =") == "128"
    assert "4 query heads share" in chapter.page.locator(".sentence").inner_text()
    before = chapter.page.locator(f'svg[aria-label="{PICTURE}"] .sheets rect').first.get_attribute("width")
    chapter.slide("d_model, width of a token", 0.2)
    assert chapter.state["d"] < 100
    assert chapter.page.locator(f'svg[aria-label="{PICTURE}"] .sheets rect').first.get_attribute("width") != before


def test_heads_do_not_change_the_parameters(open_chapter: Callable[..., Any]) -> None:
    chapter = open_chapter("sizes", "&h=12&kv=12")
    before = chapter.reading("parameters")
    chapter.set(h=24, kv=24)
    assert chapter.reading("d_k =") == "32"
    assert chapter.reading("parameters") == before
