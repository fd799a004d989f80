"""Biases that depend on i − j alone: ALiBi, T5's buckets, one number per offset."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.cached import cached_property
from regard.checks import is_float, is_tensor, shape, whole
from regard.spec.biases.base import Bias, gather_heads, head_table
from regard.spec.forms import Form, Operand
from regard.spec.plane import SAME_FOR_ALL, CannotSliceError, Pairs, Plane, Selection, named_axes
from regard.spec.serialize import register
from regard.spec.steps import BiasStep, OffsetTable, Slopes

COUNTED = 1 << 24  # float32, in which T5 computes the far buckets, tells distances apart up to here


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
        return torch.tensor(first + more, dtype=torch.float64, device="cpu")

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

    def _slopes(self, plane: Plane) -> Tensor:
        return self.slopes.to(plane.device).view(plane.kv_heads, plane.group, 1, 1)

    def values(self, pairs: Pairs) -> Tensor:
        return -self._slopes(pairs.plane) * (pairs.i - pairs.j).abs()

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
        table = is_tensor("Distance's table", self.table)
        is_float("Distance's table", table)
        if table.ndim not in (1, 2) or table.shape[-1] % 2 == 0:
            raise ValueError(
                f"Distance's table must be (2R + 1,) or (heads, 2R + 1), offsets −R to R, got shape {shape(table)}"
            )

    def _table(self, plane: Plane) -> Tensor:
        return head_table(self.table.reshape(-1, self.table.shape[-1]), plane, "Distance's table")

    def check(self, plane: Plane) -> None:
        head_table(self.table.reshape(-1, self.table.shape[-1]), plane, "Distance's table (heads, offsets)")

    def values(self, pairs: Pairs) -> Tensor:
        reach = self.table.shape[-1] // 2
        return gather_heads(self._table(pairs.plane), (pairs.i - pairs.j).clamp(-reach, reach) + reach)

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
        buckets = self.table.shape[0]
        base = torch.zeros_like(offset)
        if self.bidirectional:
            buckets //= 2
            base = torch.where(offset < 0, buckets, 0)
            distance = offset.abs()
        else:
            distance = offset.clamp(min=0)
        return base + torch.bucketize(distance, self._limits(buckets).to(offset.device), right=True)

    def _limits(self, buckets: int) -> Tensor:
        """The smallest distance of every bucket but the first; far buckets start where T5's float32 formula says."""
        exact = buckets // 2
        far = torch.arange(exact, self.max_distance + 1, device="cpu")
        step = torch.log(far.float() / exact) / math.log(self.max_distance / exact) * (buckets - exact)
        found = (exact + step.to(torch.int64)).clamp(max=buckets - 1)
        return torch.cat(
            [
                torch.arange(1, exact + 1, device="cpu"),
                exact + torch.searchsorted(found, torch.arange(exact + 1, buckets, device="cpu")),
            ]
        )

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
        return BucketForm(head_table(self.table.mT, plane, "T5's table"), self)


@dataclass(frozen=True, eq=False)
class BucketForm(Form):
    """table[bucket(i − j)]."""

    table: Tensor
    bias: T5

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (Operand(self.table, "whole"),)

    def evaluate(self, pairs: Pairs, visible: Tensor | None, cut: tuple[Tensor, ...]) -> Tensor:
        return gather_heads(cut[0], self.bias.bucket(pairs.i - pairs.j))
