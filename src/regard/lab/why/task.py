"""Recalling: some tokens of a sequence bear marks, the last token asks for the symbol under one of them."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from regard.lab.training import Task
from regard.lab.why.models import Recaller, fitted

SYMBOLS = 8


@dataclass(frozen=True)
class Asked:
    """Symbols and marks (batch, length), and of each row the answer and how far back it stands.

    Mark 0 is none, 1 to k are those of the tokens to be kept, k + 1 to 2k ask for one of these.
    """

    symbols: Tensor
    marks: Tensor
    answer: Tensor
    distance: Tensor


def drawn(batch: int, length: int, kept: int, generator: torch.Generator) -> Asked:
    """Random sequences. Near and far are asked for alike: every doubling of the distance comes as often."""
    symbols = torch.randint(SYMBOLS, (batch, length), generator=generator)
    far = (torch.rand(batch, generator=generator) * math.log(length)).exp().long()
    distance = far.clamp(1, length - 1)
    at = length - 1 - distance
    order = torch.rand(batch, length - 1, generator=generator).scatter(1, at[:, None], -1.0)
    places = order.argsort(1)[:, :kept]  # the first is the one that is asked for
    named = torch.rand(batch, kept, generator=generator).argsort(1) + 1
    marks = torch.zeros_like(symbols).scatter(1, places, named)
    marks[:, -1] = kept + named[:, 0]
    return Asked(symbols, marks, symbols.gather(1, at[:, None])[:, 0], distance)


@dataclass(frozen=True)
class Recalling(Task):
    """One kind of model, as wide as its parameters allow."""

    kind: str
    length: int
    kept: int
    most: int
    batch: int

    @property
    def name(self) -> str:
        """The kind, how many are kept, and the seed."""
        return f"why {self.kind} {self.kept} {self.seed}"

    def model(self) -> nn.Module:
        """The model."""
        return Recaller(self.kind, SYMBOLS, self.kept, fitted(self.kind, SYMBOLS, self.kept, self.most))

    def loss(self, model: nn.Module, generator: torch.Generator) -> Tensor:
        """Of the answers."""
        asked = drawn(self.batch, self.length, self.kept, generator)
        return cross_entropy(model(asked.symbols, asked.marks), asked.answer)
