"""Masks given by a function of (b, h, i, j): positions (`Where`), or rows as in FlexAttention (`RowWhere`)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.checks import dtype, shape
from regard.spec.forms import answer
from regard.spec.masks.base import Mask
from regard.spec.plane import SAME_FOR_ALL, Pairs, Plane, Selection
from regard.spec.steps import MaskStep, Rule

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

    def _bools(self, seen: object, pairs: Pairs) -> Tensor:
        plane = pairs.plane
        if not isinstance(seen, Tensor | bool):
            raise TypeError(
                f"{self!r}'s function must return a bool tensor (True = visible), got {type(seen).__name__}; "
                "end it with a return, and use torch's operations"
            )
        seen = answer(f"{self!r}'s function", seen, torch.bool, plane.device)
        if seen.dtype != torch.bool:
            raise TypeError(
                f"{self!r}'s function must return bools (True = visible), got {dtype(seen)}; "
                "compare, as in j <= i, or add != 0"
            )
        wanted = (plane.batch, plane.kv_heads, plane.group, len(pairs.row), len(pairs.column))
        try:
            seen.expand(wanted)
        except RuntimeError as error:
            raise ValueError(
                f"{self!r}'s function must return one bool per pair, got shape {shape(seen)} for indices that "
                f"broadcast to (batch, kv head, group, query, key) = {wanted}; use elementwise operations on b, h, i, j"
            ) from error
        return seen if seen.ndim >= 2 else seen.reshape(1, -1)


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
