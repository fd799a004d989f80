"""Inducing: what is trained, and what is watched meanwhile."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.cached import cached_property
from regard.lab.induction.measure import drawn, repeated, second_half, seen
from regard.lab.induction.model import AttentionOnly
from regard.lab.training import Task

WATCHED = 8  # texts that are watched during training


@dataclass(frozen=True)
class Inducing(Task):
    """Texts of one length whose second half repeats the first; the loss is that of the second half."""

    length: int
    vocabulary: int
    width: int
    heads: int
    batch: int

    @property
    def name(self) -> str:
        """With the seed."""
        return f"induction {self.seed}"

    def model(self) -> nn.Module:
        """Two layers of attention."""
        return AttentionOnly(self.vocabulary, self.width, self.heads)

    def loss(self, model: nn.Module, generator: torch.Generator) -> Tensor:
        """Of texts that never come again."""
        tokens = drawn(self.batch, self.length, self.vocabulary, generator)
        return second_half(model(tokens), tokens)

    def look(self, model: nn.Module) -> dict[str, float]:
        """Losses, and the best head of either kind."""
        found = seen(model, self._watched)
        return {
            "first half": found.first,
            "second half": found.second,
            "induction": float(found.induction[1].max()),
            "previous": float(found.previous[0].max()),
        }

    @cached_property
    def _watched(self) -> Tensor:
        return repeated(WATCHED, self.length, self.vocabulary, torch.Generator().manual_seed(self.seed + 1))
