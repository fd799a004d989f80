"""Numbers over repetitions and trainings: means with an interval, shares, and the lines and tables made of them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist

import torch
from torch import Tensor, nn

from regard.inspection.records import Cell, Estimate, Line, Table
from regard.inspection.statistics import CONFIDENCE, mean, placement
from regard.lab.training import Trained

__all__ = [
    "correlation",
    "curve",
    "during",
    "mean",
    "number",
    "over_trainings",
    "parameters",
    "placement",
    "positive",
    "proportion",
    "share",
    "training_time",
    "training_times",
]


FEWEST = 5  # runs that an interval is made of; of fewer, the lowest and the highest run are given
RESAMPLED = 4000


def number(values: Sequence[float] | Tensor) -> Estimate:
    """The mean of numbers of either sign: Student's interval of at least 5 runs, or the lowest and the highest run."""
    runs = _runs(values)
    return _few(runs) or mean(runs)


def positive(values: Sequence[float] | Tensor) -> Estimate:
    """The geometric mean of numbers above 0: Student's interval of their logarithms, or the lowest and highest run."""
    runs = _runs(values)
    if not bool((runs > 0).all()):
        raise ValueError(f"numbers above 0 were expected, got {float(runs.min()):g}")
    if few := _few(runs):
        return few
    logs = mean(runs.log())
    return Estimate(math.exp(logs.mean), math.exp(logs.low), math.exp(logs.high))


def share(values: Sequence[float] | Tensor) -> Estimate:
    """The mean of shares: a bootstrap interval of at least 5 runs, never outside the range of the runs."""
    runs = _runs(values)
    if not bool(((runs >= 0) & (runs <= 1)).all()):
        raise ValueError(f"shares from 0 to 1 were expected, got {float(runs.min()):g} to {float(runs.max()):g}")
    if few := _few(runs):
        return few
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(len(runs), (RESAMPLED, len(runs)), generator=generator)
    ends = torch.tensor([(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], dtype=torch.float64)
    low, high = runs[drawn].mean(1).quantile(ends).tolist()
    return Estimate(float(runs.mean()), low, high)


def proportion(count: int, of: int) -> Estimate:
    """The share of independent cases in which something happened, with Wilson's interval."""
    if not 0 <= count <= of or of < 1:
        raise ValueError(f"a count of 0 to {of} cases was expected, got {count}")
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    center, spread = count / of + z * z / (2 * of), z * math.sqrt(count * (of - count) / of + z * z / 4) / of
    low, high = ((center + sign * spread) / (1 + z * z / of) for sign in (-1, 1))
    return Estimate(count / of, max(low, 0.0) if count else 0.0, min(high, 1.0) if count < of else 1.0)


def correlation(r: float, count: int) -> Estimate:
    """A correlation over `count` pairs, with Fisher's interval."""
    half = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) / math.sqrt(count - 3)
    center = math.atanh(max(-1 + 1e-15, min(r, 1 - 1e-15)))
    return Estimate(r, math.tanh(center - half), math.tanh(center + half))


def _runs(values: Sequence[float] | Tensor) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64).detach().flatten()


def _few(runs: Tensor) -> Estimate | None:
    if len(runs) >= FEWEST:
        return None
    return Estimate(float(runs.mean()), float(runs.min()), float(runs.max()), tuple(runs.tolist()))


def over_trainings(values: Sequence[Tensor]) -> Estimate:
    """A share over trainings; with one training, over its samples."""
    return share(values[0] if len(values) == 1 else [float(each.mean()) for each in values])


def curve(name: str, x: Sequence[float], estimates: Sequence[Estimate]) -> Line:
    """One estimate at each x: the mean as a line, the interval as a band; of few runs, each run as a point."""
    means = [estimate.mean for estimate in estimates]
    if any(estimate.runs for estimate in estimates):
        points = [(where, run) for where, estimate in zip(x, estimates, strict=True) for run in estimate.runs]
        return Line(name, x, means, points=points)
    return Line(name, x, means, [estimate.low for estimate in estimates], [estimate.high for estimate in estimates])


def during(trained: Sequence[Trained], column: str, name: str = "") -> Line:
    """A column of the training curves: the mean as a line, the range of the runs as a band."""
    values = torch.tensor([each.column(column) for each in trained], dtype=torch.float64)
    low, high = values.min(0).values.tolist(), values.max(0).values.tolist()
    return Line(name or column, trained[0].column("step"), values.mean(0).tolist(), low, high)


def training_times(what: str, trained: Mapping[str, Sequence[Trained]]) -> Table:
    """Parameters and seconds of one training, for each kind of model."""
    rows: list[tuple[Cell, ...]] = []
    for name, group in trained.items():
        seconds = [float(each.record["seconds"]) for each in group]
        rows.append((name, parameters(group[0].model), positive(seconds) if len(seconds) > 1 else seconds[0]))
    return Table((what, "parameters", "seconds"), rows, "Training, one thread")


def parameters(model: nn.Module) -> int:
    """The number of parameters of a model."""
    return sum(parameter.numel() for parameter in model.parameters())


def training_time(trained: Iterable[Trained]) -> Table:
    """How long the trainings took."""
    seconds = [float(each.record["seconds"]) for each in trained]
    return Table(("trainings", "seconds each"), [(len(seconds), positive(seconds))], "Training, one thread")
