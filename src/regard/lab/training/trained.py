"""Trained: a model that went through all steps of its task, and the record of how."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from regard.lab.training.task import Task

Point = dict[str, float]


@dataclass(frozen=True)
class Trained:
    """`curve` has a point for each look: `step`, `loss` (the mean since the last point) and what the task looks at.

    `record` holds the settings, seed, versions and machine, and the seconds that the steps took.
    """

    task: Task
    model: nn.Module
    curve: tuple[Point, ...]
    record: dict[str, Any]

    def column(self, name: str) -> list[float]:
        """One number of every point of the curve; points without it are left out."""
        return [point[name] for point in self.curve if name in point]
