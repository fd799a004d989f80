"""Temperature: spread rises with τ, its limit is hard attention, leaving out √d is a temperature; W_Q undoes one."""

from collections.abc import Callable

import pytest
import torch

from regard.inspection.records import Estimate
from regard.lab.maps import normal, weights
from regard.lab.report import Report
from regard.lab.tasks.matching import SCALED, Matcher, MatchingExamples, MatchingProblem
from regard.lab.temperature import COLDEST, REGIMES, measure, names
from regard.lab.temperature.uses import DRAWN, TEMPERATURES, answer, moved_by
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
    cold, half = quick("temperature").compared[0].claims[:2]
    assert "Almost one-hot" in cold.quote.plain
    assert (half.measured, half.verdict) == ("largest weight at τ = 0.5", "corrected")


def test_a_model_can_undo_a_temperature_exactly() -> None:
    torch.manual_seed(0)
    model = Matcher(SCALED, 8, 8, 8)
    given = MatchingProblem(keys=6, d_query=8, d_key=8, noise=1.0, mapped=False, seed=0).draw(4, torch.Generator())
    with torch.no_grad():
        assert moved_by(model, given, 2.0) == moved_by(model, given, 0.5) == 0.0
        assert 0 < moved_by(model, given, 0.7) < 1e-12
        before = model(given.query, given.key)
        assert not torch.allclose(model(given.query, given.key, 2.0), before, atol=1e-3)


def test_trained_weights_take_the_temperature_over(quick: Quick) -> None:
    rows = quick("temperature").tables[2].rows[:3]
    gains = [row[3].mean for row in rows if isinstance(row[3], Estimate)]
    assert [row[0] for row in rows] == ["0.5", "1", "2"]
    for tau, gain in zip((0.5, 1.0, 2.0), gains, strict=True):
        assert gain / tau == pytest.approx(1.0, abs=0.25)


def test_asking_at_another_temperature_keeps_the_answers(quick: Quick) -> None:
    rows = quick("temperature").tables[3].rows
    losses, right, weight, different = (
        [cell.mean for row in rows if isinstance(cell := row[index], Estimate)] for index in (1, 2, 3, 4)
    )
    assert len(set(right)) == 1
    assert losses.index(min(losses)) == [row[0] for row in rows].index("1")
    assert weight == sorted(weight, reverse=True)
    assert different == sorted(different)


def test_students_learn_more_from_a_warm_teacher(quick: Quick) -> None:
    right = [cell.mean for row in quick("temperature").tables[4].rows[:4] if isinstance(cell := row[3], Estimate)]
    assert right[0] < right[1] < right[2]


def test_expected_keys_of_ten_draws() -> None:
    """By drawing them."""
    weights = torch.tensor([0.7, 0.2, 0.1, 0.0], dtype=torch.float64)
    drawn = torch.multinomial(
        weights.expand(20_000, 4), DRAWN, replacement=True, generator=torch.Generator().manual_seed(0)
    )
    different = torch.nn.functional.one_hot(drawn, 4).amax(1).sum(1).double().mean()
    given = MatchingExamples(torch.zeros(1, 1, 1), torch.zeros(1, 1, 1), torch.tensor([[0]]))
    assert answer(weights.view(1, 1, 4), given).different == pytest.approx(float(different), abs=0.02)
