"""What dropout does to random attention, and what a trained reader does without some of its words or heads."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.inspection.capture import capture
from regard.inspection.interventions import Ablate, Forbid, intervene
from regard.lab.draws import KEYS, normal, weights
from regard.lab.dropout.task import Texts, right
from regard.spec.dropout import Dropout

WIDTH, HEADS = 64, 4


@dataclass(frozen=True)
class Dropped:
    """Random self-attention of one rate: weights before and after, (draw, head, query, key)."""

    p: float
    before: Tensor
    after: Tensor

    @property
    def gone(self) -> Tensor:
        """True where a pair was dropped."""
        return self.after == 0

    @property
    def sums(self) -> Tensor:
        """The sums of rows, (draw, head, query)."""
        return self.after.sum(-1)

    @property
    def spread(self) -> float:
        """The standard deviation that the sums of rows must have: √(p/(1 − p) · Σ w²), its mean square over rows."""
        return math.sqrt(self.p / (1 - self.p) * float((self.before**2).sum(-1).mean()))

    @property
    def kept(self) -> Tensor:
        """What is left of the weight of a key on average over all queries and heads, one number for each draw."""
        return (self.after.sum((1, 2, 3)) / self.before.sum((1, 2, 3))).double()

    @property
    def together(self) -> Tensor:
        """The correlation between what two heads drop, one number for each draw."""
        gone = self.gone.double().flatten(2)
        gone = gone - gone.mean(-1, keepdim=True)
        gone = gone / gone.norm(dim=-1, keepdim=True).clamp(min=1e-300)
        pairs = gone @ gone.mT
        mean: Tensor = (pairs.sum((1, 2)) - pairs.diagonal(dim1=1, dim2=2).sum(1)) / (HEADS * (HEADS - 1))
        return mean


def dropped(generator: torch.Generator, draws: int, p: float) -> Dropped:
    """Random tokens, and the weights that `attend` uses with and without dropout."""
    query, key = (normal(generator, draws, HEADS, KEYS, WIDTH) for _ in range(2))
    seed = int(torch.randint(2**62, (), generator=generator))
    return Dropped(p, weights(query, key), weights(query, key, dropout=Dropout(p, seed)))


def hidden(generator: torch.Generator, draws: int, p: float) -> Tensor:
    """The sums of rows, (draw, head, query), if pairs are hidden with the same chance before softmax instead."""
    query, key = (normal(generator, draws, HEADS, KEYS, WIDTH) for _ in range(2))
    stays = torch.rand(draws, HEADS, KEYS, KEYS, generator=generator) >= p
    return weights(query, key, mask=stays | torch.eye(KEYS, dtype=torch.bool)).sum(-1)


@dataclass(frozen=True)
class Read:
    """What a trained reader makes of texts: topics found, with half of the words forbidden, and with one head less (the
    mean over heads); and the effective number of words that a head looks at."""

    trained_on: float
    new: float
    half: float
    headless: float
    words: float


def read(model: nn.Module, seen: Texts, new: Texts, heads: int, generator: torch.Generator) -> Read:
    """Measured without dropout."""
    forbidden = torch.rand(new.words.shape, generator=generator).argsort(1) < new.words.shape[1] // 2
    with intervene(model, Forbid(forbidden)):
        half = right(model, new)
    less = []
    for head in range(heads):
        with intervene(model, Ablate(), heads=head):
            less.append(right(model, new))
    with torch.no_grad():
        words = float(capture(model, new.words)[0].entropy().exp().mean())
    return Read(right(model, seen), right(model, new), half, sum(less) / heads, words)
