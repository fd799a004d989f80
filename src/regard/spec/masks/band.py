"""Masks whose rows see one interval of keys that moves with the query: full, causal, window, local; dilated ones."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.checks import whole, written
from regard.spec.masks.base import Mask
from regard.spec.masks.runs import EMPTY, FULL, MIXED, Runs, cut
from regard.spec.plane import SAME_FOR_ALL, Pairs, Plane, RowBlocks
from regard.spec.serialize import register
from regard.spec.steps import FULL_STEPS, Band, DilatedBand, MaskStep

WIDEST = 1 << 61  # positions reach to ±2**62, and their sum with a width must stay an int64


@register
@dataclass(frozen=True, eq=False, repr=False)
class Full(Mask):
    """Every query sees every key."""

    axes = SAME_FOR_ALL

    @property
    def positional(self) -> bool:
        return False

    def visible(self, pairs: Pairs) -> Tensor:
        return torch.ones((1, 1), dtype=torch.bool, device=pairs.plane.device)

    def runs(self, row_blocks: RowBlocks) -> Runs:
        return cut(row_blocks, (FULL,))

    def steps(self, plane: Plane) -> tuple[MaskStep, ...]:
        return FULL_STEPS


@register
@dataclass(frozen=True, eq=False, repr=False)
class Causal(Mask):
    """No query sees the future: j ≤ i."""

    axes = SAME_FOR_ALL

    def visible(self, pairs: Pairs) -> Tensor:
        return pairs.j <= pairs.i

    def runs(self, row_blocks: RowBlocks) -> Runs:
        return cut(row_blocks, (FULL, MIXED, EMPTY), row_blocks.first + 1, row_blocks.last + 1)

    def steps(self, plane: Plane) -> tuple[MaskStep, ...]:
        return (Band(None, 0),)


@register
@dataclass(frozen=True, eq=False, repr=False)
class Window(Mask):
    """i − before ≤ j ≤ i + after; `None` leaves that side open. `Window(255, 0)` sees 256 keys, itself included."""

    axes = SAME_FOR_ALL

    before: int | None
    after: int | None

    def __post_init__(self) -> None:
        for name, value in (("before", self.before), ("after", self.after)):
            if isinstance(value, int) and abs(value) > WIDEST:
                got = written(value)
                raise ValueError(f"Window's {name} must lie within ±2**61, got {got}; None leaves that side open")
            if value is not None:
                whole(f"Window's {name}", value)
        if self.before is not None and self.after is not None and self.before + self.after < 0:
            raise ValueError(
                "Window(before, after) sees keys i − before to i + after and must leave at least one, "
                f"got before={self.before}, after={self.after}; before + after must not be negative"
            )

    @property
    def positional(self) -> bool:
        return self.before is not None or self.after is not None

    def visible(self, pairs: Pairs) -> Tensor:
        seen = torch.ones((1, 1), dtype=torch.bool, device=pairs.plane.device)
        if self.before is not None:
            seen = seen & (pairs.j >= pairs.i - self.before)
        if self.after is not None:
            seen = seen & (pairs.j <= pairs.i + self.after)
        return seen

    def runs(self, row_blocks: RowBlocks) -> Runs:
        return _band(row_blocks, self.before, self.after, FULL)

    def steps(self, plane: Plane) -> tuple[MaskStep, ...]:
        return (Band(self.before, self.after),)


@register
@dataclass(frozen=True, eq=False, repr=False)
class Dilated(Mask):
    """`width` keys, `step` apart, centered on the query: i − j is a multiple of step and |i − j| ≤ step · (width // 2).

    Widths are odd; `step=1` is `Window(width // 2, width // 2)`.
    """

    axes = SAME_FOR_ALL

    width: int
    step: int

    def __post_init__(self) -> None:
        whole("Dilated's step", self.step, least=1, most=WIDEST)
        if whole("Dilated's width", self.width, least=1, most=WIDEST) % 2 == 0:
            raise ValueError(
                f"Dilated's width must be odd, so that the band has a center, got {self.width}; "
                f"take {self.width - 1} or {self.width + 1}"
            )
        if self.step * self.width > WIDEST:
            raise ValueError(f"Dilated's step times its width must not exceed 2**61, got {self.step * self.width}")

    def visible(self, pairs: Pairs) -> Tensor:
        offset = pairs.i - pairs.j
        return (offset.abs() <= self.step * (self.width // 2)) & (offset % self.step == 0)

    def runs(self, row_blocks: RowBlocks) -> Runs:
        reach = self.step * (self.width // 2)
        return _band(row_blocks, reach, reach, FULL if self.step == 1 or reach == 0 else MIXED)

    def steps(self, plane: Plane) -> tuple[MaskStep, ...]:
        return (DilatedBand(self.step * (self.width // 2), self.step),)


def _band(row_blocks: RowBlocks, before: int | None, after: int | None, core: int) -> Runs:
    """What some row of a block sees lies in [outer_low, outer_high), what all rows see in [low, high)."""
    first_key, past_keys = (torch.tensor(edge, device="cpu", dtype=torch.int64) for edge in row_blocks.key_span)
    outer_low = first_key if before is None else row_blocks.first - before
    low = first_key if before is None else row_blocks.last - before
    high = past_keys if after is None else row_blocks.first + after + 1
    outer_high = past_keys if after is None else row_blocks.last + after + 1
    some = low < high  # not if the band is narrower than the block is high
    low, high = (torch.where(some, edge, outer_high) for edge in (low, high))
    return cut(row_blocks, (EMPTY, MIXED, core, MIXED, EMPTY), outer_low, low, high, outer_high)


def local(width: int) -> Mask:
    """A band of `width` keys centered on the query (odd widths); work grows as n × width."""
    if whole("local's width", width, least=1) % 2 == 0:
        raise ValueError(
            f"local's width must be odd, so that the band has a center, got {width}; "
            f"for the {width} last keys use masks.Window({width - 1}, 0)"
        )
    return Window(width // 2, width // 2)
