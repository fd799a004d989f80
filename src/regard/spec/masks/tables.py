"""Masks given by a table (blocks, a dense tensor) or by a function."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.checks import dtype, is_tensor, shape, whole
from regard.spec.masks.base import Mask
from regard.spec.masks.runs import EMPTY, FULL, MIXED, Runs, cut
from regard.spec.plane import Pairs, Plane, Strips, split_heads

Indices = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

COLUMNS = 64  # keys that a dense mask is classified by


@dataclass(frozen=True, eq=False, repr=False)
class Blocks(Mask):
    """Squares of `size` positions: pair (i, j) is visible where `layout[i // size, j // size]` is True.

    `layout` is a bool tensor (query block, key block), with head or batch and head axes in front if they differ.
    """

    size: int
    layout: Tensor

    def __post_init__(self) -> None:
        whole("Blocks' size", self.size, least=1)
        _bool_table("Blocks' layout", self.layout, least=2)

    def visible(self, pairs: Pairs) -> Tensor:
        layout = split_heads(_four(self.layout.to(pairs.plane.device)), pairs.plane)
        rows, columns = pairs.i // self.size, pairs.j // self.size
        if rows.ndim == 2:
            return layout[..., rows, columns]
        b = torch.arange(layout.shape[0], device=layout.device).view(-1, 1, 1, 1, 1)
        k = torch.arange(layout.shape[1], device=layout.device).view(-1, 1, 1, 1)
        g = torch.arange(layout.shape[2], device=layout.device).view(-1, 1, 1)
        return layout[b, k, g, rows, columns]

    def runs(self, strips: Strips) -> Runs:
        layout = _four(self.layout.cpu())
        above = torch.nn.functional.pad(layout.to(torch.int32).cumsum(2), (0, 0, 1, 0))
        top, bottom = strips.first // self.size, strips.last // self.size + 1
        size = torch.broadcast_shapes(above.shape[:2], top.shape[:2])
        index = [edge.expand(*size, -1).unsqueeze(-1).expand(*size, -1, above.shape[3]) for edge in (bottom, top)]
        above = above.expand(*size, -1, -1)
        seen = above.gather(2, index[0]) - above.gather(2, index[1])
        kinds = torch.where(seen == 0, EMPTY, torch.where(seen == (bottom - top).unsqueeze(-1), FULL, MIXED))
        edges = torch.arange(1, above.shape[3]) * self.size
        return cut(strips, kinds.unbind(-1), *edges)

    def check(self, plane: Plane) -> None:
        rows, columns = (side * self.size for side in self.layout.shape[-2:])
        first, stop = int(plane.starts.min()), int(plane.starts.max()) + plane.queries
        if plane.queries and (first < 0 or stop > rows or plane.key_start + plane.keys > columns):
            raise ValueError(
                f"Blocks covers query positions 0 to {rows - 1} and key positions 0 to {columns - 1}, the call has "
                f"queries {first} to {stop - 1} and {plane.keys} keys; enlarge the layout"
            )
        _leading("Blocks' layout", _four(self.layout), plane)


@dataclass(frozen=True, eq=False, repr=False)
class Dense(Mask):
    """A bool tensor that broadcasts to (batch, head, query, key); it stays the size it has."""

    tensor: Tensor

    def __post_init__(self) -> None:
        _bool_table("masks.Dense", self.tensor, least=1)
        if self.tensor.ndim == 1:
            object.__setattr__(self, "tensor", self.tensor.unsqueeze(0))

    @property
    def positional(self) -> bool:
        return False

    def visible(self, pairs: Pairs) -> Tensor:
        return pairs.cut(self.tensor.to(pairs.plane.device))

    def runs(self, strips: Strips) -> Runs:
        table = _four(self.tensor.cpu())
        if table.shape[2] == 1:
            kinds = _classes(table[..., 0, :]).unsqueeze(2)
        else:
            rows = [_classes(table[:, :, first : last + 1]) for first, last in _bounds(strips)]
            kinds = torch.stack([torch.where(_agree(r), r.amax(2), MIXED) for r in rows], 2) if rows else EMPTY_KINDS
        width = table.shape[3] if table.shape[3] == 1 else COLUMNS
        edges = strips.key_span[0] + torch.arange(1, kinds.shape[-1]) * width
        return cut(strips, kinds.unbind(-1), *edges)

    def check(self, plane: Plane) -> None:
        fits_plane("mask", self.tensor, plane)


@dataclass(frozen=True, eq=False, repr=False)
class Where(Mask):
    """A function of (b, h, i, j), absolute positions, that works on whole index tensors and returns bools."""

    fn: Indices

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise TypeError(f"Where takes a function of (b, h, i, j), got {type(self.fn).__name__}")

    def visible(self, pairs: Pairs) -> Tensor:
        return self._bools(self.fn(pairs.b, pairs.h, pairs.i, pairs.j), pairs)

    def _bools(self, seen: object, pairs: Pairs) -> Tensor:
        seen = torch.as_tensor(seen, device=pairs.plane.device)
        if seen.dtype != torch.bool:
            raise TypeError(f"Where's function must return bools (True = visible), got {dtype(seen)}")
        return seen if seen.ndim >= 2 else seen.reshape(1, -1)


@dataclass(frozen=True, eq=False, repr=False)
class RowWhere(Where):
    """A function of (b, h, row, column), numbered from 0 within the call: FlexAttention's `mask_mod`."""

    @property
    def positional(self) -> bool:
        return False

    def visible(self, pairs: Pairs) -> Tensor:
        return self._bools(self.fn(pairs.b, pairs.h, pairs.row, pairs.column), pairs)


EMPTY_KINDS = torch.zeros((1, 1, 0, 1), dtype=torch.int8)


def _bounds(strips: Strips) -> list[tuple[int, int]]:
    return list(zip(strips.first_row.tolist(), strips.last_row.tolist(), strict=True))


def _agree(kinds: Tensor) -> Tensor:
    return kinds.amin(2) == kinds.amax(2)


def _classes(rows: Tensor) -> Tensor:
    """The class of every `COLUMNS` keys, row by row."""
    if rows.shape[-1] == 0:
        return torch.zeros((*rows.shape[:-1], 1), dtype=torch.int8)
    groups = rows.split(COLUMNS, -1)
    return torch.stack([g.any(-1).to(torch.int8) + g.all(-1).to(torch.int8) for g in groups], -1)


def _four(table: Tensor) -> Tensor:
    return table[(None,) * (4 - table.ndim)]


def _bool_table(name: str, table: object, least: int) -> None:
    tensor = is_tensor(name, table)
    if tensor.dtype != torch.bool:
        raise TypeError(
            f"{name} must be bool (True = visible), got {dtype(tensor)}; "
            "numbers that are added to the logits belong in bias="
        )
    if not least <= tensor.ndim <= 4:
        raise ValueError(f"{name} must have {least} to 4 axes, got shape {shape(tensor)}")


def _leading(name: str, table: Tensor, plane: Plane) -> None:
    batch, heads = table.shape[:2]
    if batch not in (1, plane.batch) or heads not in (1, plane.heads):
        raise ValueError(
            f"{name} has {batch} batch rows and {heads} heads, the call has {plane.batch} and {plane.heads}; "
            "each must be 1 or equal"
        )


def fits_plane(name: str, table: Tensor, plane: Plane) -> None:
    """Refuse a dense mask or bias that does not broadcast to (batch, head, query, key)."""
    wanted = (plane.batch, plane.heads, plane.queries, plane.keys)
    have = (1,) * (4 - table.ndim) + tuple(table.shape)
    if any(size not in (1, want) for size, want in zip(have, wanted, strict=True)):
        hint = "name the axes that are missing with unsqueeze"
        if have[2:] == (plane.keys, plane.queries):
            hint = "rows are queries and columns are keys: transpose it"
        elif table.ndim == 3 and have[1] == plane.batch != plane.heads:
            hint = f"for one {name} per batch row give it a head axis with .unsqueeze(1)"
        elif table.ndim == 2 and have[2:] == (plane.batch, plane.keys):
            hint = f"for one row of keys per batch row write [:, None, None, :], or use masks.Lengths"
        raise ValueError(
            f"{name} must broadcast to (batch, head, query, key) = {wanted}, got {shape(table)}; {hint}"
        )
