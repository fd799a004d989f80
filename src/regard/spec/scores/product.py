"""Scores that are a dot product after one step per query and per key."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.checks import float_tensors, number
from regard.spec.forms import Form, Product, per_head
from regard.spec.plane import Pairs
from regard.spec.scores.base import Score


@dataclass(frozen=True, eq=False, repr=False)
class Dot(Score):
    """q · k (Luong et al., 2015)."""

    def formula(self, query: Tensor, key: Tensor, pairs: Pairs) -> Tensor:
        return query @ key.mT

    def lower(self, query: Tensor, key: Tensor) -> Form:
        return Product(query, key)


@dataclass(frozen=True, eq=False, repr=False)
class ScaledDot(Score):
    """q · k · scale, by default 1/√d (Vaswani et al., 2017)."""

    scale: float | None = None

    def __post_init__(self) -> None:
        if self.scale is not None:
            number("ScaledDot's scale", self.scale)

    def factor(self, width: int) -> float:
        """The number the dot product is multiplied by."""
        return default_scale(width) if self.scale is None else float(self.scale)

    def formula(self, query: Tensor, key: Tensor, pairs: Pairs) -> Tensor:
        return (query @ key.mT) * self.factor(query.shape[-1])

    def lower(self, query: Tensor, key: Tensor) -> Form:
        return Product(query * self.factor(query.shape[-1]), key)


@dataclass(frozen=True, eq=False, repr=False)
class General(Score):
    """q · W · k (Luong's general score). `weight` is (d_q, d_k), or one per query head in front."""

    weight: Tensor

    def __post_init__(self) -> None:
        float_tensors("General", {"weight": self.weight})

    def check(self, d_query: int, d_key: int, kv_heads: int, group: int) -> None:
        per_head(self.weight, 2, kv_heads, group, "General's weight")
        if tuple(self.weight.shape[-2:]) != (d_query, d_key):
            raise ValueError(
                f"General's weight must be (query width, key width) = ({d_query}, {d_key}), "
                f"got {tuple(self.weight.shape[-2:])}; a Linear's weight is (out, in): pass weight.mT"
            )

    def _weight(self, query: Tensor) -> Tensor:
        return per_head(self.weight.to(query.dtype), 2, query.shape[1], query.shape[2], "General's weight")

    def formula(self, query: Tensor, key: Tensor, pairs: Pairs) -> Tensor:
        return query @ self._weight(query) @ key.mT

    def lower(self, query: Tensor, key: Tensor) -> Form:
        return Product(query @ self._weight(query), key)

    def prepare_flops(self, queries: int, keys: int, d_query: int, d_key: int) -> int:
        return 2 * queries * d_query * d_key


@dataclass(frozen=True, eq=False, repr=False)
class Cosine(Score):
    """scale · q̂ · k̂, bounded by ±scale; a zero vector scores 0 and gets gradient 0."""

    scale: float = 1.0

    def __post_init__(self) -> None:
        number("Cosine's scale", self.scale)

    def formula(self, query: Tensor, key: Tensor, pairs: Pairs) -> Tensor:
        return float(self.scale) * (unit(query) @ unit(key).mT)

    def lower(self, query: Tensor, key: Tensor) -> Form:
        return Product(unit(query) * float(self.scale), unit(key))


def unit(x: Tensor) -> Tensor:
    """x / ‖x‖ along the width, 0 for a zero vector; huge and tiny vectors neither overflow nor vanish."""
    if x.shape[-1] == 0:
        return x
    largest = x.detach().abs().amax(-1, keepdim=True)
    scaled = x / torch.where(largest > 0, largest, 1.0)
    square = scaled.square().sum(-1, keepdim=True)
    zero = square == 0
    return torch.where(zero, 0.0, scaled / torch.where(zero, 1.0, square).sqrt())


def default_scale(width: int) -> float:
    """1/√d, and 1 for d = 0."""
    return 1.0 / math.sqrt(width) if width else 1.0
