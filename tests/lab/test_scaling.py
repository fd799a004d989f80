"""Entropy against width: an independent Monte Carlo agrees, scaling keeps it constant, and gradients are autograd's."""

import math
from collections.abc import Callable

import pytest
import torch

from regard.inspection.records import Bars, Estimate, Panel
from regard.inspection.statistics import mean, placement
from regard.lab.maps import KEYS
from regard.lab.report import Report
from regard.lab.scaling import NONE, PRINTED, ROOT, SCALINGS, WHOLE, WIDTHS, measure
from regard.spec.scores import Dot, ScaledDot

Quick = Callable[[str], Report]


def plain_entropies(width: int, factor: float, draws: int) -> torch.Tensor:
    """Mean entropy of each draw, in torch alone."""
    generator = torch.Generator().manual_seed(99)
    query, key = (torch.randn(draws, KEYS, width, generator=generator, dtype=torch.float64) for _ in range(2))
    logs = (query @ key.mT * factor).log_softmax(-1)
    return -(logs.exp() * logs).sum(-1).mean(-1)


@pytest.mark.parametrize("width", [8, 128])
@pytest.mark.parametrize("name", SCALINGS)
def test_entropy_agrees_with_plain_torch(width: int, name: str) -> None:
    factor = {NONE: 1.0, ROOT: width**-0.5, WHOLE: 1 / width}[name]
    ours = measure(torch.Generator().manual_seed(0), width, SCALINGS[name](width), 200).entropy
    plain = plain_entropies(width, factor, 200)
    error = math.sqrt(float(ours.var() + plain.var()) / 200)
    assert abs(float(ours.mean() - plain.mean())) < 4 * error


def test_gradients_are_those_of_plain_torch() -> None:
    """The draw is repeated with the same numbers and differentiated by hand-written attention."""
    width, count = 11, 3
    draws = measure(torch.Generator().manual_seed(5), width, ScaledDot(), count)
    generator = torch.Generator().manual_seed(5)
    query, key, value = (
        torch.randn(count, 1, KEYS, size, generator=generator, dtype=torch.float64) for size in (width, width, 1)
    )
    query.requires_grad_()
    scores = query @ key.mT / math.sqrt(width)
    to_scores, to_query = torch.autograd.grad((scores.softmax(-1) @ value).sum(), (scores, query))
    assert torch.allclose(draws.scores, to_scores.norm(dim=-1).flatten(1).median(1).values, rtol=1e-9)
    assert torch.allclose(draws.query, to_query.norm(dim=-1).flatten(1).median(1).values, rtol=1e-9)
    assert torch.allclose(draws.query_mean, to_query.norm(dim=-1).flatten(1).mean(1), rtol=1e-9)


def test_scaled_entropy_is_constant_and_unscaled_falls(quick: Quick) -> None:
    rows = quick("scaling").tables[0].rows
    columns = [[cell.mean for row in rows if isinstance(cell := row[index], Estimate)] for index in (1, 2, 3)]
    none, root, whole = columns
    assert len(none) == len(WIDTHS)
    assert none == sorted(none, reverse=True)
    assert (max(root) - min(root)) / min(root) < 0.015
    assert whole == sorted(whole)
    assert whole[-1] > 0.999 * math.log(KEYS)


def test_every_printed_entropy_is_a_usual_draw() -> None:
    """At least eleven of twelve lie in the central 95 %: that is what single draws do."""
    generator = torch.Generator().manual_seed(1)
    places = [
        placement(figure, measure(generator, width, Dot() if name == NONE else ScaledDot(), 200).entropy)
        for name, figures in PRINTED.items()
        for width, figure in zip(WIDTHS, figures, strict=True)
    ]
    assert sum(0.025 <= place <= 0.975 for place in places) >= 11


def test_unscaled_gradients_vanish_for_the_median_and_not_for_the_mean() -> None:
    generator = torch.Generator().manual_seed(2)
    unscaled, scaled = (measure(generator, 512, score, 200) for score in (Dot(), ScaledDot()))
    assert mean(unscaled.query).high < mean(scaled.query).low
    assert mean(unscaled.query_mean).low > mean(scaled.query_mean).high


def test_weights_of_the_picture_are_two_distributions(quick: Quick) -> None:
    panel = quick("scaling").pictures[0]
    assert isinstance(panel, Panel)
    bars = panel.pictures[-1]
    assert isinstance(bars, Bars)
    for heights in bars.series.values():
        assert sum(heights) == pytest.approx(1, abs=0.01)
    assert max(bars.series[NONE]) > 2 * max(bars.series[ROOT])
