"""Scores that are a dot product after one step per query and per key."""

from dataclasses import dataclass

from torch import Tensor

from regard.checks import float_tensors, number
from regard.spec.forms import per_head, unit
from regard.spec.plane import SAME_FOR_ALL, Pairs, named_axes
from regard.spec.scores.base import Score
from regard.spec.serialize import register
from regard.spec.steps import DotProduct, ScoreStep, default_scale


@register
@dataclass(frozen=True, eq=False, repr=False)
class Dot(Score):
    """q · k (Luong et al., 2015)."""

    axes = SAME_FOR_ALL

    def formula(self, query: Tensor, key: Tensor, pairs: Pairs) -> Tensor:
        return query @ key.mT

    def steps(self) -> tuple[ScoreStep, ...]:
        return (DotProduct(),)


@register
@dataclass(frozen=True, eq=False, repr=False)
class ScaledDot(Score):
    """q · k · scale, by default 1/√d (Vaswani et al., 2017)."""

    axes = SAME_FOR_ALL

    scale: float | None = None

    def __post_init__(self) -> None:
        if self.scale is not None:
            number("ScaledDot's scale", self.scale)

    def factor(self, width: int) -> float:
        """The number the dot product is multiplied by."""
        return default_scale(width) if self.scale is None else float(self.scale)

    def formula(self, query: Tensor, key: Tensor, pairs: Pairs) -> Tensor:
        return (query @ key.mT) * self.factor(query.shape[-1])

    def steps(self) -> tuple[ScoreStep, ...]:
        return (DotProduct(self.scale),)


@register
@dataclass(frozen=True, eq=False, repr=False)
class General(Score):
    """q · W · k (Luong's general score). `weight` is (d_q, d_k), or one per query head in front."""

    axes = named_axes(weight=("head", None, None))

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

    def steps(self) -> tuple[ScoreStep, ...]:
        return (DotProduct(weight=self.weight),)

    def prepare_flops(self, queries: int, keys: int, d_query: int, d_key: int) -> int:
        return 2 * queries * d_query * d_key


@register
@dataclass(frozen=True, eq=False, repr=False)
class Cosine(Score):
    """scale · q̂ · k̂, bounded by ±scale; a zero vector scores 0 and gets gradient 0."""

    axes = SAME_FOR_ALL

    scale: float = 1.0

    def __post_init__(self) -> None:
        number("Cosine's scale", self.scale)

    def formula(self, query: Tensor, key: Tensor, pairs: Pairs) -> Tensor:
        return float(self.scale) * (unit(query) @ unit(key).mT)

    def steps(self) -> tuple[ScoreStep, ...]:
        return (DotProduct(self.scale, unit=True),)
