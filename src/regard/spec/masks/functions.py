"""Masks given by a function of (b, h, i, j): of positions (`Where`), or of rows and columns as in FlexAttention."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.checks import dtype, shape
from regard.spec.forms import answer
from regard.spec.masks.base import Mask
from regard.spec.masks.extent import Extent
from regard.spec.masks.runs import EMPTY, FULL, MIXED, Runs
from regard.spec.masks.tables import at_blocks, block_runs, fits_batch_and_heads, four
from regard.spec.plane import SAME_FOR_ALL, CannotSliceError, Pairs, Plane, RowBlocks, Selection, split_heads
from regard.spec.steps import BlockRule, MaskStep, Rule

Indices = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False, repr=False)
class _Function(Mask):
    """What both share. The function gets whole index tensors that broadcast, and returns bools that do."""

    axes = SAME_FOR_ALL

    fn: Indices

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise TypeError(
                f"{type(self).__name__} takes a function of (b, h, i, j), got {type(self.fn).__name__}; "
                "a bool tensor is masks.Dense(tensor)"
            )

    @property
    def functions(self) -> tuple[Indices, ...]:
        return (self.fn,)

    def _bools(self, visible: object, pairs: Pairs) -> Tensor:
        plane = pairs.plane
        if not isinstance(visible, (Tensor, bool)):
            raise TypeError(
                f"{self!r}'s function must return a bool tensor (True = visible), got {type(visible).__name__}; "
                "end it with a return, and use torch's operations"
            )
        visible = answer(f"{self!r}'s function", visible, torch.bool, plane.device)
        if visible.dtype != torch.bool:
            raise TypeError(
                f"{self!r}'s function must return bools (True = visible), got {dtype(visible)}; "
                "compare, as in j <= i, or add != 0"
            )
        size = (plane.batch, plane.kv_heads, plane.group, pairs.row.shape[0], pairs.column.shape[0])
        try:
            visible.expand(size)
        except RuntimeError as error:
            raise ValueError(
                f"{self!r}'s function must return one bool per pair, got shape {shape(visible)} for indices that "
                f"broadcast to (batch, kv head, group, query, key) = {size}; use elementwise operations on b, h, i, j"
            ) from error
        return visible if visible.ndim >= 2 else visible.reshape(1, -1)


@dataclass(frozen=True, eq=False, repr=False)
class Where(_Function):
    """A function of (b, h, i, j), absolute positions, that works on whole index tensors and returns bools.

    >>> Where(lambda b, h, i, j: (i - j) % (h + 1) == 0).pairs(4, heads=2)
    24
    """

    def visible(self, pairs: Pairs) -> Tensor:
        return self._bools(self.fn(pairs.b, pairs.h, pairs.i, pairs.j), pairs)

    def steps(self, plane: Plane) -> tuple[MaskStep, ...]:
        return (Rule(self.fn),)


@dataclass(frozen=True, eq=False, repr=False)
class RowWhere(_Function):
    """A function of (b, h, row, column), numbered from 0 within the call: FlexAttention's `mask_mod`."""

    @property
    def positional(self) -> bool:
        return False

    def visible(self, pairs: Pairs) -> Tensor:
        return self._bools(self.fn(pairs.b, pairs.h, pairs.row, pairs.column), pairs)

    def steps(self, plane: Plane) -> tuple[MaskStep, ...]:
        return (Rule(self.fn, rows=True),)

    def sliced(self, selection: Selection) -> "RowWhere":
        """Row 0 of the selected rows is another row of the call."""
        self._sliced(selection, self.axes)
        row = 0 if selection.rows is None else selection.rows.start
        column = 0 if selection.columns is None else selection.columns.start
        return self if row == column == 0 else RowWhere(lambda b, h, i, j: self.fn(b, h, i + row, j + column))


@dataclass(frozen=True, eq=False, repr=False)
class FlexBlocks(Mask):
    """FlexAttention's BlockMask: blocks of rows and columns that are hidden, visible, or left to a function.

    `kinds` (batch, head, query block, key block) holds EMPTY, MIXED and FULL of `runs`; `size` is that of a block in
    queries and keys, `lengths` are the queries and keys it was made for.
    """

    size: tuple[int, int]
    kinds: Tensor
    fn: Indices
    lengths: tuple[int, int]

    @property
    def positional(self) -> bool:
        return False

    @property
    def extent(self) -> Extent:
        return Extent(self.kinds.shape[0], self.kinds.shape[1], *self.lengths)

    @property
    def functions(self) -> tuple[Indices, ...]:
        return (self.fn,)

    def visible(self, pairs: Pairs) -> Tensor:
        layout = split_heads(self.kinds.to(pairs.plane.device), pairs.plane)
        kinds = at_blocks(layout, pairs.row // self.size[0], pairs.column // self.size[1])
        return (kinds == FULL) | ((kinds == MIXED) & RowWhere(self.fn).visible(pairs))

    def runs(self, row_blocks: RowBlocks) -> Runs:
        kinds = self.kinds.cpu()
        top, bottom = row_blocks.first_row // self.size[0], row_blocks.last_row // self.size[0] + 1
        edges = row_blocks.key_span[0] + torch.arange(1, kinds.shape[3], device="cpu") * self.size[1]
        return block_runs(row_blocks, kinds != EMPTY, kinds == FULL, top.view(1, 1, -1), bottom.view(1, 1, -1), edges)

    def steps(self, plane: Plane) -> tuple[MaskStep, ...]:
        return (BlockRule(self.size, self.kinds, self.fn),)

    def sliced(self, selection: Selection) -> "FlexBlocks":
        raise CannotSliceError("a BlockMask belongs to the rows and columns of its call; pass its mask_mod instead")

    def check(self, plane: Plane) -> None:
        if (plane.queries, plane.keys) != self.lengths:
            raise ValueError(
                f"this BlockMask was made for {self.lengths[0]} queries and {self.lengths[1]} keys, the call has "
                f"{plane.queries} and {plane.keys}; create_block_mask(..., Q_LEN={plane.queries}, KV_LEN={plane.keys})"
            )
        fits_batch_and_heads("this BlockMask", self.kinds, plane)


def from_flex(mask_mod: Any) -> Mask:
    """FlexAttention's `mask_mod(b, h, q_idx, kv_idx)` or a BlockMask: indices are rows of the call, not positions.

    A BlockMask means what its kernels do: a full block is visible, a partial one where `mask_mod` says so, and
    a block it does not list is hidden whatever `mask_mod` says.
    """
    if not hasattr(mask_mod, "kv_num_blocks"):
        return RowWhere(mask_mod)
    kinds = _layout(mask_mod.kv_num_blocks, mask_mod.kv_indices) * MIXED
    if mask_mod.full_kv_num_blocks is not None:
        full = _layout(mask_mod.full_kv_num_blocks, mask_mod.full_kv_indices)
        kinds = torch.maximum(kinds, full * FULL)
    queries, keys = mask_mod.seq_lengths
    return FlexBlocks(tuple(mask_mod.BLOCK_SIZE), four(kinds), mask_mod.mask_mod, (int(queries), int(keys)))


def _layout(count: Tensor, indices: Tensor) -> Tensor:
    """A BlockMask's table, the first `count` of `indices` in each row, as int8 0 and 1."""
    columns = indices.shape[-1]
    listed = torch.arange(columns, device=indices.device) < count.unsqueeze(-1)
    # what stands behind the listed indices is undefined: it goes to a column that is cut off
    index = torch.where(listed, indices.long(), columns)
    table = torch.zeros((*indices.shape[:-1], columns + 1), dtype=torch.int8, device=indices.device)
    return table.scatter_(-1, index, 1)[..., :columns]
