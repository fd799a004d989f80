"""Scores that are a sum before a nonlinearity: v · φ(a + b)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.checks import float_tensors
from regard.spec.forms import Form, Sum, per_head
from regard.spec.plane import Pairs
from regard.spec.scores.base import Score

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "sigmoid": torch.sigmoid,
}


class SumScore(Score):
    """v · φ(W₁q + W₂k + b): what the additive scores share."""

    form = "sum"
    w_query: Tensor
    w_key: Tensor
    v: Tensor

    @property
    def phi(self) -> str:
        """Name of the nonlinearity."""
        return "tanh"

    @property
    def offset(self) -> Tensor | None:
        """What is added inside the nonlinearity."""
        return None

    def check(self, d_query: int, d_key: int, kv_heads: int, group: int) -> None:
        name = type(self).__name__
        per_head(self.w_query, 2, kv_heads, group, f"{name}'s w_query")
        per_head(self.w_key, 2, kv_heads, 1, f"{name}'s w_key", "key")
        per_head(self.v, 1, kv_heads, group, f"{name}'s v")
        hidden = self.w_query.shape[-2]
        for what, tensor, wanted in (
            ("w_query", self.w_query, (hidden, d_query)),
            ("w_key", self.w_key, (hidden, d_key)),
            ("v", self.v, (hidden,)),
        ):
            if tuple(tensor.shape[-len(wanted) :]) != wanted:
                raise ValueError(f"{name}'s {what} must end in {wanted}, got shape {tuple(tensor.shape)}")

    def _projected(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        kv_heads, group = query.shape[1:3]
        dtype = query.dtype
        a = query @ _shared(self.w_query.to(dtype), kv_heads, group, "w_query").mT
        b = key @ _shared(self.w_key.to(dtype), kv_heads, 1, "w_key").mT
        if self.offset is not None:
            a = a + per_head(self.offset.to(dtype), 1, kv_heads, group, "b").unsqueeze(-2)
        return a, b, per_head(self.v.to(dtype), 1, kv_heads, group, "v")

    def formula(self, query: Tensor, key: Tensor, pairs: Pairs) -> Tensor:
        a, b, v = self._projected(query, key)
        return (ACTIVATIONS[self.phi](a.unsqueeze(-2) + b.unsqueeze(-3)) * v[..., None, None, :]).sum(-1)

    def lower(self, query: Tensor, key: Tensor) -> Form:
        a, b, v = self._projected(query, key)
        return Sum(a, b, v, ACTIVATIONS[self.phi])

    def flops(self, d_query: int, d_key: int) -> int:
        return 2 * int(self.v.shape[-1])

    def prepare_flops(self, queries: int, keys: int, d_query: int, d_key: int) -> int:
        return 2 * int(self.v.shape[-1]) * (queries * d_query + keys * d_key)


def _shared(matrix: Tensor, kv_heads: int, group: int, name: str) -> Tensor:
    """One matrix for all heads stays one: torch then multiplies once, and not head by head."""
    return matrix if matrix.ndim == 2 else per_head(matrix, 2, kv_heads, group, name)


@dataclass(frozen=True, eq=False, repr=False)
class Additive(SumScore):
    """v · tanh(W₁q + W₂k) (Bahdanau et al., 2014); query and key may differ in width.

    `w_query` is (hidden, d_q) or one per query head in front, `w_key` (hidden, d_k) or one per key head,
    `v` (hidden,) or one per query head.
    """

    w_query: Tensor
    w_key: Tensor
    v: Tensor

    def __post_init__(self) -> None:
        float_tensors("Additive", {"w_query": self.w_query, "w_key": self.w_key, "v": self.v})


@dataclass(frozen=True, eq=False, repr=False)
class ConcatMLP(SumScore):
    """v · φ(W[q; k] + b): one hidden layer over the concatenation, split by linearity into W₁q + W₂k + b.

    `activation` is tanh (Luong's concat), relu, gelu or sigmoid. `b` is (hidden,), one per query head, or None.
    """

    w_query: Tensor
    w_key: Tensor
    b: Tensor | None
    v: Tensor
    activation: str = "tanh"

    def __post_init__(self) -> None:
        float_tensors("ConcatMLP", {"w_query": self.w_query, "w_key": self.w_key, "v": self.v})
        if self.b is not None:
            float_tensors("ConcatMLP", {"b": self.b})
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"ConcatMLP's activation must be one of {', '.join(ACTIVATIONS)}, got {self.activation!r}")

    @property
    def phi(self) -> str:
        return self.activation

    @property
    def offset(self) -> Tensor | None:
        return self.b

    def check(self, d_query: int, d_key: int, kv_heads: int, group: int) -> None:
        super().check(d_query, d_key, kv_heads, group)
        if self.b is None:
            return
        per_head(self.b, 1, kv_heads, group, "ConcatMLP's b")
        if self.b.shape[-1] != self.v.shape[-1]:
            raise ValueError(f"ConcatMLP's b must end in ({self.v.shape[-1]},), got shape {tuple(self.b.shape)}")
