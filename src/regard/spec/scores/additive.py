"""Scores that are a sum before a nonlinearity: v · φ(a + b)."""

from dataclasses import dataclass

from torch import Tensor

from regard.checks import float_tensors
from regard.spec.forms import per_head
from regard.spec.plane import Pairs, named_axes
from regard.spec.scores.base import ACTIVATIONS, Score, hidden_inputs
from regard.spec.serialize import register
from regard.spec.steps import HiddenLayer


class SumScore(Score):
    """v · φ(W₁q + W₂k + b): what the additive scores share."""

    axes = named_axes(
        w_query=("head", None, None),
        w_key=("kv head", None, None),
        v=("head", None),
        b=("head", None),
    )

    form = "sum"
    w_query: Tensor
    w_key: Tensor
    v: Tensor

    def check(self, d_query: int, d_key: int, kv_heads: int, group: int) -> None:
        name = type(self).__name__
        per_head(self.w_query, 2, kv_heads, group, f"{name}'s w_query")
        per_head(self.w_key, 2, kv_heads, 1, f"{name}'s w_key", "key")
        per_head(self.v, 1, kv_heads, group, f"{name}'s v")
        hidden = self.w_query.shape[-2]
        for field, tensor, sizes in (
            ("w_query", self.w_query, (hidden, d_query)),
            ("w_key", self.w_key, (hidden, d_key)),
            ("v", self.v, (hidden,)),
        ):
            if tuple(tensor.shape[-len(sizes) :]) != sizes:
                raise ValueError(f"{name}'s {field} must end in {sizes}, got shape {tuple(tensor.shape)}")

    def formula(self, query: Tensor, key: Tensor, pairs: Pairs) -> Tensor:
        (step,) = self.steps()
        a, b, v = hidden_inputs(step, query, key)
        return (ACTIVATIONS[step.phi](a.unsqueeze(-2) + b.unsqueeze(-3)) * v[..., None, None, :]).sum(-1)

    def steps(self) -> tuple[HiddenLayer]:
        raise NotImplementedError

    def flops(self, d_query: int, d_key: int) -> int:
        return 2 * int(self.v.shape[-1])

    def prepare_flops(self, queries: int, keys: int, d_query: int, d_key: int) -> int:
        return 2 * int(self.v.shape[-1]) * (queries * d_query + keys * d_key)


@register
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

    def steps(self) -> tuple[HiddenLayer]:
        return (HiddenLayer(self.w_query, self.w_key, self.v, "tanh"),)


@register
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

    def steps(self) -> tuple[HiddenLayer]:
        return (HiddenLayer(self.w_query, self.w_key, self.v, self.activation, self.b),)

    def check(self, d_query: int, d_key: int, kv_heads: int, group: int) -> None:
        super().check(d_query, d_key, kv_heads, group)
        if self.b is None:
            return
        per_head(self.b, 1, kv_heads, group, "ConcatMLP's b")
        if self.b.shape[-1] != self.v.shape[-1]:
            raise ValueError(f"ConcatMLP's b must end in ({self.v.shape[-1]},), got shape {tuple(self.b.shape)}")
