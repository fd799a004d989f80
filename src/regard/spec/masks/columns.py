"""Masks that look at the key alone (prefix, lengths), and global positions, which see and are seen by all."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from regard.arrays import Array, tensor_of
from regard.checks import dtype, is_tensor, shape, whole
from regard.spec.masks.band import Dilated, local
from regard.spec.masks.base import Mask
from regard.spec.masks.extent import FARTHEST, Extent
from regard.spec.masks.runs import EMPTY, FULL, MIXED, Runs, cut, tabled
from regard.spec.plane import Pairs, Plane, RowBlocks, named_axes
from regard.spec.serialize import register
from regard.spec.steps import Among, Below, MaskStep

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
GROUPS = 64  # most groups of global positions that blocks of several rows tell apart; nearer ones are joined as MIXED


def integers(
    name: str, value: Tensor | Array | Sequence[int] | Sequence[Sequence[int]] | int, axes: tuple[int, ...]
) -> Tensor:
    """An int64 tensor with one of these numbers of axes; floats and bools are refused."""
    value = tensor_of(name, value, copy=True)
    if isinstance(value, Tensor):
        if is_tensor(name, value).is_meta:
            raise ValueError(f"{name} is on the device meta, which holds shapes but no numbers")
        tensor = value.to("cpu")
    else:
        try:
            tensor = torch.as_tensor(value, device="cpu")
        except (ValueError, RuntimeError, TypeError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{name} must be integers of at most 64 bits in one tensor or list: {error}") from error
    if tensor.numel() and tensor.dtype not in INTEGERS:
        raise TypeError(f"{name} must be integers, got {dtype(tensor)}; convert them with .long() if they are whole")
    if tensor.ndim not in axes:
        wanted = " or ".join(map(str, axes))
        raise ValueError(f"{name} must have {wanted} axes, got shape {shape(tensor)}; squeeze or flatten it first")
    return tensor.detach().to(torch.int64)


def _positions(name: str, value: Tensor | Array | Sequence[int] | int) -> Tensor:
    """Integers on one axis that can be positions, within ±2**62, so that their differences fit in 64 bits."""
    tensor = integers(name, value, axes=(0, 1)).reshape(-1)
    # a traced tensor has no numbers yet: the operator makes the mask again, and looks then
    if not torch.compiler.is_compiling():
        wrong = tensor[(tensor > FARTHEST) | (tensor < -FARTHEST)]
        if wrong.numel():
            raise ValueError(f"{name} must lie within ±2**62, got {int(wrong[0])}")
    return tensor


def _per_batch_row(name: str, value: Tensor, plane: Plane) -> None:
    if value.numel() not in (1, plane.batch):
        missing = "a batch axis with .unsqueeze(0) if it is missing"
        if plane.batch == 1 and value.numel() == plane.heads:  # inputs (batch, length, width) count as heads
            missing = "query, key and value a head axis with .unsqueeze(1)"
        raise ValueError(
            f"{name} needs one entry per batch row: the inputs have {plane.batch}, got {value.numel()}; "
            f"inputs are (batch, head, length, width), so give {missing}"
        )


@register
@dataclass(frozen=True, eq=False, repr=False, init=False)
class Lengths(Mask):
    """Hides the padding: key j of batch row b is visible while j < lengths[b]."""

    axes = named_axes(lengths=("batch",))

    lengths: Tensor
    ragged: ClassVar[bool] = True

    def __init__(self, lengths: Tensor | Array | Sequence[int]) -> None:
        tensor = integers("Lengths", lengths, axes=(0, 1)).reshape(-1)
        # a traced tensor has no numbers yet: the operator makes the mask again, and looks then
        if not torch.compiler.is_compiling() and bool((tensor < 0).any()):
            raise ValueError(f"Lengths must not be negative, got {int(tensor.min())}; an empty row has length 0")
        object.__setattr__(self, "lengths", tensor)

    @property
    def positional(self) -> bool:
        return False

    @property
    def extent(self) -> Extent:
        longest = int(self.lengths.max()) if self.lengths.numel() else 0
        return Extent(batch=self.lengths.numel(), keys=longest)

    def visible(self, pairs: Pairs) -> Tensor:
        return pairs.j < self.lengths.to(pairs.plane.device).view(-1, 1, 1, 1, 1)

    def runs(self, row_blocks: RowBlocks) -> Runs:
        return cut(row_blocks, (FULL, EMPTY), self.lengths.cpu().view(-1, 1, 1))

    def steps(self, plane: Plane) -> tuple[MaskStep, ...]:
        return (Below(self.lengths),)

    def check(self, plane: Plane) -> None:
        _per_batch_row("Lengths", self.lengths, plane)
        stop = plane.key_start + plane.keys
        if not torch.compiler.is_compiling() and bool((self.lengths > stop).any()):
            raise ValueError(
                f"Lengths must not exceed the number of keys, got {int(self.lengths.max())} for {stop} keys; "
                "they count keys, not queries"
            )


@register
@dataclass(frozen=True, eq=False, repr=False, init=False)
class Prefix(Mask):
    """j < p: the first p keys. A prefix language model is `Causal() | Prefix(p)`; p may be one per batch row."""

    axes = named_axes(p=("batch",))

    p: int | Tensor

    def __init__(self, p: int | Tensor | Array | Sequence[int]) -> None:
        if type(p) is int and not -FARTHEST <= whole("Prefix", p) <= FARTHEST:
            raise ValueError(f"Prefix must lie within ±2**62, got {p}; masks.Full() sees every key")
        object.__setattr__(self, "p", p if type(p) is int else _positions("Prefix", p))

    @property
    def positional(self) -> bool:
        return False

    @property
    def extent(self) -> Extent:
        return Extent(batch=self.p.numel()) if isinstance(self.p, Tensor) else Extent()

    def visible(self, pairs: Pairs) -> Tensor:
        if not isinstance(self.p, Tensor):
            return (pairs.j < self.p).unsqueeze(0)
        return pairs.j < self.p.to(pairs.plane.device).view(-1, 1, 1, 1, 1)

    def runs(self, row_blocks: RowBlocks) -> Runs:
        return cut(row_blocks, (FULL, EMPTY), torch.as_tensor(self.p, device="cpu").cpu().view(-1, 1, 1))

    def steps(self, plane: Plane) -> tuple[MaskStep, ...]:
        return (Below(torch.as_tensor(self.p, device="cpu").reshape(-1)),)

    def check(self, plane: Plane) -> None:
        if isinstance(self.p, Tensor):
            _per_batch_row("Prefix", self.p, plane)


@register
@dataclass(frozen=True, eq=False, repr=False, init=False)
class Global(Mask):
    """The rows and columns of these positions: they see all keys, and all queries see them."""

    axes = named_axes(positions=(None,))

    positions: Tensor

    def __init__(self, positions: Tensor | Array | Sequence[int]) -> None:
        tensor = _positions("Global", positions)
        # how many differ is not known while tracing: the operator makes the mask again
        object.__setattr__(self, "positions", tensor if torch.compiler.is_compiling() else tensor.unique())

    def visible(self, pairs: Pairs) -> Tensor:
        chosen = self.positions.to(pairs.plane.device)
        if torch.compiler.is_compiling():  # exporters do not know the sort that isin may become
            return (pairs.i.unsqueeze(-1) == chosen).any(-1) | (pairs.j.unsqueeze(-1) == chosen).any(-1)
        return torch.isin(pairs.i, chosen) | torch.isin(pairs.j, chosen)

    def runs(self, row_blocks: RowBlocks) -> Runs:
        chosen, (low, high) = self.positions.cpu(), row_blocks.key_span
        rows = torch.searchsorted(chosen, row_blocks.last, right=True) - torch.searchsorted(chosen, row_blocks.first)
        every = rows == row_blocks.last - row_blocks.first + 1
        others = torch.where(every, FULL, torch.where(rows > 0, MIXED, EMPTY))
        columns = chosen[(chosen >= low) & (chosen < high)]
        edges, own = _groups(columns, GROUPS if row_blocks.height > 1 else len(columns))
        # a row block has one of three lists: the global columns among others that are EMPTY, MIXED or FULL
        kinds = torch.arange(3, device="cpu").view(-1, 1).repeat(1, len(edges) + 1)
        kinds[:, 1::2] = torch.maximum(kinds[:, 1::2], own)
        return tabled(row_blocks, kinds[None, None], edges, others[:, 0])

    def steps(self, plane: Plane) -> tuple[MaskStep, ...]:
        return (Among(self.positions),)


def _groups(chosen: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Rising positions cut where there is a gap, at the widest gaps if there would be more groups than `most`.

    Returns the first position and one past the last of each group, in one row, and the kinds of the groups.
    """
    if len(chosen) == 0:
        return chosen, chosen
    gaps = chosen.diff() - 1
    widest = gaps.topk(min(most - 1, len(gaps))).indices
    ends = torch.cat(
        [widest[gaps[widest] > 0].sort().values, torch.tensor([len(gaps)], device="cpu", dtype=torch.int64)]
    )
    begins = torch.cat([torch.tensor([0], device="cpu", dtype=torch.int64), ends[:-1] + 1])
    start, stop = chosen[begins], chosen[ends] + 1
    solid = stop - start == ends - begins + 1
    return torch.stack([start, stop], 1).flatten(), torch.where(solid, FULL, MIXED)


def longformer(width: int, positions: Sequence[int], step: int = 1) -> Mask:
    """Longformer: a local band, dilated if `step` is more than 1, and a few global positions (Beltagy et al., 2020)."""
    band = local(width) if step == 1 else Dilated(width, step)
    return band | Global(positions)
