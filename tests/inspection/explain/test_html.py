"""HTML: one document that folds, with every token escaped and nothing from elsewhere."""

import re
from html.parser import HTMLParser

import pytest
import torch
from matplotlib.mathtext import MathTextParser

from regard.inspection.explain import explain

ROWS = [[1.0, 0.5], [0.5, 1.0]]


class Tags(HTMLParser):
    """Checks that what is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.count = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count += tag == "details"
        if tag not in ("meta",):
            self.opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag


def test_it_is_sound_and_folds() -> None:
    steps = explain(ROWS, ROWS, ROWS, query_tokens=["a", "b"], key_tokens=["a", "b"], mask="causal")
    tags = Tags()
    tags.feed(steps.html())
    assert tags.opened == []
    worked = sum(bool(step.worked) for step in steps.steps)
    assert tags.count == len(steps.steps) + worked
    assert '<tr class="row"><th>a</th>' in steps.html()
    assert '<td class="hidden">hidden</td>' in steps.html()


def test_tokens_cannot_become_markup() -> None:
    made = explain(ROWS, ROWS, ROWS, query_tokens=["<b>", "&"], key_tokens=["<script>alert(1)</script>", "x"]).html()
    assert "<script" not in made
    assert "&lt;script&gt;" in made
    assert "default-src 'none'" in made
    assert not re.search(r"(src|href)=", made)


def test_wide_vectors_of_a_model_end_with_the_weights() -> None:
    query, key = torch.randn(2, 40), torch.randn(3, 40)
    made = explain(query, key, weights_only=True)
    assert [step.title for step in made.steps][-1] == "Weights: softmax"
    assert made.steps[0].tables == ()
    expected = (query @ key.mT / 40**0.5).softmax(-1)
    assert torch.tensor(made.weights.values).sub(expected).abs().max() < 1e-6
    with pytest.raises(TypeError, match="value is missing"):
        explain(query, key)


def test_formulas_are_math_that_another_program_reads() -> None:
    """matplotlib's parser of LaTeX reads every formula that uses no text of amsmath."""
    parser = MathTextParser("path")
    read = 0
    for step in explain(ROWS, ROWS, ROWS, temperature=2.0).steps:
        for latex in [line.math.latex for line in step.worked] + ([step.formula.latex] if step.formula else []):
            parser.parse(f"${latex}$")
            read += 1
    assert read > 10
