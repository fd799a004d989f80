"""Forms: what a score or a bias lowers to, so that any rectangle of the plane can be computed on its own.

A form is a list of operands (tensors and how a rectangle cuts them) and a differentiable function of the
cut operands. Engines cut, evaluate and collect gradients; they never look inside.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from regard.checks import dtype, is_tensor, shape
from regard.spec.plane import Pairs

Axis = Literal["query", "key", "pair", "offset", "whole", "captured"]


@dataclass(frozen=True, eq=False)
class Operand:
    """A tensor and the way a rectangle cuts it.

    query, key: rows of axis −2, (batch, kv head, group, length, width); pair: (…, query or 1, key or 1);
    offset: axis −2 is indexed by clip(i − j, −reach, reach) + reach; whole: not cut;
    captured: a user's function holds the tensor itself.
    """

    tensor: Tensor
    axis: Axis

    @property
    def reach(self) -> int:
        """The largest offset of a table over offsets."""
        return (self.tensor.shape[-2] - 1) // 2

    def cut(self, tensor: Tensor, pairs: Pairs) -> Tensor:
        """The view of `tensor` (this operand, or its gradient) that `pairs` uses."""
        if self.axis == "query":
            return tensor[..., pairs.rows, :]
        if self.axis == "key":
            return tensor[..., pairs.columns, :]
        if self.axis == "pair":
            return pairs.cut(tensor)
        if self.axis == "offset":
            first, last = pairs.offset_span(self.reach)
            return tensor[..., first:last, :]
        return tensor


class Form:
    """Operands and the function over them; `evaluate` gets the operands as cut for `pairs`.

    `visible` is None where all pairs are; only functions that may misbehave on hidden pairs need it.
    """

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The tensors the form depends on."""
        raise NotImplementedError

    def evaluate(self, pairs: Pairs, visible: Tensor | None, cut: tuple[Tensor, ...]) -> Tensor:
        """Values for the rectangle; broadcasts to (batch, kv head, group, query, key)."""
        raise NotImplementedError

    @property
    def tile_width(self) -> int:
        """Numbers held per pair while a rectangle is evaluated."""
        return 1

    @property
    def hides(self) -> bool:
        """Whether it may give −inf on purpose, which hides the pair."""
        return False

    def flops(self, pairs: Pairs) -> int:
        """Operations in matrix products for one lane (batch row and head) of the rectangle."""
        return 0


@dataclass(frozen=True, eq=False)
class Product(Form):
    """q′ · k′."""

    query: Tensor
    key: Tensor

    @property
    def operands(self) -> tuple[Operand, ...]:
        return Operand(self.query, "query"), Operand(self.key, "key")

    def evaluate(self, pairs: Pairs, visible: Tensor | None, cut: tuple[Tensor, ...]) -> Tensor:
        return rows_times_keys(cut[0], cut[1])

    def flops(self, pairs: Pairs) -> int:
        return 2 * pairs.area * self.key.shape[-1]


@dataclass(frozen=True, eq=False)
class Sum(Form):
    """v · φ(a + b), a per query and b per key. `v` is (hidden,) or (kv head, group, hidden)."""

    query: Tensor
    key: Tensor
    v: Tensor
    activation: Callable[[Tensor], Tensor]

    @property
    def operands(self) -> tuple[Operand, ...]:
        return Operand(self.query, "query"), Operand(self.key, "key"), Operand(self.v, "whole")

    def evaluate(self, pairs: Pairs, visible: Tensor | None, cut: tuple[Tensor, ...]) -> Tensor:
        a, b, v = cut
        hidden = self.activation(a.unsqueeze(-2) + b.unsqueeze(-3))
        # row by row: over all pairs at once, the gradient of v would be one long sum, which loses digits
        return (hidden @ v.unsqueeze(-2).unsqueeze(-1)).squeeze(-1)

    @property
    def tile_width(self) -> int:
        return max(1, self.query.shape[-1])

    def flops(self, pairs: Pairs) -> int:
        return 2 * pairs.area * self.query.shape[-1]


@dataclass(frozen=True, eq=False)
class RelativeProduct(Form):
    """content · k + place · r(i − j): `table` is (…, 2·reach + 1, width), offsets are clipped to it."""

    content: Tensor
    place: Tensor
    key: Tensor
    table: Tensor

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (
            Operand(self.content, "query"),
            Operand(self.place, "query"),
            Operand(self.key, "key"),
            Operand(self.table, "offset"),
        )

    def evaluate(self, pairs: Pairs, visible: Tensor | None, cut: tuple[Tensor, ...]) -> Tensor:
        content, place, key, table = cut
        reach = Operand(self.table, "offset").reach
        by_offset = place @ table.mT
        index = (pairs.i - pairs.j).clamp(-reach, reach) + (reach - pairs.offset_span(reach)[0])
        size = (*by_offset.shape[:-1], index.shape[-1])
        return rows_times_keys(content, key) + by_offset.gather(-1, index.expand(size))

    @property
    def tile_width(self) -> int:
        return 2

    def flops(self, pairs: Pairs) -> int:
        first, last = pairs.offset_span(Operand(self.table, "offset").reach)
        rows: int = pairs.rows.stop - pairs.rows.start
        return 2 * self.key.shape[-1] * (pairs.area + rows * (last - first))


@dataclass(frozen=True, eq=False)
class FormulaForm(Form):
    """A score that has its formula alone; `captured` are the tensors it holds that need gradients."""

    formula: Callable[[Tensor, Tensor, Pairs], Tensor]
    query: Tensor
    key: Tensor
    captured: tuple[Tensor, ...]

    @property
    def operands(self) -> tuple[Operand, ...]:
        captured = (Operand(tensor, "captured") for tensor in self.captured)
        return Operand(self.query, "query"), Operand(self.key, "key"), *captured

    def evaluate(self, pairs: Pairs, visible: Tensor | None, cut: tuple[Tensor, ...]) -> Tensor:
        return self.formula(cut[0], cut[1], pairs)

    @property
    def tile_width(self) -> int:
        return 2

    @property
    def hides(self) -> bool:
        return True

    def flops(self, pairs: Pairs) -> int:
        return 2 * pairs.area * self.key.shape[-1]


@dataclass(frozen=True, eq=False)
class Capped(Form):
    """cap · tanh(form / cap)."""

    form: Form
    cap: float

    @property
    def operands(self) -> tuple[Operand, ...]:
        return self.form.operands

    def evaluate(self, pairs: Pairs, visible: Tensor | None, cut: tuple[Tensor, ...]) -> Tensor:
        return self.cap * torch.tanh(_shown(self.form.evaluate(pairs, visible, cut), visible) / self.cap)

    @property
    def tile_width(self) -> int:
        return self.form.tile_width + 1

    def flops(self, pairs: Pairs) -> int:
        return self.form.flops(pairs)


@dataclass(frozen=True, eq=False)
class Function(Form):
    """A user's function of (score, b, h, i, j); `captured` are the tensors it closes over that need gradients."""

    form: Form
    fn: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
    captured: tuple[Tensor, ...]

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (*self.form.operands, *(Operand(tensor, "captured") for tensor in self.captured))

    def evaluate(self, pairs: Pairs, visible: Tensor | None, cut: tuple[Tensor, ...]) -> Tensor:
        inner = cut[: len(cut) - len(self.captured)]
        score = _shown(self.form.evaluate(pairs, visible, inner), visible)
        return called(self.fn, score, pairs)

    @property
    def tile_width(self) -> int:
        return self.form.tile_width + 2

    @property
    def hides(self) -> bool:
        return True

    def flops(self, pairs: Pairs) -> int:
        return self.form.flops(pairs)


def called(fn: Callable[..., object], score: Tensor, pairs: Pairs) -> Tensor:
    """What a user's function of (score, b, h, i, j) returns, in the precision of the scores."""
    given = fn(score, pairs.b, pairs.h, pairs.i, pairs.j)
    if not isinstance(given, Tensor | int | float) or isinstance(given, bool):
        raise TypeError(
            f"Modified's function must return the new scores as a tensor, got {type(given).__name__}; "
            "end it with a return, and use torch's operations"
        )
    found = answer("Modified's function", given, score.dtype, score.device)
    if not found.is_floating_point():
        hint = "to hide pairs use masks.Where" if found.dtype == torch.bool else "convert it with .to(score.dtype)"
        raise TypeError(f"Modified's function must return floating-point numbers, got {dtype(found)}; {hint}")
    sizes = zip(reversed(found.shape), reversed(score.shape), strict=False)
    if found.ndim > score.ndim or any(size not in (1, wanted) for size, wanted in sizes):
        raise ValueError(
            f"Modified's function must return one number per pair, (batch, kv head, group, query, key) = "
            f"{shape(score)}, got {shape(found)}; use elementwise operations on score, b, h, i, j"
        )
    return found.to(score.dtype).expand(score.shape)


def answer(name: str, found: object, precision: torch.dtype, device: torch.device) -> Tensor:
    """What a user's function gave, as a dense tensor on `device`; a number as one of `precision`."""
    if not isinstance(found, Tensor):
        return torch.as_tensor(found, dtype=precision, device=device)
    if is_tensor(f"the result of {name}", found).is_meta:
        raise ValueError(f"the result of {name} is on the device meta, which holds shapes but no numbers")
    return found.to(device)


def _shown(score: Tensor, visible: Tensor | None) -> Tensor:
    """0 for hidden pairs: what a function does with them must not come back as 0 · NaN in its gradient."""
    return score if visible is None else torch.where(visible, score, 0.0)


def rows_times_keys(query: Tensor, key: Tensor) -> Tensor:
    """(batch, kv head, group, query, d) · (batch, kv head, 1, key, d): one product per kv head, no copy of the keys."""
    return (query.flatten(2, 3) @ key.squeeze(2).mT).reshape(*query.shape[:4], key.shape[3])


def weights_times_values(weights: Tensor, value: Tensor) -> Tensor:
    """(batch, kv head, group, query, key) · (batch, kv head, 1, key, d_v)."""
    return (weights.flatten(2, 3) @ value.squeeze(2)).reshape(*weights.shape[:4], value.shape[4])


def unit(x: Tensor) -> Tensor:
    """x / ‖x‖ along the width, 0 for a zero vector; huge and tiny vectors neither overflow nor vanish."""
    if x.shape[-1] == 0:
        return x
    largest = x.detach().abs().amax(-1, keepdim=True)
    scaled = x / torch.where(largest > 0, largest, 1.0)
    square = scaled.square().sum(-1, keepdim=True)
    zero = square == 0
    return torch.where(zero, 0.0, scaled / torch.where(zero, 1.0, square).sqrt())


def per_head(tensor: Tensor, axes: int, kv_heads: int, group: int, name: str, kind: str = "query") -> Tensor:
    """A parameter of `axes` axes, or one per query head in front of them, as (1 or kv head, 1 or group, …)."""
    if tensor.ndim == axes:
        return tensor[None, None]
    heads = kv_heads * group
    if tensor.ndim != axes + 1 or tensor.shape[0] not in (1, heads):
        raise ValueError(
            f"{name} must have {axes} axes, or {axes + 1} with one entry for each of the {heads} {kind} heads, "
            f"got shape {tuple(tensor.shape)}"
        )
    return tensor[None] if tensor.shape[0] == 1 else tensor.reshape(kv_heads, group, *tensor.shape[1:])
