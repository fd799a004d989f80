"""What is trained on the problem: a matcher on examples that never come again, or on what another matcher says."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.cached import cached_property
from regard.lab.matching.model import Matcher
from regard.lab.matching.problem import Examples, Problem, loss
from regard.lab.training import Task, train

WATCHED = 64  # sets that are watched during training


@dataclass(frozen=True)
class Matching(Task):
    """A matcher that sees which key is shown."""

    keys: int
    d_query: int
    d_key: int
    noise: float
    mapped: bool
    score: str
    width: int
    temperature: float
    sets: int

    @property
    def name(self) -> str:
        """With the score, τ and the seed."""
        return f"matching {self.score.replace('[q; k]', 'qk')} τ {self.temperature:g} {self.seed}"

    @property
    def problem(self) -> Problem:
        """What it is about."""
        return Problem(self.keys, self.d_query, self.d_key, self.noise, self.mapped, self.seed)

    def model(self) -> nn.Module:
        """One attention."""
        return Matcher(self.score, self.d_query, self.d_key, self.width, self.temperature)

    def loss(self, model: nn.Module, generator: torch.Generator) -> Tensor:
        """Of new examples."""
        given = self.problem.draw(self.sets, generator)
        return loss(model(given.query, given.key), given.shown)

    def look(self, model: nn.Module) -> dict[str, float]:
        """The loss on examples that are always the same."""
        return {"new examples": float(loss(model(self._watched.query, self._watched.key), self._watched.shown))}

    @cached_property
    def _watched(self) -> Examples:
        return self.problem.draw(WATCHED, torch.Generator().manual_seed(self.seed + 1))


@dataclass(frozen=True)
class Distilling(Matching):
    """A student that sees `examples` sets, over and over, and what a trained teacher of another seed says of them.

    `soft` is the temperature of both distributions, teacher's and student's, and the loss is multiplied by its square,
    as the gradients shrink with it (Hinton et al., 2015). At 0 the student sees the right answers instead.
    """

    examples: int
    soft: float
    taught: int

    @property
    def name(self) -> str:
        """With the temperature."""
        return f"student {'labels' if not self.soft else f'τ {self.soft:g}'} {self.seed}"

    def teacher(self) -> Matching:
        """What the teacher learned: the same problem, with new examples at every step."""
        sizes = (self.keys, self.d_query, self.d_key, self.noise, self.mapped, self.score, self.width)
        return Matching(self.seed, self.taught, self.rate, self.rise, self.looks, *sizes, self.temperature, self.sets)

    def loss(self, model: nn.Module, generator: torch.Generator) -> Tensor:
        """Of the few examples."""
        given, told = self._lesson
        if not self.soft:
            return loss(model(given.query, given.key), given.shown)
        said = model(given.query, given.key, self.soft)
        surprise: Tensor = -(told * said.log()).sum(-1).mean()
        return surprise * self.soft**2

    @cached_property
    def _lesson(self) -> tuple[Examples, Tensor]:
        given = self.problem.draw(self.examples, torch.Generator().manual_seed(self.seed + 2))
        if not self.soft:
            return given, given.query
        teacher = train(self.teacher()).model
        with torch.no_grad():
            return given, teacher(given.query, given.key, self.soft)
