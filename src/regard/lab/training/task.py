"""Task: what is trained and how; Trained: the model after all steps, with the record of its training."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.checks import whole

Point = dict[str, float]


@dataclass(frozen=True)
class Task(ABC):
    """The fields are the settings: with the versions they decide every number. They are hashed, so JSON must hold them.

    The learning rate rises to `rate` over the first steps, a share `rise` of all, and falls to 0 along a cosine. The
    curve has `looks` points.
    """

    seed: int
    steps: int
    rate: float
    rise: float
    looks: int

    def __post_init__(self) -> None:
        whole("steps", self.steps, least=1)
        whole("looks", self.looks, least=1)

    @property
    @abstractmethod
    def name(self) -> str:
        """What progress and files call it."""

    @abstractmethod
    def model(self) -> nn.Module:
        """The untrained model; torch's own generator has been seeded."""

    @abstractmethod
    def loss(self, model: nn.Module, generator: torch.Generator) -> Tensor:
        """The loss on a batch that the generator draws."""

    def look(self, model: nn.Module) -> dict[str, float]:
        """What a point of the curve holds besides its step and the loss; it may draw no random numbers."""
        return {}

    def rate_at(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        rising = min(1.0, (step + 1) / max(1.0, self.rise * self.steps))
        return self.rate * rising * (1 + math.cos(math.pi * step / self.steps)) / 2


@dataclass(frozen=True)
class Trained:
    """`curve` has `step`, `loss` (the mean since the last point) and the numbers of `Task.look` at each point.

    `record` holds the settings, seed, versions and machine, and the seconds that the steps took.
    """

    task: Task
    model: nn.Module
    curve: tuple[Point, ...]
    record: dict[str, Any]

    def column(self, name: str) -> list[float]:
        """One number of every point of the curve; points without it are left out."""
        return [point[name] for point in self.curve if name in point]
