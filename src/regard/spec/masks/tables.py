"""Masks given by a table: squares of positions (blocks, BigBird) or every pair (dense), also as torch has them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.arrays import Array, tensor_of
from regard.checks import dtype, is_tensor, shape, whole
from regard.spec.masks.band import Causal, Full
from regard.spec.masks.base import Mask
from regard.spec.masks.extent import FARTHEST, Extent, query_span
from regard.spec.masks.runs import EMPTY, FULL, MIXED, Runs, tabled
from regard.spec.plane import Pairs, Plane, RowBlocks, named_axes, split_heads
from regard.spec.serialize import register
from regard.spec.steps import BlockTable, MaskStep, PairTable

COLUMNS = 64  # keys that a dense mask is classified by


@register
@dataclass(frozen=True, eq=False, repr=False)
class Blocks(Mask):
    """Squares of `size` positions: pair (i, j) is visible where `layout[i // size, j // size]` is True.

    `layout` is a bool tensor (query block, key block), with head or batch and head axes in front if they differ.
    """

    axes = named_axes(layout=("batch", "head", None, None))

    size: int
    layout: Tensor

    def __post_init__(self) -> None:
        self._keep_tensors("layout")
        whole("Blocks' size", self.size, least=1, most=FARTHEST)
        _bool_table("Blocks' layout", self.layout, least=2)
        if 0 in self.layout.shape[-2:]:
            raise ValueError(f"Blocks' layout must have at least one block, got shape {shape(self.layout)}")

    @property
    def extent(self) -> Extent:
        batch, heads, rows, columns = four(self.layout).shape
        return Extent(batch, heads, rows * self.size, columns * self.size)

    def visible(self, pairs: Pairs) -> Tensor:
        layout = split_heads(four(self.layout.to(pairs.plane.device)), pairs.plane)
        return at_blocks(layout, pairs.i // self.size, pairs.j // self.size)

    def runs(self, row_blocks: RowBlocks) -> Runs:
        layout = four(self.layout.cpu())
        edges = torch.arange(1, layout.shape[3], device="cpu") * self.size
        return block_runs(
            row_blocks, layout, layout, row_blocks.first // self.size, row_blocks.last // self.size + 1, edges
        )

    def steps(self, plane: Plane) -> tuple[MaskStep, ...]:
        return (BlockTable(self.size, four(self.layout)),)

    def check(self, plane: Plane) -> None:
        fits_batch_and_heads("Blocks' layout", four(self.layout), plane)
        if torch.compiler.is_compiling():  # a traced start has no number yet
            return
        rows, columns = (side * self.size for side in self.layout.shape[-2:])
        first, stop = query_span(plane)
        past_keys = plane.key_start + plane.keys
        if first < 0 or stop > rows or (plane.keys and (plane.key_start < 0 or past_keys > columns)):
            raise ValueError(
                f"Blocks covers query positions 0 to {rows - 1} and key positions 0 to {columns - 1}, the call has "
                f"queries at {first} to {stop - 1} and keys at {plane.key_start} to {past_keys - 1}; "
                "enlarge the layout or pass query_start"
            )


@register
@dataclass(frozen=True, eq=False, repr=False)
class Dense(Mask):
    """A bool tensor that broadcasts to (batch, head, query, key); it stays the size it has."""

    axes = named_axes(tensor=("batch", "head", "query", "key"))

    tensor: Tensor

    def __post_init__(self) -> None:
        self._keep_tensors("tensor")
        _bool_table("masks.Dense", self.tensor, least=1)
        if self.tensor.ndim == 1:
            object.__setattr__(self, "tensor", self.tensor.unsqueeze(0))

    @property
    def positional(self) -> bool:
        return False

    @property
    def extent(self) -> Extent:
        batch, heads, queries, keys = four(self.tensor).shape
        return Extent(batch, heads, queries if queries > 1 else 0, keys if keys > 1 else 0)

    def visible(self, pairs: Pairs) -> Tensor:
        return pairs.cut(self.tensor).to(pairs.plane.device)

    def runs(self, row_blocks: RowBlocks) -> Runs:
        table = four(self.tensor.cpu()).view(torch.uint8)
        if table.shape[2] > 1:
            table = table[:, :, row_blocks.start : row_blocks.stop]
        # rows first, which is many times faster; the greatest is any, the least is all, their sum the kind
        some, every = (
            grouped(grouped(table, 2, row_blocks.height, reduce), 3, COLUMNS, reduce)
            for reduce in (torch.amax, torch.amin)
        )
        return tabled(
            row_blocks, some + every, row_blocks.key_span[0] + torch.arange(1, some.shape[3], device="cpu") * COLUMNS
        )

    def steps(self, plane: Plane) -> tuple[MaskStep, ...]:
        return (PairTable(four(self.tensor)),)

    def check(self, plane: Plane) -> None:
        fits_plane("mask", self.tensor, plane)


def from_sdpa(attn_mask: Tensor | Array) -> Mask:
    """`attn_mask` of `scaled_dot_product_attention`: bool, True = visible; broadcasts to (batch, head, query, key)."""
    return Dense(_bools("attn_mask", attn_mask))


def from_mha(
    attn_mask: Tensor | Array | None = None, key_padding_mask: Tensor | Array | None = None, *, heads: int | None = None
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


def from_padding(attention_mask: Tensor | Array) -> Mask:
    """A tokenizer's 2-D `attention_mask` (transformers): 1 = a real token, 0 = padding; (batch, key)."""
    tensor = is_tensor("attention_mask", tensor_of("attention_mask", attention_mask, copy=True))
    real = tensor == 1
    if not torch.compiler.is_compiling() and not bool((real | (tensor == 0)).all()):
        raise ValueError(
            f"attention_mask must hold 0 and 1 only, got values from {tensor.min().item()} to {tensor.max().item()}; "
            "a mask that is added to the logits is a bias: biases.Dense(tensor)"
        )
    return Dense(_keys("attention_mask", real))


def _bools(name: str, mask: object) -> Tensor:
    tensor = is_tensor(name, tensor_of(name, mask, copy=True))
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


def four(table: Tensor) -> Tensor:
    """(…, row, column) as (batch, head, row, column)."""
    return table[(None,) * (4 - table.ndim)]


def at_blocks(layout: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Entries of a (batch, kv head, group, query block, key block) layout at these block numbers.

    `rows` is (query, 1), or (batch, 1, 1, query, 1); `columns` is (key,).
    """
    if rows.ndim == 2:
        return layout[..., rows, columns]
    b, k, g = (torch.arange(size, device=layout.device) for size in layout.shape[:3])
    return layout[b.view(-1, 1, 1, 1, 1), k.view(-1, 1, 1, 1), g.view(-1, 1, 1), rows, columns]


def block_runs(row_blocks: RowBlocks, some: Tensor, every: Tensor, top: Tensor, bottom: Tensor, edges: Tensor) -> Runs:
    """Runs of row blocks that reach from block row `top` to before `bottom`, (batch or 1, 1, row blocks) each.

    `some` and `every` (batch, head, query block, key block) say of each block whether it shows any pair, and all.
    """
    # row blocks that lie in the same rows of blocks share their runs
    span, which = torch.unique_consecutive(torch.stack([top, bottom]).flatten(1), dim=1, return_inverse=True)
    counts = []
    for table in (some,) if every is some else (some, every):
        above = pad(table.to(torch.int32).cumsum(2), (0, 0, 1, 0))
        counts.append(above[:, :, span[1]] - above[:, :, span[0]])
    full = counts[-1] == (span[1] - span[0]).unsqueeze(-1)
    kinds = torch.where(counts[0] == 0, EMPTY, torch.where(full, FULL, MIXED))
    return tabled(row_blocks, kinds, edges, which.view(top.shape[0], top.shape[2]))


def grouped(table: Tensor, axis: int, size: int, reduce: Callable[..., Tensor]) -> Tensor:
    """`reduce` (amax, amin) over every `size` entries of an axis; the last group may be shorter. An axis of 1 stays."""
    length = table.shape[axis]
    if length == 1:
        return table
    if length == 0:
        return table.sum(axis, keepdim=True, dtype=table.dtype)
    groups = length // size
    parts = [reduce(table.narrow(axis, 0, groups * size).unflatten(axis, (groups, size)), axis + 1)]
    if groups * size < length:
        parts.append(reduce(table.narrow(axis, groups * size, length - groups * size), axis, keepdim=True))
    return torch.cat(parts, axis)


def fits_batch_and_heads(name: str, table: Tensor, plane: Plane) -> None:
    """Refuse a (batch, head, …) table whose leading axes fit neither 1 nor the call."""
    batch, heads = table.shape[:2]
    if batch not in (1, plane.batch) or heads not in (1, plane.heads):
        raise ValueError(
            f"{name} has {batch} batch rows and {heads} heads, the call has {plane.batch} and {plane.heads}; "
            "each must be 1 or equal"
        )


def fits_plane(name: str, table: Tensor, plane: Plane) -> None:
    """Refuse a dense mask or bias that does not broadcast to (batch, head, query, key)."""
    sizes = (plane.batch, plane.heads, plane.queries, plane.keys)
    have = (1,) * (4 - table.ndim) + tuple(table.shape)
    if all(size in (1, want) for size, want in zip(have, sizes, strict=True)):
        return
    hint = "name the axes that are missing with unsqueeze"
    if have[2:] == (plane.keys, plane.queries):
        hint = "rows are queries and columns are keys: transpose it"
    elif table.ndim == 3 and have[1] == plane.batch != plane.heads:
        hint = f"for one {name} per batch row give it a head axis with .unsqueeze(1)"
    elif table.ndim == 2 and have[2:] == (plane.batch, plane.keys):
        hint = "for one row of keys per batch row write [:, None, None, :], or use masks.Lengths"
    elif table.ndim == 2 and have[2:] == (plane.heads, plane.keys):
        hint = "for one row of keys per head, which inputs of three axes have in place of a batch, write [:, None, :]"
    elif table.ndim == 4 and plane.batch == 1 and have[0] == plane.heads:
        hint = "inputs of three axes are (head, length, width): give them a head axis with .unsqueeze(1)"
    raise ValueError(f"{name} must broadcast to (batch, head, query, key) = {sizes}, got {shape(table)}; {hint}")


def _bool_table(name: str, table: object, least: int) -> None:
    tensor = is_tensor(name, table)
    if tensor.dtype != torch.bool:
        raise TypeError(
            f"{name} must be bool (True = visible), got {dtype(tensor)}; "
            "numbers that are added to the logits belong in bias="
        )
    if not least <= tensor.ndim <= 4:
        raise ValueError(
            f"{name} must have {least} to 4 axes, the last two (query, key), got shape {shape(tensor)}; "
            "fold several batch axes into one with flatten"
        )


def bigbird(
    length: int, size: int = 64, *, window: int = 3, ends: int = 1, random: int = 3, seed: int = 0, causal: bool = False
) -> Mask:
    """BigBird (Zaheer et al., 2020): a band, global ends and random keys, all in blocks of `size` positions.

    Each block of queries sees `window` blocks around its own, the first and last `ends` blocks, which also see
    everything, and `random` more blocks drawn with `seed` from those left (all of them if fewer are). With `causal` the
    draw is among earlier blocks, and no query sees a later key.
    """
    count = -(-whole("bigbird's length", length, least=1) // whole("bigbird's size", size, least=1))
    if whole("bigbird's window", window, least=1) % 2 == 0:
        raise ValueError(
            f"bigbird's window counts blocks around the diagonal and must be odd, got {window}; "
            f"take {window - 1} or {window + 1}"
        )
    whole("bigbird's ends", ends, least=0)
    random = min(whole("bigbird's random", random, least=0), count)
    row, column = torch.arange(count, device="cpu").view(-1, 1), torch.arange(count, device="cpu")
    layout = (row - column).abs() <= window // 2
    for block in (row, column):
        layout = layout | (block < ends) | (block >= count - ends)
    draw = torch.rand(
        (count, count),
        generator=torch.Generator().manual_seed(whole("bigbird's seed", seed, most=(1 << 64) - 1)),
        device="cpu",
        dtype=torch.float32,
    )
    taken = layout | (column > row) if causal else layout
    chosen = draw.masked_fill(taken, -1.0).topk(random, -1)
    layout = layout.scatter(1, chosen.indices, layout.gather(1, chosen.indices) | (chosen.values >= 0))
    mask = Blocks(size, layout)
    return mask & Causal() if causal else mask
