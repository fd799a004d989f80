"""Masks from the conventions of others: torch and transformers. FlexAttention's are in `flex`."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.checks import dtype, is_tensor, shape, whole
from regard.spec.masks.band import Full
from regard.spec.masks.base import Mask
from regard.spec.masks.extent import Extent
from regard.spec.masks.functions import Indices, RowWhere
from regard.spec.masks.runs import EMPTY, FULL, MIXED, Runs
from regard.spec.masks.tables import Dense, at_blocks, block_runs, fits_lanes, four
from regard.spec.plane import CannotSliceError, Pairs, Plane, Selection, Strips, split_heads
from regard.spec.steps import BlockRule, MaskStep


def from_sdpa(attn_mask: Tensor) -> Mask:
    """`attn_mask` of `scaled_dot_product_attention`: bool, True = visible; broadcasts to (batch, head, query, key)."""
    return Dense(_bools("attn_mask", attn_mask))


def from_mha(
    attn_mask: Tensor | None = None, key_padding_mask: Tensor | None = None, *, heads: int | None = None
) -> Mask:
    """The masks of `nn.MultiheadAttention`, where True means *hidden*.

    `attn_mask` is (query, key), or (batch · heads, query, key) and then `heads` is needed;
    `key_padding_mask` is (batch, key) or (key,).
    """
    masks: list[Mask] = []
    if attn_mask is not None:
        masks.append(Dense(_split(~_bools("attn_mask", attn_mask), heads)))
    if key_padding_mask is not None:
        hidden = _bools("key_padding_mask", key_padding_mask)
        masks.append(Dense(_keys("key_padding_mask", ~hidden)))
    if not masks:
        return Full()
    return masks[0] if len(masks) == 1 else masks[0] & masks[1]


def from_padding(attention_mask: Tensor) -> Mask:
    """A tokenizer's 2-D `attention_mask` (transformers): 1 = a real token, 0 = padding; (batch, key)."""
    tensor = is_tensor("attention_mask", attention_mask)
    real = tensor == 1
    if not bool((real | (tensor == 0)).all()):
        raise ValueError(
            f"attention_mask must hold 0 and 1 only, got values from {tensor.min().item()} to {tensor.max().item()}; "
            "a mask that is added to the logits is a bias: biases.Dense(tensor)"
        )
    return Dense(_keys("attention_mask", real))


def _bools(name: str, mask: object) -> Tensor:
    tensor = is_tensor(name, mask)
    if tensor.dtype == torch.bool:
        return tensor
    hint = (
        "a float mask is added to the logits: pass it as bias=" if tensor.is_floating_point() else "compare it with 0"
    )
    raise TypeError(f"{name} must be bool, got {dtype(tensor)}; {hint}")


def _split(table: Tensor, heads: int | None) -> Tensor:
    """(batch · heads, query, key) to (batch, heads, query, key); two axes stay."""
    if table.ndim == 2:
        return table
    if table.ndim != 3:
        raise ValueError(
            f"attn_mask must be (query, key) or (batch · heads, query, key), got shape {shape(table)}; "
            "one that broadcasts is masks.Dense(~attn_mask)"
        )
    if heads is None or table.shape[0] % whole("heads", heads, least=1):
        raise ValueError(
            f"an attn_mask of shape {shape(table)} is (batch · heads, query, key); "
            f"pass heads= so that it can be split, got {heads}"
        )
    return table.view(table.shape[0] // heads, heads, *table.shape[1:])


def _keys(name: str, visible: Tensor) -> Tensor:
    """(batch, key) to (batch, 1, 1, key); (key,) fits all."""
    if visible.ndim not in (1, 2):
        raise ValueError(
            f"{name} must be (batch, key) or (key,), got shape {shape(visible)}; one with query and head axes is "
            "masks.from_sdpa(tensor), or a bias if it is added to the logits"
        )
    return visible[:, None, None, :] if visible.ndim == 2 else visible


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
