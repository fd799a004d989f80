"""How symmetric scores and weights are, which way trained items look round a circle, and how free matrices are."""

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.inspection.capture import capture
from regard.lab.draws import looked_at, normal, weights

TOKENS, WIDTH = 6, 16


@dataclass(frozen=True)
class Maps:
    """Random self-attention, (draw, query, key) each, and the lse of each row, (draw, query).

    `rounding` bounds what float64 may leave of s_ij − s_ji where it is 0: no processor promises to add the products of
    a pair and of its mirror image in the same order.
    """

    scores: Tensor
    weights: Tensor
    lse: Tensor
    rounding: Tensor

    @property
    def symmetric(self) -> bool:
        """Whether no score differs from its mirror image by more than rounding."""
        return bool(((self.scores - self.scores.mT).abs() <= self.rounding).all())

    def apart(self) -> tuple[Tensor, Tensor, Tensor]:
        """At most, of each draw: |s_ij − s_ji|, |w_ij − w_ji|, and what lse_j − lse_i leaves of ln w_ij − ln w_ji."""
        logs = self.weights.log()
        left = logs - logs.mT - (self.lse.unsqueeze(-2) - self.lse.unsqueeze(-1))
        differences = (self.scores - self.scores.mT, self.weights - self.weights.mT, left)
        return tuple(each.abs().amax((1, 2)) for each in differences)  # type: ignore[return-value]


def random_maps(generator: torch.Generator, draws: int, shared: bool) -> Maps:
    """Random tokens and projections; `shared` uses one projection for queries and keys."""
    tokens = normal(generator, draws, 1, TOKENS, WIDTH)
    project, other = (normal(generator, draws, 1, WIDTH, WIDTH) / math.sqrt(WIDTH) for _ in range(2))
    query = tokens @ project
    key = query if shared else tokens @ other
    _, seen = looked_at(query, key, key, "lse")
    scores = query @ key.mT / math.sqrt(WIDTH)
    # a sum of n products, in any order, is off by at most n · ε/2 of the sum of their sizes (and ε²); division adds one
    sizes = query.abs() @ key.abs().mT / math.sqrt(WIDTH)
    rounding = (WIDTH + 2) * torch.finfo(scores.dtype).eps * torch.maximum(sizes, sizes.mT)
    return Maps(scores[:, 0], weights(query, key)[:, 0], seen["lse"][:, 0], rounding[:, 0])


@dataclass(frozen=True)
class Circle:
    """The weights of one text whose items stand in the order of their types, (query, key), in float64."""

    weights: Tensor

    @property
    def links(self) -> Tensor:
        """ln(weight on the next type / weight on the one before), one for each type."""
        logs, types = self.weights.log(), torch.arange(len(self.weights))
        return logs[types, (types + 1) % len(types)] - logs[types, (types - 1) % len(types)]

    @property
    def onward(self) -> Tensor:
        """The weight on the next type, one for each type."""
        types = torch.arange(len(self.weights))
        return self.weights[types, (types + 1) % len(types)]


def circle(model: nn.Module, types: int) -> Circle:
    """How the first head of a model looks round the circle; all payloads are 0."""
    order = torch.arange(types).unsqueeze(0)
    with torch.no_grad():
        found = capture(copy.deepcopy(model).double(), order, torch.zeros_like(order))
    return Circle(found[0, 0].dense()[0])


def freedom(width: int, heads: int, shared: bool, generator: torch.Generator) -> int:
    """In how many directions the scores and values of a layer can move: the rank of their derivative by its matrices.

    `shared` has one matrix for queries, keys and values, else there are three, each width × width. W_O stays as it is.
    """
    d_k = width // heads
    given = normal(generator, 1 if shared else 3, width, width)

    def made(matrices: Tensor) -> Tensor:
        query, key, value = (matrices[index % len(matrices)] for index in range(3))
        forms = [query[:, part] @ key[:, part].T for part in torch.arange(width).split(d_k)]
        return torch.cat([*(form.flatten() for form in forms), value.flatten()])

    derivative = torch.func.jacrev(made)(given).flatten(1)
    return int(torch.linalg.matrix_rank(derivative))
