"""Intervals cover as often as they say; Student's t matches its tables; figures are placed among draws."""

import math

import pytest
import torch

from regard.inspection.statistics import inside, mean, placement, student

# two-sided 95 %: any table of Student's t
TABLE = {1: 12.7062, 2: 4.30265, 3: 3.18245, 5: 2.57058, 10: 2.22814, 30: 2.04227, 100: 1.98397}


@pytest.mark.parametrize("degrees", TABLE)
def test_student_matches_the_table(degrees: int) -> None:
    assert student(degrees) == pytest.approx(TABLE[degrees], rel=3e-6)


def test_student_tends_to_the_normal() -> None:
    normal = math.sqrt(2) * float(torch.erfinv(torch.tensor(0.95, dtype=torch.float64)))
    assert student(100_001) == pytest.approx(normal, rel=2e-5)
    assert student(3, 0.99) == pytest.approx(5.84091, rel=3e-6)


@pytest.mark.parametrize("degrees", [1, 2, 7, 8])
def test_inside_is_the_integral_of_the_density(degrees: int) -> None:
    t = torch.linspace(-2.3, 2.3, 200_001, dtype=torch.float64)
    density = (1 + t * t / degrees) ** (-(degrees + 1) / 2)
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(degrees * math.pi)
    assert inside(2.3, degrees) == pytest.approx(float(torch.trapezoid(density, t)) * scale, rel=1e-9)


def test_intervals_cover_as_often_as_they_say() -> None:
    tries, count = 4000, 5
    draws = 3 + 2 * torch.randn(tries, count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    covered = sum((found := mean(each)).low <= 3 <= found.high for each in draws) / tries
    error = math.sqrt(0.95 * 0.05 / tries)
    assert abs(covered - 0.95) < 4 * error
    # the normal's 1.96 in place of t would be far too narrow with five repetitions
    narrow = 1.96 * draws.std(1) / math.sqrt(count)
    assert float(((draws.mean(1) - 3).abs() <= narrow).double().mean()) < 0.95 - 4 * error


def test_mean_of_equal_repetitions_has_no_width() -> None:
    found = mean(torch.full((7,), 2.5))
    assert (found.mean, found.low, found.high) == (2.5, 2.5, 2.5)


def test_wider_confidence_is_wider() -> None:
    draws = torch.tensor([1.0, 2.0, 4.0])
    assert mean(draws, confidence=0.99).high > mean(draws).high


def test_one_repetition_has_no_interval() -> None:
    with pytest.raises(ValueError, match="at least 2 repetitions, got 1"):
        mean(torch.tensor([1.0]))


def test_degrees_start_at_one() -> None:
    with pytest.raises(ValueError, match="counted from 1, got 0"):
        inside(1.0, 0)


def test_placement_is_the_quantile() -> None:
    draws = torch.tensor([1.0, 2.0, 2.0, 3.0])
    assert [placement(figure, draws) for figure in (0.5, 1.5, 2.0, 9.0)] == [0.0, 0.25, 0.5, 1.0]
    with pytest.raises(ValueError, match="got none"):
        placement(1.0, torch.tensor([]))


def test_placement_of_a_draw_is_uniform() -> None:
    draws = torch.randn(20_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert placement(0.6745, draws) == pytest.approx(0.75, abs=4 * math.sqrt(0.75 * 0.25 / 20_000))
