"""Masks that look at the key alone (prefix, lengths), and global positions, which see and are seen by all."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.checks import shape
from regard.spec.masks.base import Mask
from regard.spec.masks.runs import EMPTY, FULL, MIXED, Runs, cut
from regard.spec.plane import Pairs, Plane, Strips


def per_batch_row(name: str, value: Tensor | int, plane: Plane) -> None:
    """Refuse a tensor that has not one entry, or one per batch row."""
    if isinstance(value, Tensor) and value.numel() not in (1, plane.batch):
        raise ValueError(
            f"{name} needs one entry per batch row: the inputs have {plane.batch}, got {value.numel()}; "
            "inputs are (batch, head, length, width), so give a batch axis with unsqueeze(0) if it is missing"
        )


def integers(name: str, value: Tensor | int | list[int]) -> Tensor:
    """An int64 tensor; floats and bools are refused."""
    tensor = torch.as_tensor(value)
    if tensor.numel() and tensor.dtype not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        raise TypeError(f"{name} must be integers, got {str(tensor.dtype).removeprefix('torch.')}")
    return tensor.to(torch.int64)


@dataclass(frozen=True, eq=False, repr=False)
class Lengths(Mask):
    """Hides the padding: key j of batch row b is visible while j < lengths[b]."""

    lengths: Tensor

    def __post_init__(self) -> None:
        lengths = integers("Lengths", self.lengths).reshape(-1)
        if bool((lengths < 0).any()):
            raise ValueError(f"Lengths must not be negative, got {int(lengths.min())}")
        object.__setattr__(self, "lengths", lengths)

    @property
    def positional(self) -> bool:
        return False

    def visible(self, pairs: Pairs) -> Tensor:
        return pairs.j < self.lengths.to(pairs.plane.device).view(-1, 1, 1, 1, 1)

    def runs(self, strips: Strips) -> Runs:
        return cut(strips, (FULL, EMPTY), self.lengths.cpu().view(-1, 1, 1))

    def check(self, plane: Plane) -> None:
        per_batch_row("Lengths", self.lengths, plane)
        if bool((self.lengths > plane.key_start + plane.keys).any()):
            raise ValueError(
                f"Lengths must not exceed the number of keys, got {int(self.lengths.max())} for {plane.keys} keys"
            )


@dataclass(frozen=True, eq=False, repr=False)
class Prefix(Mask):
    """j < p: the first p keys. A prefix language model is `Causal() | Prefix(p)`; p may be one per batch row."""

    p: int | Tensor

    def __post_init__(self) -> None:
        if isinstance(self.p, Tensor):
            object.__setattr__(self, "p", integers("Prefix", self.p).reshape(-1))
        elif isinstance(self.p, bool) or not isinstance(self.p, int):
            raise TypeError(f"Prefix takes an int, or a tensor with one per batch row, got {type(self.p).__name__}")

    @property
    def positional(self) -> bool:
        return False

    def visible(self, pairs: Pairs) -> Tensor:
        p = self.p.to(pairs.plane.device).view(-1, 1, 1, 1, 1) if isinstance(self.p, Tensor) else self.p
        return (pairs.j < p) if isinstance(p, Tensor) else (pairs.j < p).view(1, -1)

    def runs(self, strips: Strips) -> Runs:
        return cut(strips, (FULL, EMPTY), torch.as_tensor(self.p).cpu().view(-1, 1, 1))

    def check(self, plane: Plane) -> None:
        per_batch_row("Prefix", self.p, plane)


@dataclass(frozen=True, eq=False, repr=False)
class Global(Mask):
    """The rows and columns of these positions: they see all keys, and all queries see them."""

    positions: Tensor

    def __post_init__(self) -> None:
        positions = integers("Global", self.positions)
        if positions.ndim > 1:
            raise ValueError(f"Global takes a list of positions, got a tensor of shape {shape(positions)}")
        object.__setattr__(self, "positions", positions.reshape(-1).unique())

    def visible(self, pairs: Pairs) -> Tensor:
        chosen = self.positions.to(pairs.plane.device)
        return torch.isin(pairs.i, chosen) | torch.isin(pairs.j, chosen)

    def runs(self, strips: Strips) -> Runs:
        chosen = self.positions.cpu()
        rows = torch.searchsorted(chosen, strips.last, right=True) - torch.searchsorted(chosen, strips.first)
        every = rows == strips.last - strips.first + 1
        others = torch.where(every, FULL, torch.where(rows > 0, MIXED, EMPTY))
        breaks = torch.nonzero(chosen.diff() > 1).flatten()
        starts = chosen[torch.cat([torch.zeros(min(len(chosen), 1), dtype=torch.int64), breaks + 1])]
        stops = chosen[torch.cat([breaks, torch.full((min(len(chosen), 1),), len(chosen) - 1)])] + 1
        edges = torch.stack([starts, stops], 1).flatten()
        kinds = [others if k % 2 == 0 else FULL for k in range(len(edges) + 1)]
        return cut(strips, kinds, *edges)


