"""tricks: the ways give the same attention, counts are those of real tensors, and verdicts follow the numbers."""

import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from regard.inspection.records import Estimate
from regard.lab import tricks
from regard.lab.cost import peak_bytes
from regard.lab.report import Report
from regard.lab.setting import Setting
from regard.lab.stopwatch import Times, Turns
from regard.lab.tricks import ways
from regard.lab.tricks.ways import NAIVE, TILED, generated, generation_cost, projections, small_model

Quick = Callable[[str], Report]


@pytest.fixture(scope="module")
def found() -> tricks.TrickResults:
    return tricks.measured(Setting(quick=True, seed=3), 2)


@pytest.mark.parametrize("name", [*ways.ways()])
def test_all_ways_are_attention(name: str) -> None:
    query, key, value = torch.randn(3, 1, 2, 150, ways.WIDTH, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        out = ways.ways()[name](query, key, value)
    assert torch.allclose(out, scaled_dot_product_attention(query, key, value), atol=1e-5)


def test_chunks_that_are_computed_again_have_the_same_gradient() -> None:
    inputs = torch.randn(3, 1, 1, 150, ways.WIDTH, generator=torch.Generator().manual_seed(0)).unbind()
    leaves = query, key, value = [each.clone().requires_grad_() for each in inputs]
    once, again = (
        torch.autograd.grad(ways.chunked(query, key, value, again=again).square().sum(), leaves)
        for again in (False, True)
    )
    for first, second in zip(once, again, strict=True):
        assert torch.allclose(first, second, atol=1e-5)


def test_bytes_of_shapes_are_those_of_tensors() -> None:
    length = 256
    inputs = torch.randn(3, 1, 1, length, ways.WIDTH)
    with torch.no_grad():
        held = peak_bytes(lambda: ways.naive(*inputs))
    assert ways.forward_bytes(ways.NAIVE, length) == held - 4 * length * ways.WIDTH
    # scores and weights at once
    assert 2 * 4 * length**2 - 4 * length * ways.WIDTH <= ways.forward_bytes(ways.NAIVE, length) <= 3 * 4 * length**2


def test_the_longest_text_just_fits() -> None:
    budget = 1 << 20
    longest = ways.longest(ways.NAIVE, budget, 4096)
    assert ways.forward_bytes(ways.NAIVE, longest) <= budget < ways.forward_bytes(ways.NAIVE, longest + 1)
    drawn = ways.longest(ways.CHUNKS, budget, 512)
    assert ways.forward_bytes(ways.CHUNKS, drawn) == pytest.approx(budget, rel=0.02)


@pytest.mark.parametrize("count", [1, 5])
def test_generation_costs_what_the_formulas_say(count: int) -> None:
    assert generated(small_model(1, "reference"), count) == (generation_cost(count), True)


def test_a_cached_step_projects_query_key_value_and_output() -> None:
    assert projections(3) == projections(9) == 4


def test_memory_grows_as_it_should(found: tricks.TrickResults) -> None:
    assert found.forward[ways.NAIVE].order == pytest.approx(2, abs=0.05)
    assert all(each.order < 1.05 for name, each in found.forward.items() if name != ways.NAIVE)
    assert found.more(ways.CHUNKS) == 1
    assert found.more(ways.AGAIN) == found.more(ways.TILED) == pytest.approx(7 / 6)
    assert found.training[ways.CHUNKS].order > found.training[ways.AGAIN].order


def test_verdicts_follow_the_numbers(found: tricks.TrickResults) -> None:
    said = {claim.measured: claim.verdict for claim in tricks.claims(found)}
    power, traded = "power of n with which the bytes grow", "operations in chunks over those as written"
    assert said[f"{power}, as written"] == said[f"{power}, block by block"] == "confirmed"
    assert said[f"{traded}, forward"] == "corrected"
    assert said[f"{traded}, in training"] == "confirmed"
    assert "the same numbers" in tricks.generation_table(found).title
    naive = found.forward[ways.NAIVE]
    dear = dataclasses.replace(naive, operations=2 * naive.operations)
    other = dataclasses.replace(
        found,
        forward={**found.forward, found.flash: dear, ways.CHUNKS: dear},
        projections=1.0,
        counted=dataclasses.replace(found.counted, cached=1),
    )
    said = {claim.measured: claim.verdict for claim in tricks.claims(other)}
    assert said[f"{power}, block by block"] == said[f"{power}, in chunks"] == "corrected"
    assert said[f"{traded}, forward"] == "confirmed"
    assert said["projections of the new token that a step with a cache computes"] == "confirmed"
    assert "other numbers" in tricks.generation_table(other).title


def test_errors_are_those_of_float32(quick: Quick) -> None:
    for row in quick("tricks").tables[0].rows:
        assert isinstance(row[-1], Estimate)
        assert 0.1 < row[-1].mean < 20


def test_the_stopwatch_judges_the_speed() -> None:
    def times(ratio: float, second: float = 1.0) -> dict[str, Turns]:
        return {NAIVE: Turns((ratio, ratio)), TILED: Turns((1.0, second))}

    (table,) = tricks.speed_tables(Times({256: times(1.5), 512: times(9.0), 1024: times(3.9)}), TILED)
    assert [str(row[-1]).partition(":")[0] for row in table.rows] == ["partly", "confirmed"]
    (steady,) = tricks.speed_tables(Times({256: times(1.5, second=2.0), 1024: times(3.9)}), TILED)
    assert len(steady.rows) == 1
    assert tricks.speed_tables(Times({256: times(1.5, second=2.0)}), TILED) == ()
