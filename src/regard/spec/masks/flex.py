"""Masks of FlexAttention: a `mask_mod`, or a BlockMask, whose blocks become runs."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.spec.masks.base import Mask
from regard.spec.masks.extent import Extent
from regard.spec.masks.functions import Indices, RowWhere
from regard.spec.masks.runs import EMPTY, FULL, MIXED, Runs
from regard.spec.masks.tables import at_blocks, block_runs, fits_lanes, four
from regard.spec.plane import CannotSliceError, Pairs, Plane, Selection, Strips, split_heads
from regard.spec.steps import BlockRule, MaskStep


def from_flex(mask_mod: Any) -> Mask:
    """FlexAttention's `mask_mod(b, h, q_idx, kv_idx)` or a BlockMask: indices are rows of the call, not positions.

    A BlockMask means what its kernels do: a full block is visible, a partial one where `mask_mod` says so, and
    a block it does not list is hidden whatever `mask_mod` says.
    """
    if not hasattr(mask_mod, "kv_num_blocks"):
        return RowWhere(mask_mod)
    shown = _layout(mask_mod.kv_num_blocks, mask_mod.kv_indices)
    kinds = shown * MIXED
    if mask_mod.full_kv_num_blocks is not None:
        full = _layout(mask_mod.full_kv_num_blocks, mask_mod.full_kv_indices)
        kinds = torch.maximum(kinds, full * FULL)
    queries, keys = mask_mod.seq_lengths
    return RowBlocks(tuple(mask_mod.BLOCK_SIZE), four(kinds), mask_mod.mask_mod, (int(queries), int(keys)))


@dataclass(frozen=True, eq=False, repr=False)
class RowBlocks(Mask):
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

    def runs(self, strips: Strips) -> Runs:
        kinds = self.kinds.cpu()
        top, bottom = strips.first_row // self.size[0], strips.last_row // self.size[0] + 1
        edges = strips.key_span[0] + torch.arange(1, kinds.shape[3], device="cpu") * self.size[1]
        return block_runs(strips, kinds != EMPTY, kinds == FULL, top.view(1, 1, -1), bottom.view(1, 1, -1), edges)

    def steps(self, plane: Plane) -> tuple[MaskStep, ...]:
        return (BlockRule(self.size, self.kinds, self.fn),)

    def sliced(self, selection: Selection) -> "RowBlocks":
        raise CannotSliceError("a BlockMask belongs to the rows and columns of its call; pass its mask_mod instead")

    def check(self, plane: Plane) -> None:
        if (plane.queries, plane.keys) != self.lengths:
            raise ValueError(
                f"this BlockMask was made for {self.lengths[0]} queries and {self.lengths[1]} keys, the call has "
                f"{plane.queries} and {plane.keys}; create_block_mask(..., Q_LEN={plane.queries}, KV_LEN={plane.keys})"
            )
        fits_lanes("this BlockMask", self.kinds, plane)


def _layout(count: Tensor, indices: Tensor) -> Tensor:
    """A BlockMask's table, the first `count` of `indices` in each row, as int8 0 and 1."""
    columns = indices.shape[-1]
    listed = torch.arange(columns, device=indices.device) < count.unsqueeze(-1)
    # what stands behind the listed indices is undefined: it goes to a column that is cut off
    index = torch.where(listed, indices.long(), columns)
    table = torch.zeros((*indices.shape[:-1], columns + 1), dtype=torch.int8, device=indices.device)
    return table.scatter_(-1, index, 1)[..., :columns]
