"""Similarity of heads, at random and in a model, and what the heads of a trained model look at."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.inspection.capture import capture
from regard.inspection.heads import head_table
from regard.inspection.matrix import AttentionMatrix
from regard.inspection.records import Table
from regard.inspection.statistics import placement
from regard.lab.draws import normal, weights
from regard.lab.relations.texts import Texts

WIDTH = 64
KINDS = {"previous": "previous", "first": "first", "duplicate": "twin"}  # columns of c.heads(), and what is asked
CALLED = 0.5  # a head that gives this share of its weight to one kind of item is called after it
INSIDE = 0.025  # a figure beyond this quantile of single draws, at either end, does not fit


def average(similarity: Tensor) -> Tensor:
    """The mean over all pairs of two different heads, (…, head, head) to (…); 1 if there is one head only."""
    heads = similarity.shape[-1]
    if heads == 1:
        return torch.ones_like(similarity[..., 0, 0])
    own = similarity.diagonal(dim1=-2, dim2=-1).sum(-1)
    return (similarity.sum((-2, -1)) - own) / (heads * (heads - 1))


#: what "similarity" may mean: of two maps A and B, Σ A·B / (|A| · |B|); of maps less the mean of their rows, 1/n; and
#: the size of that, without its sign
MEANINGS: dict[str, Callable[[AttentionMatrix], Tensor]] = {
    "cosine": lambda maps: average(maps.similarity()),
    "centered": lambda maps: average(maps.similarity(centered=True)),
    "|centered|": lambda maps: average(maps.similarity(centered=True).abs()),
}

#: the standard deviation of the numbers in W_Q and W_K
STARTS = {"1/√d (Xavier)": 1 / math.sqrt(WIDTH), "1": 1.0}


def random_heads(generator: torch.Generator, draws: int, heads: int, tokens: int, start: str) -> AttentionMatrix:
    """Maps of random tokens under random projections, (draw, head, query, key)."""
    x, d_k = normal(generator, draws, 1, tokens, WIDTH), WIDTH // heads
    query, key = (x @ (STARTS[start] * normal(generator, draws, heads, WIDTH, d_k)) for _ in range(2))
    return AttentionMatrix.from_weights(weights(query, key))


def fits(draws: dict[int, Tensor], figures: dict[int, float]) -> bool:
    """Whether every figure lies well inside the single draws of its number of heads."""
    return all(INSIDE <= placement(figure, draws[heads]) <= 1 - INSIDE for heads, figure in figures.items())


@dataclass(frozen=True)
class Looked:
    """Of the heads of one layer: how alike they are, by meaning, and the table of what they look at."""

    alike: dict[str, float]
    table: Table

    @property
    def kinds(self) -> list[str]:
        """What each head is called: the kind of item that gets most of its weight, if that is enough."""
        found = []
        for row in self.table:
            shares = {name: float(str(row[name])) for name in KINDS}
            best = max(shares, key=lambda name: shares[name])
            found.append(best if shares[best] >= CALLED else "mixed")
        return found

    @property
    def patterns(self) -> int:
        """How many kinds have a head of their own."""
        return len(set(self.kinds) - {"mixed"})

    def best(self, kind: str) -> float:
        """The largest share of its weight that a head gives to a kind."""
        return max(float(str(cell)) for cell in self.table[kind])


def looked_at(model: nn.Module, texts: Texts) -> Looked:
    """What the heads of a model do with texts."""
    with torch.no_grad():
        found = capture(model, *texts.inputs)
    table = head_table(found, which=("entropy", *KINDS), ids=texts.types)
    return Looked({name: float(meaning(found[0]).mean()) for name, meaning in MEANINGS.items()}, table)
