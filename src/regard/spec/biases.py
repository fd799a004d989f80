"""Biases: numbers added to the scores. Gradients reach every table; −inf hides a pair exactly like a mask."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from regard.cached import cached_property
from regard.checks import dtype, is_float, is_tensor, shape, whole
from regard.spec.forms import Form, Operand, dense_form, gather_heads, offset_form, slope_form, values_form
from regard.spec.masks.tables import fits_plane, four
from regard.spec.part import Part
from regard.spec.plane import SAME_FOR_ALL, CannotSliceError, Pairs, Plane, Selection, constant, named_axes
from regard.spec.serialize import register
from regard.spec.steps import BiasStep, OffsetTable, PairTable, Slopes

__all__ = ["T5", "ALiBi", "Bias", "Dense", "Distance", "Total"]

COUNTED = 1 << 24  # float32, in which T5 computes the far buckets, tells distances apart up to here


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
        """Whether some value is −inf; a bias without steps may have some."""
        steps = self.steps()
        return not steps or any(
            bool((step.table if isinstance(step, OffsetTable) else step.tensor).isneginf().any())
            for step in steps
            if not isinstance(step, Slopes)
        )

    def check(self, plane: Plane) -> None:
        """Raise if this bias does not fit the sizes of the call."""

    def values(self, pairs: Pairs) -> Tensor:
        """The definition: broadcasts to (batch, kv head, group, query, key)."""
        raise NotImplementedError(f"{type(self).__name__} must define values(pairs)")

    def lower(self, plane: Plane, precision: torch.dtype) -> Form:
        """The same as a form that computes any rectangle alone."""
        match self.steps():
            case (Slopes(slopes),):
                return slope_form(slopes.to(plane.device, precision).view(plane.kv_heads, plane.group, 1, 1))
            case (OffsetTable(table, None),):
                return offset_form(head_table(table, plane, "the table").unsqueeze(-1))
            case (PairTable(tensor),):
                return dense_form(tensor)
        learned = [value for value in self.attributes.values() if isinstance(value, Tensor) and value.requires_grad]
        return values_form(self.values, tuple(learned), precision)

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
        self._keep_tensors("tensor")
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


@register
@dataclass(frozen=True, eq=False, repr=False)
class ALiBi(Bias):
    """−slope · |i − j| with a fixed slope per head (Press et al., 2022), for any number of heads."""

    title = "ALiBi"
    axes = SAME_FOR_ALL

    heads: int

    def __post_init__(self) -> None:
        whole("ALiBi's heads", self.heads, least=1)

    @property
    def slopes(self) -> Tensor:
        """One slope per head, float64: 2^(−8/n), 2^(−16/n), … for n a power of two; else the authors' interleaving."""
        power = 1 << (self.heads.bit_length() - 1)
        first = [2.0 ** (-8.0 * (k + 1) / power) for k in range(power)]
        more = [2.0 ** (-4.0 * (k + 1) / power) for k in range(0, 2 * (self.heads - power), 2)]
        return constant(first + more, torch.float64)

    def check(self, plane: Plane) -> None:
        if self.heads != plane.heads:
            raise ValueError(
                f"ALiBi({self.heads}) has {self.heads} slopes, the call has {plane.heads} query heads; "
                f"write ALiBi({plane.heads})"
            )

    def sliced(self, selection: Selection) -> "ALiBi":
        if selection.heads is not None:
            raise CannotSliceError(f"{self!r} has the slopes of all heads; a single one is no ALiBi")
        return self

    def values(self, pairs: Pairs) -> Tensor:
        plane = pairs.plane
        slopes = self.slopes.to(plane.device).view(plane.kv_heads, plane.group, 1, 1)
        return -slopes * (pairs.i - pairs.j).abs()

    def steps(self) -> tuple[BiasStep, ...]:
        return (Slopes(self.slopes),)


@register
@dataclass(frozen=True, eq=False, repr=False)
class Distance(Bias):
    """One learned number per offset: `table[i − j + R]`, offsets beyond ±R take the last entry.

    `table` is (2R + 1,) or (heads, 2R + 1).
    """

    title = "by distance"
    axes = named_axes(table=("head", None))

    table: Tensor

    def __post_init__(self) -> None:
        self._keep_tensors("table")
        table = is_tensor("Distance's table", self.table)
        is_float("Distance's table", table)
        if table.ndim not in (1, 2) or table.shape[-1] % 2 == 0:
            raise ValueError(
                f"Distance's table must be (2R + 1,) or (heads, 2R + 1), offsets −R to R, got shape {shape(table)}"
            )

    def check(self, plane: Plane) -> None:
        head_table(self.table.reshape(-1, self.table.shape[-1]), plane, "Distance's table (heads, offsets)")

    def values(self, pairs: Pairs) -> Tensor:
        reach = self.table.shape[-1] // 2
        table = head_table(self.table.reshape(-1, self.table.shape[-1]), pairs.plane, "Distance's table")
        return gather_heads(table, (pairs.i - pairs.j).clamp(-reach, reach) + reach)

    def steps(self) -> tuple[BiasStep, ...]:
        return (OffsetTable(self.table.reshape(-1, self.table.shape[-1])),)


@register
@dataclass(frozen=True, eq=False, repr=False)
class T5(Bias):
    """T5's learned buckets (Raffel et al., 2020): near offsets one by one, far ones in logarithmic steps.

    `table` is (buckets, heads), as in T5's checkpoints. `bidirectional` as in the encoder; False as in the decoder,
    where the future shares bucket 0.
    """

    title = "T5's buckets"
    axes = named_axes(table=(None, "head"))

    table: Tensor
    bidirectional: bool = True
    max_distance: int = 128

    def __post_init__(self) -> None:
        self._keep_tensors("table")
        table = is_tensor("T5's table", self.table)
        is_float("T5's table", table)
        if table.ndim != 2 or table.shape[0] < (4 if self.bidirectional else 2) or table.shape[0] % 2:
            raise ValueError(f"T5's table must be (buckets, heads) with an even number of buckets, got {shape(table)}")
        exact = table.shape[0] // (4 if self.bidirectional else 2)
        whole("T5's max_distance", self.max_distance, least=exact + 1, most=COUNTED)

    @property
    def hides(self) -> bool:
        return bool(self.table.isneginf().any())

    def check(self, plane: Plane) -> None:
        head_table(self.table.mT, plane, "T5's table (buckets, heads)")

    def bucket(self, offset: Tensor) -> Tensor:
        """The bucket of each offset i − j."""
        if torch.compiler.is_compiling():  # exporters do not know bucketize: look the distance up in a table
            reach = self.max_distance
            known = self._bucket(torch.arange(-reach, reach + 1, device=offset.device))
            return known[offset.clamp(-reach, reach) + reach]
        return self._bucket(offset)

    def _bucket(self, offset: Tensor) -> Tensor:
        buckets = self.table.shape[0]
        base = torch.zeros_like(offset)
        if self.bidirectional:
            buckets //= 2
            base = torch.where(offset < 0, buckets, 0)
            distance = offset.abs()
        else:
            distance = offset.clamp(min=0)
        if torch.compiler.is_compiling():
            with _disable_current_modes():  # numbers that this torch computes, not those of an exported graph
                limits = self._limits(buckets).tolist()
            return base + (distance.unsqueeze(-1) >= constant(limits, torch.int64).to(offset.device)).sum(-1)
        return base + torch.bucketize(distance, self._limits(buckets).to(offset.device), right=True)

    def _limits(self, buckets: int) -> Tensor:
        """The smallest distance of every bucket but the first; far buckets start where T5's float32 formula says."""
        exact = buckets // 2
        far = torch.arange(exact, self.max_distance + 1, device="cpu")
        step = torch.log(far.float() / exact) / math.log(self.max_distance / exact) * (buckets - exact)
        bucket = (exact + step.to(torch.int64)).clamp(max=buckets - 1)
        first_far = exact + torch.searchsorted(bucket, torch.arange(exact + 1, buckets, device="cpu"))
        return torch.cat([torch.arange(1, exact + 1, device="cpu"), first_far])

    def values(self, pairs: Pairs) -> Tensor:
        table = head_table(self.table.mT, pairs.plane, "T5's table")
        return gather_heads(table, self.bucket(pairs.i - pairs.j))

    def steps(self) -> tuple[BiasStep, ...]:
        return (OffsetTable(self.table.mT, self._buckets),)

    @cached_property
    def _buckets(self) -> Tensor:
        """The bucket of every offset from −max_distance to max_distance."""
        return self.bucket(torch.arange(-self.max_distance, self.max_distance + 1, device="cpu"))

    def lower(self, plane: Plane, precision: torch.dtype) -> Form:
        table = Operand(head_table(self.table.mT, plane, "T5's table"), "whole")
        return Form((table,), lambda pairs, visible, cut: gather_heads(cut[0], self.bucket(pairs.i - pairs.j)))


def head_table(table: Tensor, plane: Plane, name: str) -> Tensor:
    """(head or 1, entries) to (kv head or 1, group or 1, entries)."""
    if table.shape[0] not in (1, plane.heads):
        raise ValueError(f"{name} is for {table.shape[0]} heads, the call has {plane.heads}; give one entry for each")
    if table.shape[0] == 1:
        return table[None]
    return table.reshape(plane.kv_heads, plane.group, table.shape[1])
