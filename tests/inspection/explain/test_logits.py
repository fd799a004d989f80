"""Masks: the condition that is printed is the mask's own."""

import re

import pytest
import torch

from regard import masks
from regard.inspection.explain import explain

ROWS = [[float(at)] for at in range(6)]


@pytest.mark.parametrize(
    "mask, text",
    [
        (masks.Causal(), "j ≤ i"),
        (masks.Window(2, 0), "i − 2 ≤ j ≤ i"),
        (masks.Window(None, -1), "j ≤ i − 1"),
        (masks.Window(-1, 3), "i + 1 ≤ j ≤ i + 3"),
        (masks.Dilated(3, 2), "|i − j| ≤ 2 and 2 divides i − j"),
        (masks.Global(torch.tensor([0, 4])), "i ∈ {0, 4} or j ∈ {0, 4}"),
        (masks.Prefix(2), "j < 2"),
        (masks.Lengths(torch.tensor([4])), "j < 4"),
        (masks.Causal() & masks.Global(torch.tensor([0])), "j ≤ i and (i ∈ {0} or j ∈ {0})"),
        (masks.Causal() & (masks.Prefix(1) | masks.Window(1, 0)), "j ≤ i and (j < 1 or i − 1 ≤ j ≤ i)"),
        (~masks.Causal() | masks.Prefix(1), "not (j ≤ i) or j < 1"),
    ],
    ids=repr,
)
def test_conditions(mask: masks.Mask, text: str) -> None:
    explanation = explain(ROWS, ROWS, ROWS, mask=mask)
    step = next(step for step in explanation.steps if step.title == "Mask")
    assert step.formula is not None
    assert step.formula.text == text
    source = re.sub(r"(\S+) divides ([^)]*)", r"(\2) % \1 == 0", text)
    source = source.replace("≤", "<=").replace("∈", "in").replace("−", "-").replace("|i - j|", "abs(i - j)")
    for i, row in enumerate(explanation.weights.values):
        for j, weight in enumerate(row):
            assert (weight is not None) == eval(source, {"i": i, "j": j}), (text, i, j)


@pytest.mark.parametrize(
    "mask, text",
    [
        (masks.Documents(torch.tensor([0, 0, 0, 1, 1, 1])), "document(i) = document(j)"),
        (masks.Blocks(3, torch.tensor([[True, False], [True, True]])), "layout[⌊i/3⌋, ⌊j/3⌋]"),
        (masks.Dense(torch.ones(6, 6, dtype=torch.bool)), "table[query, key]"),
        (masks.Where(lambda b, h, i, j: i == j), "fn(b, h, i, j)"),
    ],
    ids=lambda value: str(value)[:12],
)
def test_tables_and_functions(mask: masks.Mask, text: str) -> None:
    step = next(step for step in explain(ROWS, ROWS, ROWS, mask=mask).steps if step.title == "Mask")
    assert step.formula is not None
    assert step.formula.text == text


def test_no_mask_no_step() -> None:
    titles = [step.title for step in explain(ROWS, ROWS, ROWS, mask=masks.Full()).steps]
    assert "Mask" not in titles
    assert "Hidden pairs" not in titles


def test_a_bias_that_hides_is_said() -> None:
    bias = torch.zeros(6, 6, dtype=torch.float64)
    bias[0, 1] = -torch.inf
    step = next(step for step in explain(ROWS, ROWS, ROWS, bias=bias).steps if step.title == "Hidden pairs")
    assert step.sentence.startswith("A score or bias of −∞ hides its pair. 1 of 36 pairs are hidden")
    assert step.worked[1].math.text == "i = 0, j = 1: hidden"
