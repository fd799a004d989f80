"""Plane: all (query, key) pairs of one call; Pairs: a rectangle; RowBlocks: its rows in blocks; Selection: a part.

Inside the library heads are two axes, (key/value head, query head within its group), so every
tensor over pairs is (batch, kv head, group, query, key) and grouped heads never copy a key.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch
from torch import Tensor

from regard.cached import cached_property


@dataclass(frozen=True, eq=False)
class Plane:
    """Sizes and positions: query row r of batch row b stands at `starts[b] + r`, key column c at `key_start + c`.

    `starts` is int64 on the CPU with one entry, or one per batch row.
    """

    batch: int
    kv_heads: int
    group: int
    queries: int
    keys: int
    starts: Tensor
    key_start: int = 0
    device: torch.device = torch.device("cpu")

    @property
    def heads(self) -> int:
        """Query heads."""
        return self.kv_heads * self.group

    @cached_property
    def b(self) -> Tensor:
        """Batch row of each pair, (batch, 1, 1, 1, 1)."""
        return torch.arange(self.batch, device=self.device).view(-1, 1, 1, 1, 1)

    @cached_property
    def h(self) -> Tensor:
        """Query head of each pair, (1, kv head, group, 1, 1)."""
        return torch.arange(self.heads, device=self.device).view(1, self.kv_heads, self.group, 1, 1)

    def pairs(self, rows: slice, columns: slice) -> "Pairs":
        """The rectangle of these rows and columns (plain slices with start and stop)."""
        return Pairs(self, rows, columns)

    @property
    def all(self) -> "Pairs":
        """The whole plane as one rectangle."""
        return self.pairs(slice(0, self.queries), slice(0, self.keys))

    def sliced(self, selection: "Selection") -> "Plane":
        """The selected part as a plane of its own; positions stay what they are."""
        rows, columns = selection.rows or slice(0, self.queries), selection.columns or slice(0, self.keys)
        kv_heads = _count(selection.kv_heads, self.kv_heads)
        return replace(
            self,
            batch=_count(selection.batch, self.batch),
            kv_heads=kv_heads,
            group=_count(selection.heads, self.heads) // max(1, kv_heads) if selection.heads else self.group,
            queries=rows.stop - rows.start,
            keys=columns.stop - columns.start,
            starts=selection.tensor(self.starts, ("batch",)) + rows.start,
            key_start=self.key_start + columns.start,
        )

    def row_blocks(self, height: int) -> "RowBlocks":
        """The rows in blocks of `height`; the last may be shorter."""
        return RowBlocks(self, height, 0, self.queries)


@dataclass(frozen=True, eq=False)
class Pairs:
    """A rectangle of the plane. `i` and `j` are absolute positions that broadcast with `b` and `h`."""

    plane: Plane
    rows: slice
    columns: slice

    @property
    def area(self) -> int:
        """Number of pairs, for one batch row and head."""
        height: int = self.rows.stop - self.rows.start
        width: int = self.columns.stop - self.columns.start
        return height * width

    @property
    def b(self) -> Tensor:
        """Batch row, (batch, 1, 1, 1, 1)."""
        return self.plane.b

    @property
    def h(self) -> Tensor:
        """Query head, (1, kv head, group, 1, 1)."""
        return self.plane.h

    @cached_property
    def row(self) -> Tensor:
        """Row number within the call, (rows, 1)."""
        return torch.arange(self.rows.start, self.rows.stop, device=self.plane.device).view(-1, 1)

    @cached_property
    def column(self) -> Tensor:
        """Column number within the call, (columns,)."""
        return torch.arange(self.columns.start, self.columns.stop, device=self.plane.device)

    @cached_property
    def i(self) -> Tensor:
        """Absolute query position, (rows, 1), or (batch, 1, 1, rows, 1) when batch rows start at different places."""
        starts = self.plane.starts
        if starts.numel() == 1 and not torch.compiler.is_compiling():  # a traced tensor has no numbers yet
            return self.row + int(starts)
        return self.row + starts.to(self.plane.device).view(-1, 1, 1, 1, 1)

    @cached_property
    def j(self) -> Tensor:
        """Absolute key position, (columns,)."""
        return self.column + self.plane.key_start

    def cut(self, tensor: Tensor) -> Tensor:
        """The part of a (…, query or 1, key or 1) tensor that lies in this rectangle, heads as two axes."""
        tensor = tensor[(None,) * (4 - tensor.ndim)]
        if tensor.shape[-2] != 1:
            tensor = tensor[..., self.rows, :]
        if tensor.shape[-1] != 1:
            tensor = tensor[..., self.columns]
        return split_heads(tensor, self.plane)

    def offset_span(self, reach: int) -> tuple[int, int]:
        """The table entries [first, last) that clip(i − j, −reach, reach) + reach takes in this rectangle."""
        starts, base = self.plane.starts, self.plane.key_start
        if starts.numel() == 0:
            return reach, reach + 1
        low = int(starts.min()) + self.rows.start - (base + self.columns.stop - 1)
        high = int(starts.max()) + self.rows.stop - 1 - (base + self.columns.start)
        return max(-reach, min(low, reach)) + reach, max(-reach, min(high, reach)) + reach + 1


def constant(numbers: Sequence[float], dtype: torch.dtype) -> Tensor:
    """Numbers as a tensor on the CPU. While torch traces, operators make it: a decomposition must not hold tensors."""
    if torch.compiler.is_compiling():
        return torch.cat([torch.full((1,), number, dtype=dtype, device="cpu") for number in numbers])
    return torch.tensor(numbers, dtype=dtype, device="cpu")


def split_heads(tensor: Tensor, plane: Plane) -> Tensor:
    """(batch or 1, head or 1, …) to (batch or 1, kv head or 1, group or 1, …)."""
    if tensor.shape[1] == 1:
        return tensor.unsqueeze(2)
    return tensor.reshape(tensor.shape[0], plane.kv_heads, plane.group, *tensor.shape[2:])


@dataclass(frozen=True, eq=False)
class RowBlocks:
    """Blocks of query rows for planning: everything here is on the CPU and vectorized over the blocks."""

    plane: Plane
    height: int
    start: int
    stop: int

    @property
    def count(self) -> int:
        """Number of blocks."""
        return -(-(self.stop - self.start) // self.height)

    @cached_property
    def first_row(self) -> Tensor:
        """First row of each block, (blocks,)."""
        return torch.arange(self.count, device="cpu") * self.height + self.start

    @cached_property
    def last_row(self) -> Tensor:
        """Last row of each block, itself included."""
        return (self.first_row + self.height - 1).clamp(max=self.stop - 1)

    @cached_property
    def first(self) -> Tensor:
        """Absolute position of the first row, (batch or 1, 1, blocks)."""
        return self.first_row + self.plane.starts.view(-1, 1, 1)

    @cached_property
    def last(self) -> Tensor:
        """Absolute position of the last row."""
        return self.last_row + self.plane.starts.view(-1, 1, 1)

    @property
    def key_span(self) -> tuple[int, int]:
        """Absolute positions of the first key and of the one past the last."""
        return self.plane.key_start, self.plane.key_start + self.plane.keys

    def __iter__(self) -> Iterator[slice]:
        """The rows of each block."""
        for first, last in zip(self.first_row.tolist(), self.last_row.tolist(), strict=True):
            yield slice(first, last + 1)


Index = slice | tuple[int, ...]  # slices have start and stop
Axes = tuple[str | None, ...]


def named_axes(**tensors: Axes) -> Mapping[str, Axes]:
    """The names of the last axes of each tensor of a part: batch, head, kv head, query, key, or None."""
    return MappingProxyType(tensors)


SAME_FOR_ALL = named_axes()  # of a part that does not depend on batch row or head, and holds no tensor


class CannotSliceError(NotImplementedError):
    """A part of a spec that cannot be sliced to some batch rows or heads."""


@dataclass(frozen=True, eq=False)
class Selection:
    """Some batch rows, query heads, key/value heads, rows and columns of a call; None selects all.

    `queries` is the number of rows of the whole call.
    """

    batch: Index | None = None
    heads: Index | None = None
    kv_heads: Index | None = None
    rows: slice | None = None
    columns: slice | None = None
    queries: int | None = None

    @classmethod
    def of(cls, plane: Plane, batch: Index | None = None, head: int | None = None) -> "Selection":
        """Some batch rows of a plane, and one query head or all."""
        if head is None:
            return cls(batch, queries=plane.queries)
        kv_head = head // plane.group
        return cls(batch, slice(head, head + 1), slice(kv_head, kv_head + 1), queries=plane.queries)

    @property
    def batch_or_heads(self) -> bool:
        """Whether batch rows or heads are selected."""
        return self.batch is not None or self.heads is not None

    def tensor(self, tensor: Tensor, axes: Axes) -> Tensor:
        """The selected part of a tensor whose last axes have these names; an axis of size 1 is shared by all."""
        named = {"batch": self.batch, "head": self.heads, "kv head": self.kv_heads}
        named |= {"query": self.rows, "key": self.columns}
        for axis in range(-min(len(axes), tensor.ndim), 0):
            index = named.get(axes[axis] or "")
            if index is None or tensor.shape[axis] == 1:
                continue
            if isinstance(index, slice):
                tensor = tensor.narrow(axis, index.start, index.stop - index.start)
            else:
                tensor = tensor.index_select(axis, torch.tensor(index, device=tensor.device, dtype=torch.int64))
        return tensor


def _count(index: Index | None, every: int) -> int:
    if index is None:
        return every
    return index.stop - index.start if isinstance(index, slice) else len(index)
