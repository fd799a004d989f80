"""dimensions: counts of real layers, work that does not depend on the heads, and a scale that does."""

import dataclasses
import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from regard.inspection.records import Bars, Diagram, Estimate
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


def test_pictures_show_shapes_and_widths(quick: Quick) -> None:
    shapes, widths, *_ = quick("dimensions").pictures
    assert isinstance(shapes, Diagram)
    texts = [box.text for box in shapes.boxes]
    assert f"K in {BERT.heads} heads\n{LENGTH} × {BERT.d_k}" in texts
    reached = {0}
    for arrow in shapes.arrows:  # from left to right
        assert arrow.start in reached
        reached.add(arrow.stop)
    assert reached == set(range(len(texts)))
    assert isinstance(widths, Bars)
    smol = list(widths.labels).index("SmolLM2-135M")
    assert [heights[smol] for heights in widths.series.values()] == [576, 576, 192]


def test_numbers_do_not_move_the_generator_of_others() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    dimensions.measured(Setting(quick=True), 12, 2)
    assert torch.equal(before, torch.get_rng_state())
