"""Temperature: spread rises with τ, its limit is hard attention, and leaving out √d is a temperature."""

from collections.abc import Callable

import torch

from regard.inspection.records import Estimate
from regard.lab.draws import normal, weights
from regard.lab.experiments.temperature import COLDEST, REGIMES, TEMPERATURES, measure, names
from regard.lab.report import Report
from regard.spec.scores import Dot

Quick = Callable[[str], Report]


def test_keys_in_use_rise_and_the_peak_falls(quick: Quick) -> None:
    rows = quick("temperature").tables[0].rows
    keys, peak = ([cell.mean for row in rows if isinstance(cell := row[index], Estimate)] for index in (3, 4))
    assert len(keys) == len(TEMPERATURES)
    assert keys == sorted(keys)
    assert peak == sorted(peak, reverse=True)
    assert 1 < keys[0] < 2
    assert 19 < keys[-1] < 20


def test_the_limit_is_hard_attention() -> None:
    generator = torch.Generator().manual_seed(0)
    draws = [(normal(generator, 50, 1, 20, 64), normal(generator, 50, 1, 20, 64))]
    apart = [float(measure(draws, tau).hard.mean()) for tau in COLDEST]
    assert apart == sorted(apart, reverse=True)
    assert apart[-1] < 0.01
    # for one-hot targets the distance is what the largest weight leaves to the others
    rows = measure(draws, 0.3)
    assert torch.allclose(rows.hard, 1 - rows.peak, rtol=0, atol=1e-12)


def test_leaving_out_the_root_is_a_temperature() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = normal(generator, 2, 1, 5, 64), normal(generator, 2, 1, 7, 64)
    assert torch.allclose(
        weights(query, key, score=Dot()), weights(query, key, temperature=1 / 8), rtol=1e-9, atol=1e-300
    )


def test_every_temperature_has_a_name() -> None:
    assert names(1.0) == "Normal"
    assert names(0.5) == "Very Cold / Cold"
    assert names(2.0) == "Warm / Hot"
    assert all(names(tau) for tau in TEMPERATURES)
    assert [regime.name for regime in REGIMES] == ["Very Cold", "Cold", "Normal", "Warm", "Hot"]


def test_half_is_not_one_hot(quick: Quick) -> None:
    claim = quick("temperature").compared[0].claims[0]
    assert claim.figure == "almost one-hot"
    assert claim.verdict == "weight ≥ 0.9: nowhere"
