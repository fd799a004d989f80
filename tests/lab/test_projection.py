"""projection: blocks, sums and shapes of W_O, and a report that follows from trained layers."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from regard.inspection.records import Estimate, Grid, Panel
from regard.lab import projection
from regard.lab.projection import (
    HEADS,
    WITH,
    WITHOUT,
    ProjectionShape,
    RandomLayers,
    drawn,
    folded,
    footprint,
    missed,
    shape,
    side_by_side,
    summed,
)
from regard.lab.report import Report
from regard.lab.setting import Setting
from regard.lab.tasks.relations import QUESTIONS, Relater, right, three_questions

Quick = Callable[[str], Report]


def test_without_it_a_head_touches_its_own_block_only() -> None:
    layer, x = drawn(3)
    bare = side_by_side(layer)
    assert torch.equal(footprint(bare, x), torch.eye(HEADS, dtype=torch.float64))
    mixed = footprint(layer, x)
    assert torch.allclose(mixed.sum(1), torch.ones(HEADS, dtype=torch.float64))
    assert 0.02 < float(mixed.min()) < float(mixed.max()) < 0.6


def test_the_product_is_a_sum_over_heads() -> None:
    layer, x = drawn(4)
    assert summed(layer, x) < 1e-13
    # block by block, by hand: the first head with the first rows of W_O
    first = side_by_side(layer)(x)[..., : layer.d_v] @ layer.out_proj.weight[:, : layer.d_v].T
    rest = side_by_side(layer)(x)[..., layer.d_v :] @ layer.out_proj.weight[:, layer.d_v :].T
    assert torch.allclose(first + rest, layer(x), atol=1e-12)


@pytest.mark.parametrize("sizes", [(12, 3, 4), (12, 3, 7), (24, 2, 5)])
def test_shapes(sizes: tuple[int, int, int]) -> None:
    d_model, heads, d_v = sizes
    assert shape(*sizes) == ProjectionShape(d_model, heads, d_v, heads * d_v, d_model, d_model)


def _model(seed: int) -> tuple[Any, Relater, Any]:
    task = three_questions(Setting(quick=True), seed, HEADS)
    torch.manual_seed(seed)
    model = task.model().eval()
    assert isinstance(model, Relater)
    return task, model, task.texts(20, torch.Generator().manual_seed(seed))


def test_folded_into_the_reading_it_gives_the_same_answers() -> None:
    _, model, texts = _model(0)
    assert folded(model, texts) < 1e-12


def test_what_is_missed_is_what_ablating_costs() -> None:
    task, model, texts = _model(1)
    whole = right(task, model, texts)
    lost_by_head = missed(task, model, texts)
    assert len(lost_by_head) == HEADS
    with torch.no_grad():  # the last head put out zeros: its columns of W_O do not matter
        model.attention.out_proj.weight[:, -model.attention.d_v :] = 0
    without = right(task, model, texts)
    # "previous" and "first" are wanted by as many places of every text, so that the means agree
    for question in ("previous", "first"):
        assert lost_by_head[-1][question].mean == pytest.approx(whole[question] - without[question], abs=1e-6)


def test_quick_layers_learn_and_heads_are_missed(quick: Quick) -> None:
    report = quick("projection")
    for row in report.tables[2].rows:
        for cell in row[1:]:
            assert isinstance(cell, Estimate)
            assert cell.mean > 0.5
    panel = report.pictures[1]
    assert isinstance(panel, Panel)
    for grid in panel.pictures:
        assert isinstance(grid, Grid)
        assert max(value or 0.0 for row in grid.values for value in row) > 0.2
    first = report.pictures[0]
    assert isinstance(first, Panel)
    apart = first.pictures[0]
    assert isinstance(apart, Grid)
    assert torch.equal(torch.tensor(apart.values), torch.eye(HEADS))


def _runs(joined: float, apart: float) -> Any:
    lost = [{question: Estimate(0.5 * (question == "first"), 0.4, 0.6) for question in QUESTIONS}]

    def of(right: float) -> Any:
        return [SimpleNamespace(right=dict.fromkeys(QUESTIONS, right), missed=lost, folded=1e-15) for _ in range(3)]

    return {WITH: of(joined), WITHOUT: of(apart)}


def test_verdicts_follow_the_numbers() -> None:
    eye = torch.eye(HEADS, dtype=torch.float64).expand(3, -1, -1)
    even = torch.full((3, HEADS, HEADS), 1 / HEADS, dtype=torch.float64)
    random = RandomLayers({WITH: even, WITHOUT: eye}, 1e-16)
    square, wide = ProjectionShape(8, 2, 4, 8, 8, 8), ProjectionShape(8, 2, 5, 10, 8, 8)
    listed = projection.claims(random, _runs(1.0, 1.0), [square, wide])
    assert listed[0].outcome == "confirmed: side by side: 1.00"
    assert [claim.verdict for claim in listed[1:]] == ["confirmed", "partly", "partly", "confirmed"]
    other = projection.claims(
        RandomLayers({WITH: eye, WITHOUT: eye}, 1.0), _runs(1.0, 0.5), [square, replace(square, out=9)]
    )
    assert [claim.verdict for claim in other] == ["corrected", "partly", "confirmed", "confirmed", "corrected"]
    assert projection.narrowest(_runs(1.0, 1.0)).mean == 1.0
