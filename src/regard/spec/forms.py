"""Forms: what a score or a bias lowers to, so that any rectangle of the plane can be computed on its own.

A form is a list of operands (tensors and how a rectangle cuts them) and a differentiable function of the
cut operands. Engines cut the operands, evaluate the function and collect gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from regard.checks import dtype, is_tensor, shape
from regard.spec.plane import Pairs

Axis = Literal["query", "key", "pair", "offset", "whole", "captured"]
ScoreFunction = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


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


@dataclass(frozen=True, eq=False)
class Form:
    """Operands and a function of (pairs, visible, operands as cut for `pairs`).

    `evaluate` gives values that broadcast to (batch, kv head, group, query, key). `visible` is None where all pairs
    are; only functions that may misbehave on hidden pairs need it. `tile_width` is the count of numbers held per pair
    while a rectangle is evaluated. With `hides`, a value of −inf hides the pair. `flops` counts the operations in
    matrix products for one batch row and head of a rectangle.
    """

    operands: tuple[Operand, ...]
    evaluate: Callable[[Pairs, Tensor | None, tuple[Tensor, ...]], Tensor]
    tile_width: int = 1
    hides: bool = False
    flops: Callable[[Pairs], int] = lambda pairs: 0


# Scores


def product_form(query: Tensor, key: Tensor) -> Form:
    """q′ · k′."""
    return Form(
        (Operand(query, "query"), Operand(key, "key")),
        lambda pairs, visible, cut: rows_times_keys(*cut),
        flops=lambda pairs: 2 * pairs.area * key.shape[-1],
    )


def additive_form(query: Tensor, key: Tensor, v: Tensor, activation: Callable[[Tensor], Tensor]) -> Form:
    """v · φ(a + b), a per query and b per key. `v` is (hidden,) or (kv head, group, hidden)."""

    def evaluate(pairs: Pairs, visible: Tensor | None, cut: tuple[Tensor, ...]) -> Tensor:
        a, b, v = cut
        hidden = activation(a.unsqueeze(-2) + b.unsqueeze(-3))
        # row by row: over all pairs at once, the gradient of v would be one long sum, which loses digits
        return (hidden @ v.unsqueeze(-2).unsqueeze(-1)).squeeze(-1)

    return Form(
        (Operand(query, "query"), Operand(key, "key"), Operand(v, "whole")),
        evaluate,
        max(1, query.shape[-1]),
        flops=lambda pairs: 2 * pairs.area * query.shape[-1],
    )


def relative_form(content: Tensor, place: Tensor, key: Tensor, table: Tensor) -> Form:
    """content · k + place · r(i − j): `table` is (…, 2·reach + 1, width), offsets are clipped to it."""
    operands = Operand(content, "query"), Operand(place, "query"), Operand(key, "key"), Operand(table, "offset")
    reach = operands[-1].reach

    def evaluate(pairs: Pairs, visible: Tensor | None, cut: tuple[Tensor, ...]) -> Tensor:
        content, place, key, table = cut
        by_offset = place @ table.mT
        index = _table_index(pairs, reach)
        size = (*by_offset.shape[:-1], index.shape[-1])
        return rows_times_keys(content, key) + by_offset.gather(-1, index.expand(size))

    def flops(pairs: Pairs) -> int:
        first, last = pairs.offset_span(reach)
        rows: int = pairs.rows.stop - pairs.rows.start
        return 2 * key.shape[-1] * (pairs.area + rows * (last - first))

    return Form(operands, evaluate, 2, flops=flops)


def formula_form(
    formula: Callable[[Tensor, Tensor, Pairs], Tensor], query: Tensor, key: Tensor, captured: tuple[Tensor, ...]
) -> Form:
    """A score that has its formula alone; `captured` are the tensors it holds that need gradients."""
    return Form(
        (Operand(query, "query"), Operand(key, "key"), *(Operand(tensor, "captured") for tensor in captured)),
        lambda pairs, visible, cut: formula(cut[0], cut[1], pairs),
        2,
        hides=True,
        flops=lambda pairs: 2 * pairs.area * key.shape[-1],
    )


def capped_form(form: Form, cap: float) -> Form:
    """cap · tanh(form / cap)."""

    def evaluate(pairs: Pairs, visible: Tensor | None, cut: tuple[Tensor, ...]) -> Tensor:
        return cap * torch.tanh(_zero_hidden(form.evaluate(pairs, visible, cut), visible) / cap)

    return Form(form.operands, evaluate, form.tile_width + 1, flops=form.flops)


def modified_form(form: Form, fn: ScoreFunction, captured: tuple[Tensor, ...]) -> Form:
    """A user's function of (score, b, h, i, j); `captured` are the tensors it closes over that need gradients."""

    def evaluate(pairs: Pairs, visible: Tensor | None, cut: tuple[Tensor, ...]) -> Tensor:
        score = form.evaluate(pairs, visible, cut[: len(form.operands)])
        return called(fn, _zero_hidden(score, visible), pairs)

    operands = (*form.operands, *(Operand(tensor, "captured") for tensor in captured))
    return Form(operands, evaluate, form.tile_width + 2, hides=True, flops=form.flops)


# Biases


def dense_form(tensor: Tensor) -> Form:
    """The tensor itself, cut."""
    return Form((Operand(tensor, "pair"),), lambda pairs, visible, cut: cut[0])


def slope_form(slopes: Tensor) -> Form:
    """−slope · |i − j|."""
    return Form((Operand(slopes, "whole"),), lambda pairs, visible, cut: -cut[0] * (pairs.i - pairs.j).abs())


def offset_form(table: Tensor) -> Form:
    """table[clip(i − j) + reach]; the table is (…, 2·reach + 1, 1)."""
    operand = Operand(table, "offset")
    return Form(
        (operand,),
        lambda pairs, visible, cut: gather_heads(cut[0].squeeze(-1), _table_index(pairs, operand.reach)),
    )


def values_form(values: Callable[[Pairs], Tensor], captured: tuple[Tensor, ...], precision: torch.dtype) -> Form:
    """A bias that has its definition alone; `captured` are the tensors it holds that need gradients."""
    operands = tuple(Operand(tensor, "captured") for tensor in captured)
    return Form(operands, lambda pairs, visible, cut: values(pairs).to(precision))


def gather_heads(table: Tensor, index: Tensor) -> Tensor:
    """(kv head or 1, group or 1, entries) at (query, key) or (batch, 1, 1, query, key) indices."""
    if index.ndim == 2:
        return table[:, :, index]
    return table[:, :, index[:, 0, 0]].movedim(2, 0)


def _table_index(pairs: Pairs, reach: int) -> Tensor:
    """The entry of each pair in an offset table as cut for these pairs."""
    return (pairs.i - pairs.j).clamp(-reach, reach) + (reach - pairs.offset_span(reach)[0])


def called(fn: Callable[..., object], score: Tensor, pairs: Pairs) -> Tensor:
    """What a user's function of (score, b, h, i, j) returns, in the precision of the scores."""
    result = fn(score, pairs.b, pairs.h, pairs.i, pairs.j)
    if not isinstance(result, (Tensor, int, float)) or isinstance(result, bool):
        raise TypeError(
            f"Modified's function must return the new scores as a tensor, got {type(result).__name__}; "
            "end it with a return, and use torch's operations"
        )
    new = answer("Modified's function", result, score.dtype, score.device)
    if not new.is_floating_point():
        hint = "to hide pairs use masks.Where" if new.dtype == torch.bool else "convert it with .to(score.dtype)"
        raise TypeError(f"Modified's function must return floating-point numbers, got {dtype(new)}; {hint}")
    sizes = zip(reversed(new.shape), reversed(score.shape), strict=False)
    if new.ndim > score.ndim or any(size not in (1, full) for size, full in sizes):
        raise ValueError(
            f"Modified's function must return one number per pair, (batch, kv head, group, query, key) = "
            f"{shape(score)}, got {shape(new)}; use elementwise operations on score, b, h, i, j"
        )
    return new.to(score.dtype).expand(score.shape)


def answer(name: str, result: object, precision: torch.dtype, device: torch.device) -> Tensor:
    """The result of a user's function as a dense tensor on `device`; a number becomes one of `precision`."""
    if not isinstance(result, Tensor):
        return torch.as_tensor(result, dtype=precision, device=device)
    if is_tensor(f"the result of {name}", result).is_meta:
        raise ValueError(f"the result of {name} is on the device meta, which holds shapes but no numbers")
    return result.to(device)


def _zero_hidden(score: Tensor, visible: Tensor | None) -> Tensor:
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
