"""Bias: a number per pair that is added to the score. −inf hides the pair exactly like a mask."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.checks import dtype, is_tensor
from regard.spec.forms import Form, Operand
from regard.spec.masks.tables import fits_plane, four
from regard.spec.part import Part
from regard.spec.plane import SAME_FOR_ALL, Pairs, Plane, named_axes
from regard.spec.serialize import register
from regard.spec.steps import BiasStep, OffsetTable, PairTable, Slopes


class Bias(Part):
    """A term of the logits that depends on positions, not on contents; `+` joins two.

    A bias of one's own defines `values`; with `steps` the native engine and FlexAttention run it.
    """

    family = "biases"
    definitions = ("values",)
    derived = ("lower", "steps", "hides", "symbols")

    @property
    def positional(self) -> bool:
        """Whether it depends on i and j."""
        return True

    @property
    def hides(self) -> bool:
        """Whether some value is −inf; one that is known by its values alone may have some."""
        steps = self.steps()
        return not steps or any(_hides(step) for step in steps)

    def check(self, plane: Plane) -> None:
        """Raise if this bias does not fit the sizes of the call."""

    def values(self, pairs: Pairs) -> Tensor:
        """The definition: broadcasts to (batch, kv head, group, query, key)."""
        raise NotImplementedError(f"{type(self).__name__} must define values(pairs)")

    def lower(self, plane: Plane, precision: torch.dtype) -> Form:
        """The same as a form that computes any rectangle alone."""
        if len(steps := self.steps()) == 1 and (form := _form(steps[0], plane, precision)) is not None:
            return form
        held = [value for value in self.held.values() if isinstance(value, Tensor) and value.requires_grad]
        return ValuesForm(self, tuple(held), precision)

    def steps(self) -> tuple[BiasStep, ...]:
        """The same as primitive steps that are added; none where it has only `values`."""
        return ()

    def terms(self) -> tuple["Bias", ...]:
        """The biases this one is the sum of."""
        return (self,)

    def __add__(self, other: "Bias") -> "Bias":
        if not isinstance(other, Bias):
            raise TypeError(f"biases add to biases, got {type(other).__name__}; wrap a tensor as biases.Dense(tensor)")
        return Total(self.terms() + other.terms())


@register
@dataclass(frozen=True, eq=False, repr=False)
class Total(Bias):
    """The sum of several biases."""

    axes = SAME_FOR_ALL

    parts: tuple[Bias, ...]

    @property
    def positional(self) -> bool:
        return any(part.positional for part in self.parts)

    @property
    def hides(self) -> bool:
        return any(part.hides for part in self.parts)

    def check(self, plane: Plane) -> None:
        for part in self.parts:
            part.check(plane)

    def values(self, pairs: Pairs) -> Tensor:
        total = self.parts[0].values(pairs)
        for part in self.parts[1:]:
            total = total + part.values(pairs)
        return total

    def steps(self) -> tuple[BiasStep, ...]:
        each = [part.steps() for part in self.parts]
        return tuple(step for steps in each for step in steps) if all(each) else ()

    def terms(self) -> tuple[Bias, ...]:
        return self.parts

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.parts))


@register
@dataclass(frozen=True, eq=False, repr=False)
class Dense(Bias):
    """A float tensor that broadcasts to (batch, head, query, key); it stays the size it has."""

    title = "a table"
    axes = named_axes(tensor=("batch", "head", "query", "key"))

    tensor: Tensor

    def __post_init__(self) -> None:
        if not is_tensor("biases.Dense", self.tensor).is_floating_point():
            kind = dtype(self.tensor)
            hint = "a bool tensor is a mask: pass it as mask=" if kind == "bool" else "convert it with .float()"
            raise TypeError(f"biases.Dense takes a float tensor, got {kind}; {hint}")
        if self.tensor.ndim == 1:
            object.__setattr__(self, "tensor", self.tensor.unsqueeze(0))

    @property
    def positional(self) -> bool:
        return False

    def check(self, plane: Plane) -> None:
        fits_plane("bias", self.tensor, plane)

    def values(self, pairs: Pairs) -> Tensor:
        return pairs.cut(self.tensor)

    def steps(self) -> tuple[BiasStep, ...]:
        return (PairTable(four(self.tensor)),)


@dataclass(frozen=True, eq=False)
class DenseForm(Form):
    """The tensor itself, cut."""

    tensor: Tensor

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (Operand(self.tensor, "pair"),)

    def evaluate(self, pairs: Pairs, visible: Tensor | None, cut: tuple[Tensor, ...]) -> Tensor:
        return cut[0]


@dataclass(frozen=True, eq=False)
class ValuesForm(Form):
    """A bias that has its definition alone; `captured` are the tensors it holds that need gradients."""

    bias: Bias
    captured: tuple[Tensor, ...]
    precision: torch.dtype

    @property
    def operands(self) -> tuple[Operand, ...]:
        return tuple(Operand(tensor, "captured") for tensor in self.captured)

    def evaluate(self, pairs: Pairs, visible: Tensor | None, cut: tuple[Tensor, ...]) -> Tensor:
        return self.bias.values(pairs).to(self.precision)


@dataclass(frozen=True, eq=False)
class SlopeForm(Form):
    """−slope · |i − j|."""

    slopes: Tensor

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (Operand(self.slopes, "whole"),)

    def evaluate(self, pairs: Pairs, visible: Tensor | None, cut: tuple[Tensor, ...]) -> Tensor:
        return -cut[0] * (pairs.i - pairs.j).abs()


@dataclass(frozen=True, eq=False)
class OffsetForm(Form):
    """table[clip(i − j) + reach]; the table is (…, 2·reach + 1, 1)."""

    table: Tensor

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (Operand(self.table, "offset"),)

    def evaluate(self, pairs: Pairs, visible: Tensor | None, cut: tuple[Tensor, ...]) -> Tensor:
        reach = (self.table.shape[-2] - 1) // 2
        index = (pairs.i - pairs.j).clamp(-reach, reach) + (reach - pairs.offset_span(reach)[0])
        return gather_heads(cut[0].squeeze(-1), index)


def _form(step: BiasStep, plane: Plane, precision: torch.dtype) -> Form | None:
    """The form of a step; None for a table whose offsets share entries."""
    match step:
        case Slopes():
            return SlopeForm(step.slopes.to(plane.device, precision).view(plane.kv_heads, plane.group, 1, 1))
        case OffsetTable(index=None):
            return OffsetForm(head_table(step.table, plane, "the table").unsqueeze(-1))
        case PairTable():
            return DenseForm(step.tensor)
    return None


def _hides(step: BiasStep) -> bool:
    if isinstance(step, Slopes):
        return False
    return bool((step.table if isinstance(step, OffsetTable) else step.tensor).isneginf().any())


def head_table(table: Tensor, plane: Plane, name: str) -> Tensor:
    """A (…, heads) or (heads, …) table was already turned to (head or 1, entries): split its heads."""
    if table.shape[0] not in (1, plane.heads):
        raise ValueError(f"{name} is for {table.shape[0]} heads, the call has {plane.heads}; give one entry for each")
    if table.shape[0] == 1:
        return table[None]
    return table.reshape(plane.kv_heads, plane.group, table.shape[1])


def gather_heads(table: Tensor, index: Tensor) -> Tensor:
    """(kv head or 1, group or 1, entries) at (query, key) or (batch, 1, 1, query, key) indices."""
    if index.ndim == 2:
        return table[:, :, index]
    return table[:, :, index[:, 0, 0]].movedim(2, 0)
