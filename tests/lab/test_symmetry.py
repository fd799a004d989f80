"""symmetry: exact identities of shared projections, and a report that follows from trained models."""

from collections.abc import Callable

import pytest
import torch

from regard.inspection.records import Estimate, Grid, Panel
from regard.lab import symmetry
from regard.lab.report import Report
from regard.lab.setting import Setting
from regard.lab.symmetry import (
    ITEMS,
    OWN,
    SHARED,
    SymmetryTraining,
    circle,
    freedom,
    links,
    random_maps,
)
from regard.lab.training import Trained

Quick = Callable[[str], Report]


def test_scores_are_symmetric_weights_follow_the_denominators() -> None:
    maps = random_maps(torch.Generator().manual_seed(0), 50, shared=True)
    scores, weights, left = maps.apart()
    assert maps.symmetric
    assert float(maps.rounding.max()) < 1e-13
    assert float(scores.max()) <= float(maps.rounding.max())
    assert float(weights.min()) > 0.01
    assert float(left.max()) < 1e-13
    assert torch.allclose(maps.scores.softmax(-1), maps.weights, atol=1e-14)
    own = random_maps(torch.Generator().manual_seed(0), 50, shared=False).apart()
    assert not random_maps(torch.Generator().manual_seed(0), 50, shared=False).symmetric
    # with two projections what the denominators leave is the difference of the scores
    assert torch.allclose(own[0], own[2], atol=1e-12)


def test_symmetric_scores_lead_nowhere_round_a_circle() -> None:
    symmetric = torch.randn(7, 7, dtype=torch.float64)
    symmetric = 5 * (symmetric + symmetric.T)
    assert float(links(symmetric.softmax(-1)).sum()) == pytest.approx(0, abs=1e-9)
    onward = torch.zeros(4, 4, dtype=torch.float64)
    onward[torch.arange(4), (torch.arange(4) + 1) % 4] = 3.0
    assert links(onward.softmax(-1)).tolist() == pytest.approx([3.0] * 4)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_free_directions(heads: int) -> None:
    generator = torch.Generator().manual_seed(0)
    width, d_k = 8, 8 // heads
    # a product of two width × d_k matrices does not change when d_k × d_k of freedom moves from one to the other
    assert freedom(width, heads, generator) == (3 * width**2 - heads * d_k**2, width**2)


def test_the_circle_of_a_model_is_what_it_computes() -> None:
    torch.manual_seed(0)
    task = symmetry.training_task(Setting(quick=True), 0, "next", 5, SHARED)
    model = task.model().double()
    x = model.norm(model.types(torch.arange(5)) + model.payloads(torch.zeros(5, dtype=torch.long)))  # type: ignore[operator]
    query = x @ model.attention.q_proj.weight.T  # type: ignore[union-attr]
    assert torch.allclose(circle(model, 5), (query @ query.T / task.width**0.5).softmax(-1), atol=1e-12)


def test_quick_models_learn_the_circle_with_two_projections_only(quick: Quick) -> None:
    report = quick("symmetry")
    *_, last = report.tables[0].rows
    own, shared, several = last[1:]
    assert isinstance(own, Estimate)
    assert isinstance(shared, Estimate)
    assert isinstance(several, Estimate)
    assert own.mean > 0.97
    assert 0.3 < shared.mean < 0.9
    assert several.mean > shared.mean
    for row in report.tables[2].rows:
        assert isinstance(row[-1], Estimate)
        assert abs(row[-1].mean) < 1e-9
        assert isinstance(row[4], Estimate)
        assert row[4].mean >= 1


def test_the_pictures_show_the_trained_circle_and_the_random_maps(quick: Quick) -> None:
    first, _, last = quick("symmetry").pictures
    assert isinstance(first, Panel)
    own, _ = first.pictures
    assert isinstance(own, Grid)
    assert all((own.values[place][(place + 1) % ITEMS] or 0) > 0.5 for place in range(ITEMS))
    assert isinstance(last, Panel)
    scores, weights = (torch.tensor(grid.values) for grid in last.pictures if isinstance(grid, Grid))
    assert torch.allclose(scores, scores.T, rtol=0, atol=1e-13)
    assert not torch.allclose(weights, weights.T, rtol=0, atol=0.01)


def _runs(shared: float) -> symmetry.Runs:
    even = torch.full((ITEMS, ITEMS), 1 / ITEMS, dtype=torch.float64)
    keys = [(question, ITEMS, name) for question in ("previous", "next") for name in symmetry.VARIANTS]
    trained = Trained(symmetry.training_task(Setting(), 0, "next", ITEMS, OWN), torch.nn.Identity(), (), {})
    return {key: [SymmetryTraining(1.0 if key[2] == OWN else shared, even, trained)] * 3 for key in keys}


def test_verdicts_follow_the_numbers() -> None:
    random = {name: random_maps(torch.Generator().manual_seed(0), 9, name == SHARED) for name in (OWN, SHARED)}
    free = {1: (2, 1)}
    for shared, said in ((1.0, "corrected"), (0.125, "confirmed"), (0.8, "partly")):
        listed = symmetry.claims(random, _runs(shared), free)
        assert [claim.verdict for claim in listed[3:6]] == [said] * 3
    assert listed[4].outcome == "partly: with one link lost it would be 0.891"
    assert symmetry.claims(random, _runs(1.0), {1: (3, 1)})[6].verdict == "confirmed"
