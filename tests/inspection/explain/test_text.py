"""Text: aligned, within the width, and harmless whatever the tokens are."""

import torch

from regard.inspection.explain import explain
from regard.inspection.text import display_width


def numbers(*size: int) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(1))


def test_hostile_tokens_stay_in_their_cell() -> None:
    tokens = ["\x1b[2J", "a\nb", "你好"]
    text = explain(numbers(3, 2), numbers(3, 2), numbers(3, 2), query_tokens=tokens, key_tokens=tokens).text()
    assert all(line.isprintable() for line in text.splitlines())
    assert r"\x1b[2J → a\nb" in text
    lines = text[text.index("Weights: softmax") :].splitlines()
    table = lines[3:7]
    assert table[0].split() == ["A", r"\x1b[2J", r"a\nb", "你好"]
    assert len({display_width(line) for line in table}) == 1


def test_wide_tables_are_cut_to_the_width() -> None:
    explanation = explain(numbers(4, 16), numbers(32, 16), numbers(32, 16), row=3)
    for width in (60, 80, 100):
        assert max(map(display_width, explanation.text(width).splitlines())) <= width


def test_long_tokens_are_shortened() -> None:
    tokens = ["x" * 50, "y" * 50]
    text = explain(numbers(2, 2), numbers(2, 2), numbers(2, 2), query_tokens=tokens, key_tokens=tokens).text(80)
    assert "x" * 19 + "…" in text
    assert max(map(len, text.splitlines())) <= 80
