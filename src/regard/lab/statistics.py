"""Numbers over repetitions and trainings: means with an interval, shares, and the lines and tables made of them."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from regard.inspection.records import Cell, Estimate, Line, Table
from regard.inspection.statistics import mean, placement
from regard.lab.training import Trained

__all__ = [
    "curve",
    "during",
    "mean",
    "number",
    "over_trainings",
    "parameters",
    "placement",
    "share",
    "training_time",
    "training_times",
]


def number(values: Sequence[float] | Tensor) -> Estimate:
    """Mean and interval of numbers."""
    return mean(torch.as_tensor(values, dtype=torch.float64))


def share(values: Sequence[float] | Tensor) -> Estimate:
    """Mean and interval of shares: nothing below 0 or above 1."""
    estimate = number(values)
    return Estimate(estimate.mean, max(estimate.low, 0.0), min(estimate.high, 1.0))


def over_trainings(values: Sequence[Tensor]) -> Estimate:
    """A share over trainings; with one training, over its samples."""
    return share(values[0] if len(values) == 1 else [float(each.mean()) for each in values])


def curve(name: str, x: Sequence[float], estimates: Sequence[Estimate]) -> Line:
    """One estimate at each x: the mean as a line, the interval as a band."""
    low, high = [estimate.low for estimate in estimates], [estimate.high for estimate in estimates]
    return Line(name, x, [estimate.mean for estimate in estimates], low, high)


def during(trained: Sequence[Trained], column: str, name: str = "") -> Line:
    """A column of the training curves: the mean as a line, the range as a band."""
    points = torch.tensor([each.column(column) for each in trained], dtype=torch.float64)
    band = [Estimate(float(each.mean()), float(each.min()), float(each.max())) for each in points.T]
    return curve(name or column, trained[0].column("step"), band)


def training_times(what: str, trained: Mapping[str, Sequence[Trained]]) -> Table:
    """Parameters and seconds of one training, for each kind of model."""
    rows: list[tuple[Cell, ...]] = []
    for name, group in trained.items():
        seconds = [float(each.record["seconds"]) for each in group]
        rows.append((name, parameters(group[0].model), number(seconds) if len(seconds) > 1 else seconds[0]))
    return Table((what, "parameters", "seconds"), rows, "Training, one thread")


def parameters(model: nn.Module) -> int:
    """The number of parameters of a model."""
    return sum(parameter.numel() for parameter in model.parameters())


def training_time(trained: Iterable[Trained]) -> Table:
    """How long the trainings took."""
    seconds = [float(each.record["seconds"]) for each in trained]
    return Table(("trainings", "seconds each"), [(len(seconds), number(seconds))], "Training, one thread")
