"""dimensions: counts of real layers, work that does not depend on the heads, and a scale that does."""

import dataclasses
import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from regard.inspection.records import Estimate, Grid
from regard.lab import dimensions
from regard.lab.dimensions import BERT, LENGTH, MODELS
from regard.lab.report import Report
from regard.lab.setting import Setting
from regard.nn import MultiHeadAttention

Quick = Callable[[str], Report]


def test_parameters_are_those_of_torch() -> None:
    layer = nn.MultiheadAttention(768, 12, device="meta")
    assert BERT.parameters == sum(parameter.numel() for parameter in layer.parameters()) == 4 * 768 * 768 + 4 * 768


@pytest.mark.parametrize("name", ["BERT-base", "SmolLM2-135M", "T5 v1.1 small"])
def test_operations_are_those_of_a_layer(name: str) -> None:
    shape = next(each for each in MODELS if each.model == name)
    layer = MultiHeadAttention(
        shape.d_model, shape.heads, kv_heads=shape.kv_heads, d_k=shape.d_k, projection_bias=shape.biases
    )
    summary = layer.summary(LENGTH)
    assert summary.total_flops == shape.projecting + shape.pairing
    assert summary.total_parameters == shape.parameters
    assert shape.counted() == (shape.parameters, shape.projecting, shape.pairing)


def test_a_wrong_formula_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {row[-1] for row in dimensions.model_table().rows} == {"agree"}
    monkeypatch.setattr(dimensions, "MODELS", (BERT,))
    monkeypatch.setattr(type(BERT), "pairing", property(lambda shape: 1))
    assert dimensions.model_table().rows[0][-1] == "differ"


def test_products_do_not_depend_on_the_heads_and_the_scale_does(quick: Quick) -> None:
    rows = quick("dimensions").tables[1].rows
    assert len({row[2] for row in rows}) == len({row[3] for row in rows}) == 1
    for row in rows:
        assert isinstance(row[1], int)
        assert isinstance(row[6], Estimate)
        assert row[6].mean == pytest.approx(math.sqrt(row[1]), rel=0.03)
    own, borrowed = ([cell.mean for row in rows if isinstance(cell := row[index], Estimate)] for index in (7, 8))
    assert max(own) < 1.06 * min(own)
    assert borrowed == sorted(borrowed)
    assert borrowed[0] < 10 < 55 < borrowed[-1]


def test_verdicts_follow_the_numbers(quick: Quick) -> None:
    setting = Setting(quick=True)
    cuts = [dimensions.measured(setting, heads, 2) for heads in (1, 12)]
    said = {claim.measured: claim.verdict for claim in dimensions.claims(cuts)}
    assert said["operations of products, 12 heads over 1 head"] == "confirmed"
    assert said["exponentials of softmax, 12 heads over 1 head"] == "corrected"
    assert said["spread of q · k, 12 heads over 1 head"] == "confirmed"
    other = [cuts[0], dataclasses.replace(cuts[1], operations=1, spread=cuts[0].spread + 1)]
    said = {claim.measured: claim.verdict for claim in dimensions.claims(other)}
    assert said["operations of products, 12 heads over 1 head"] == "corrected"
    assert said["spread of q · k, 12 heads over 1 head"] == "corrected"
    assert "do not take the same" in dimensions.finding(other)


def test_the_picture_cuts_where_heads_begin(quick: Quick) -> None:
    grid = quick("dimensions").pictures[0]
    assert isinstance(grid, Grid)
    for heads, row in zip((1, *dimensions.DRAWN), grid.values, strict=True):
        borders = sum(before != after for before, after in itertools.pairwise(row))
        assert borders == heads - 1
    widths = quick("dimensions").pictures[1]
    assert isinstance(widths, Grid)
    drawn = dict(zip(range(len(widths.values)), widths.row_labels, strict=True))
    smol = next(place for place, label in drawn.items() if label == "SmolLM2-135M")
    lengths = [sum(value is not None for value in widths.values[smol + below]) * 64 for below in range(3)]
    assert lengths == [576, 576, 192]


def test_numbers_do_not_move_the_generator_of_others() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    dimensions.measured(Setting(quick=True), 12, 2)
    assert torch.equal(before, torch.get_rng_state())
