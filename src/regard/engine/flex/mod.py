"""Mod: a function of one pair as FlexAttention takes it, and what it is made of.

Functions are made anew for each call, around that call's tensors; the code is the same for each structure, and torch
compiles code: calls of one structure share one kernel. Numbers that belong to the spec (the width of a window) are part
of the structure; what may differ from call to call (positions, lengths, tables) is a tensor.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.spec.plane import Plane

NEAR = 1 << 29  # positions within ±NEAR, and their differences, are computed in 32 bits
CONSTANTS = (bool, int, float, str, type(None))


class Mod(NamedTuple):
    """`fn` is a `mask_mod(b, h, q, k)` or a `score_mod(score, b, h, q, k)`; q and k count rows and columns of the call.

    `structure` is equal for functions that differ in their tensors alone.
    """

    fn: Callable[..., Tensor]
    structure: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Places:
    """Where rows stand: q of batch row b at `starts[b] + q`, k at `base[b] + k`: they are q + ahead[b] − k apart.

    All are indexed by b, though one number would often do.
    """

    ahead: Tensor
    starts: Tensor
    base: Tensor
    near: bool

    @classmethod
    def of(cls, plane: Plane) -> "Places":
        """One start for each batch row, whether the call has one or many: the structure does not tell."""
        starts = plane.starts.expand(plane.batch).contiguous()
        ahead = starts - plane.key_start
        near = int(ahead.abs().max()) + plane.queries + plane.keys < NEAR
        narrow = torch.int32 if near else torch.int64
        base = torch.full((plane.batch,), plane.key_start, device=plane.device, dtype=torch.int64)
        return cls(ahead.to(plane.device, narrow), starts.to(plane.device), base, near)


class Table(NamedTuple):
    """A tensor over (batch, head, row, column) without the axes that broadcast, and which axes are left."""

    tensor: Tensor
    axes: tuple[int, ...]

    @classmethod
    def of(cls, tensor: Tensor, plane: Plane) -> "Table":
        """Only what differs is indexed, so that a gradient is no larger than the tensor."""
        axes = tuple(axis for axis in range(4) if tensor.shape[axis] > 1)
        if not axes:
            return cls(tensor.reshape(1).expand(plane.heads).contiguous(), (1,))
        kept = tensor[tuple(slice(None) if axis in axes else 0 for axis in range(4))]
        return cls(kept if 1 in kept.stride() else kept.contiguous(), axes)  # torch's kernels want a stride of 1


def signature(fn: Any) -> tuple[Any, ...]:
    """A user's function as a structure: its code and the numbers it closes over; an object that is called is itself."""
    code = getattr(fn, "__code__", None)
    if code is None:
        return (fn,)
    cells = [cell.cell_contents for cell in getattr(fn, "__closure__", None) or ()]
    return (code, *(cell if isinstance(cell, CONSTANTS) else type(cell) for cell in cells))
