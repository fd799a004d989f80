"""The basic scores: dot products of transformed queries and keys (dot, scaled, general, cosine, relative), and sums
before a nonlinearity, v · φ(a + b) (additive, concat)."""

from dataclasses import dataclass

from torch import Tensor

from regard.checks import float_tensors, number
from regard.spec.forms import per_head, unit
from regard.spec.plane import SAME_FOR_ALL, Pairs, named_axes
from regard.spec.scores.base import ACTIVATIONS, Score, hidden_inputs, relative_inputs
from regard.spec.serialize import register
from regard.spec.steps import DotProduct, HiddenLayer, RelativeDot, ScoreStep, default_scale


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
        self._keep_tensors("weight")
        float_tensors("General", {"weight": self.weight})

    def check(self, d_query: int, d_key: int, kv_heads: int, group: int) -> None:
        per_head(self.weight, 2, kv_heads, group, "General's weight")
        if tuple(self.weight.shape[-2:]) != (d_query, d_key):
            raise ValueError(
                f"General's weight must be (query width, key width) = ({d_query}, {d_key}), "
                f"got {tuple(self.weight.shape[-2:])}; a Linear's weight is (out, in): pass weight.mT"
            )

    def formula(self, query: Tensor, key: Tensor, pairs: Pairs) -> Tensor:
        weight = per_head(self.weight.to(query.dtype), 2, query.shape[1], query.shape[2], "General's weight")
        return query @ weight @ key.mT

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


@register
@dataclass(frozen=True, eq=False, repr=False)
class Relative(Score):
    """scale · ((q + u) · k + (q + v) · r₍ᵢ₋ⱼ₎): Shaw's relative keys (u = v = None) and Transformer-XL in one.

    `keys` is (2R + 1, d) or one table per query head in front; entry i − j + R belongs to offset i − j,
    offsets beyond ±R take the last entry. `u` and `v` are (d,) or one per query head.
    `scale` is 1 as written in the papers' inner formula; `None` means 1/√d.
    """

    axes = named_axes(keys=("head", None, None), u=("head", None), v=("head", None))

    keys: Tensor
    u: Tensor | None = None
    v: Tensor | None = None
    scale: float | None = 1.0

    form = "relative"

    def __post_init__(self) -> None:
        self._keep_tensors("keys", "u", "v")
        float_tensors("Relative", {"keys": self.keys})
        float_tensors("Relative", {name: value for name, value in (("u", self.u), ("v", self.v)) if value is not None})
        if self.scale is not None:
            number("Relative's scale", self.scale)

    @property
    def positional(self) -> bool:
        return True

    def check(self, d_query: int, d_key: int, kv_heads: int, group: int) -> None:
        super().check(d_query, d_key, kv_heads, group)
        for name, tensor, axes in (("keys", self.keys, 2), ("u", self.u, 1), ("v", self.v, 1)):
            if tensor is None:
                continue
            per_head(tensor, axes, kv_heads, group, f"Relative's {name}")
            if tensor.shape[-1] != d_key:
                raise ValueError(
                    f"Relative's {name} must have the keys' width {d_key}, got shape {tuple(tensor.shape)}"
                )
        if self.keys.shape[-2] % 2 == 0:
            raise ValueError(
                f"Relative's keys hold offsets −R to R, an odd number of rows, got {self.keys.shape[-2]}; "
                "the middle row belongs to offset 0"
            )

    def formula(self, query: Tensor, key: Tensor, pairs: Pairs) -> Tensor:
        content, place, table = relative_inputs(self.steps()[0], query)
        reach = (table.shape[-2] - 1) // 2
        index = (pairs.i - pairs.j).clamp(-reach, reach) + reach
        vectors: Tensor = table[..., index.reshape(-1), :].unflatten(-2, index.shape)
        if index.ndim == 5:  # batch rows that start at different places
            vectors = vectors[:, :, :, 0, 0].movedim(2, 0)
        return content @ key.mT + (place.unsqueeze(-2) * vectors).sum(-1)

    def steps(self) -> tuple[RelativeDot]:
        return (RelativeDot(self.keys, self.u, self.v, self.scale),)

    def flops(self, d_query: int, d_key: int) -> int:
        return 4 * d_key


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
    b: Tensor | None

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
        if self.b is not None:
            per_head(self.b, 1, kv_heads, group, f"{name}'s b")
            if self.b.shape[-1] != hidden:
                raise ValueError(f"{name}'s b must end in ({hidden},), got shape {tuple(self.b.shape)}")

    def _keep_floats(self) -> None:
        """Keep the tensors, and refuse any that does not hold real floating-point numbers."""
        self._keep_tensors("w_query", "w_key", "v", "b")
        named = {"w_query": self.w_query, "w_key": self.w_key, "v": self.v, "b": self.b}
        float_tensors(type(self).__name__, {name: tensor for name, tensor in named.items() if tensor is not None})

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
    """v · tanh(W₁q + W₂k + b) (Bahdanau et al., 2014); query and key may differ in width.

    `w_query` is (hidden, d_q) or one per query head in front, `w_key` (hidden, d_k) or one per key head,
    `v` (hidden,) or one per query head. `b` is (hidden,), one per query head, or None: the paper leaves biases out of
    its formulas. Without one the score is odd, s(−q, −k) = −s(q, k).
    """

    w_query: Tensor
    w_key: Tensor
    v: Tensor
    b: Tensor | None = None

    def __post_init__(self) -> None:
        self._keep_floats()

    def steps(self) -> tuple[HiddenLayer]:
        return (HiddenLayer(self.w_query, self.w_key, self.v, "tanh", self.b),)


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
        self._keep_floats()
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"ConcatMLP's activation must be one of {', '.join(ACTIVATIONS)}, got {self.activation!r}")

    def steps(self) -> tuple[HiddenLayer]:
        return (HiddenLayer(self.w_query, self.w_key, self.v, self.activation, self.b),)
