"""Numbers over several trainings of one task: shares with an interval, and curves with a band."""

import torch
from torch import Tensor

from regard.inspection.records import Estimate, Line
from regard.inspection.statistics import mean
from regard.lab.curves import curve
from regard.lab.training.trained import Trained


def number(values: list[float] | Tensor) -> Estimate:
    """Mean and interval."""
    return mean(torch.as_tensor(values, dtype=torch.float64))


def share(values: list[float] | Tensor) -> Estimate:
    """Mean and interval of shares: nothing below 0 or above 1."""
    found = number(values)
    return Estimate(found.mean, max(found.low, 0.0), min(found.high, 1.0))


def during(trained: list[Trained], column: str, name: str = "") -> Line:
    """A column of the curves: its mean, and as a band its range."""
    points = torch.tensor([each.column(column) for each in trained], dtype=torch.float64)
    band = [Estimate(float(each.mean()), float(each.min()), float(each.max())) for each in points.T]
    return curve(name or column, trained[0].column("step"), band)
