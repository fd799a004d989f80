"""Var(q · k) = d, ranges are ±2√d, and d = 64 is saturated."""

import re
from collections.abc import Callable

import pytest
import torch

from regard.inspection.statistics import mean
from regard.lab.report import Report
from regard.lab.scaling import NONE, ROOT
from regard.lab.variance import ROWS, WIDTHS, attended, sampled

Quick = Callable[[str], Report]


@pytest.mark.parametrize("width", WIDTHS)
def test_the_interval_of_the_variance_covers_d(width: int) -> None:
    products = sampled(torch.Generator().manual_seed(7), width, 40)
    wide = mean(products.variance, confidence=0.999)
    assert wide.low <= width <= wide.high
    assert float(re.findall(r"\+(\d+)", ROWS[width])[0]) == pytest.approx(2 * width**0.5, abs=0.5)
    assert mean(products.inside).mean == pytest.approx(0.954, abs=0.01)


def test_louder_components_give_more_than_d() -> None:
    wide = mean(sampled(torch.Generator().manual_seed(7), 64, 40, deviation=2.0).variance, confidence=0.999)
    assert wide.low <= 16 * 64 <= wide.high


def test_a_width_of_64_is_saturated_unless_scaled() -> None:
    generator = torch.Generator().manual_seed(7)
    unscaled, scaled = (attended(generator, 64, name, 40) for name in (NONE, ROOT))
    assert mean(unscaled.saturated).low > 0.4
    assert mean(unscaled.effective).high < 2
    assert float(scaled.saturated.max()) < 0.05
    assert mean(scaled.effective).low > 12


def test_both_documents_are_quoted(quick: Quick) -> None:
    sources = [compared.source for compared in quick("variance").compared]
    assert sources == [
        "important concepts, The Problem Without Scaling",
        "important concepts, Why Not Divide by d_k?",
        "score functions, Why Does This Happen?",
        "score functions, The Solution: Scale by √d",
    ]
