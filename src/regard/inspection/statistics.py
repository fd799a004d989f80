"""Statistics of repetitions: a mean with its interval, and where a single figure stands among single draws."""

import math
from functools import cache

from torch import Tensor

from regard.inspection.records import Estimate

CONFIDENCE = 0.95


def mean(repetitions: Tensor, confidence: float = CONFIDENCE) -> Estimate:
    """The mean of independent repetitions with its interval, mean ± t · s / √n (Student's t, n − 1 degrees).

    Exact for normal repetitions of any number; for others it relies on n, as every interval of a mean does.
    """
    count = repetitions.numel()
    if count < 2:
        raise ValueError(f"an interval needs at least 2 repetitions, got {count}")
    values = repetitions.detach().double().flatten()
    center = float(values.mean())
    half = student(count - 1, confidence) * float(values.std()) / math.sqrt(count)
    return Estimate(center, center - half, center + half)


@cache
def student(degrees: int, confidence: float = CONFIDENCE) -> float:
    """The t for which a Student variable with that many degrees of freedom lies in [−t, t] with this probability."""
    low, high = 0.0, 1.0
    while inside(high, degrees) < confidence:
        low, high = high, 2 * high
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if inside(middle, degrees) < confidence else (low, middle)
    return high


def inside(t: float, degrees: int) -> float:
    """P(|T| ≤ t) for whole degrees of freedom, a finite sum in θ = atan(t/√ν).

    Abramowitz and Stegun, 26.7.3 and 26.7.4: sin θ · (1 + ½ cos² θ + …) for even ν, and
    (θ + sin θ · (cos θ + ⅔ cos³ θ + …)) · 2/π for odd ν.
    """
    if degrees < 1:
        raise ValueError(f"degrees of freedom are counted from 1, got {degrees}")
    theta = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(theta), math.cos(theta)
    odd = degrees % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for step in range(odd, degrees - 1, 2):
        total += term
        term *= cosine * cosine * (step + 1) / (step + 2)
    return (theta + sine * total) * 2 / math.pi if odd else sine * total


def placement(figure: float, draws: Tensor) -> float:
    """The share of single draws below the figure, ties counted half: its quantile in their distribution."""
    if draws.numel() == 0:
        raise ValueError("a figure is placed among draws, got none")
    below = (draws < figure).double().mean() + (draws == figure).double().mean() / 2
    return float(below)
