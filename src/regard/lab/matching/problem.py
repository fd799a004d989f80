"""The problem: keys on a sphere, and queries that are pictures of one of them with noise.

q = M k + σ ε, where M is the identity or a fixed map to another width that keeps lengths. All keys being equally long,
the probability that a query shows key j is softmax(q · M k / σ²): a bilinear score, which attention can learn.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from regard.lab.draws import normal


@dataclass(frozen=True)
class Examples:
    """Queries (set, query, d_q), keys (set, key, d_k), and which key each query shows, (set, query)."""

    query: Tensor
    key: Tensor
    shown: Tensor


@dataclass(frozen=True)
class Problem:
    """`keys` of width `d_key` at a time, as many queries of width `d_query`, noise σ. `mapped` hides a map M between
    the two; without it the widths are equal and M is the identity. The map is drawn from `seed`."""

    keys: int
    d_query: int
    d_key: int
    noise: float
    mapped: bool
    seed: int

    def __post_init__(self) -> None:
        if self.d_query < self.d_key or (self.d_query != self.d_key and not self.mapped):
            raise ValueError(
                f"a map that keeps lengths goes from {self.d_key} numbers to as many or more, got {self.d_query}; "
                "without a map the widths are equal"
            )

    def map(self) -> Tensor:
        """M, (d_q, d_k), with orthonormal columns."""
        if not self.mapped:
            return torch.eye(self.d_query, dtype=torch.float64)
        random = normal(torch.Generator().manual_seed(self.seed), self.d_query, self.d_key)
        columns: Tensor = torch.linalg.qr(random).Q
        return columns

    def draw(self, sets: int, generator: torch.Generator) -> Examples:
        """So many sets of keys with their queries."""
        key = normal(generator, sets, self.keys, self.d_key)
        key = key * (self.d_key**0.5 / key.norm(dim=-1, keepdim=True))
        shown = torch.randint(self.keys, (sets, self.keys), generator=generator)
        picture = key.gather(1, shown.unsqueeze(-1).expand(-1, -1, self.d_key)) @ self.map().T
        return Examples(picture + self.noise * normal(generator, sets, self.keys, self.d_query), key, shown)

    def best(self, given: Examples) -> Tensor:
        """The logits of the true probabilities, (set, query, key)."""
        return given.query @ self.map() @ given.key.mT / self.noise**2


def loss(weights: Tensor, shown: Tensor) -> Tensor:
    """The mean of −ln of the weight on the right key."""
    return -weights.gather(-1, shown.unsqueeze(-1)).log().mean()


def right(weights: Tensor, shown: Tensor) -> float:
    """The share of queries whose largest weight is on the right key."""
    return float((weights.argmax(-1) == shown).double().mean())


def best_loss(problem: Problem, given: Examples) -> float:
    """The loss of the true probabilities: on average nothing can be lower."""
    return float(cross_entropy(problem.best(given).flatten(0, 1), given.shown.flatten()))
