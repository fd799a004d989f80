"""What every drawing of a Grid needs: checked cells, labels, the range of the colors, and smaller grids."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.inspection.records import Grid, SignedGrid

Cells = Sequence[Sequence[float | None]]

_TINY = 16  # a weight this many times smaller than the largest has less than one step of nine colors


def cells(grid: Grid) -> Cells:
    """The grid's values; raises unless rows are equally long and labels match."""
    widths = sorted({len(row) for row in grid.values})
    if len(widths) > 1:
        raise ValueError(f"a Grid has rows of one length, got lengths {widths[0]} to {widths[-1]}")
    for name, labels, count in (
        ("row", grid.row_labels, len(grid.values)),
        ("column", grid.column_labels, widths[0] if widths else len(grid.column_labels)),
    ):
        if len(labels) not in (0, count):
            raise ValueError(
                f"a Grid has one label per {name} or none, got {len(labels)} {name} labels for {count} {name}s"
            )
    return grid.values


def shape(values: Cells) -> tuple[int, int]:
    """Rows and columns."""
    return len(values), len(values[0]) if len(values) else 0


def shown(values: Cells) -> Iterator[float]:
    """The visible values, row by row, not-a-number and infinities included."""
    return (float(value) for row in values for value in row if value is not None)


def are_positions(labels: Sequence[str]) -> bool:
    """Whether the labels are whole numbers, of which a few suffice."""
    return all(label.removeprefix("-").isdecimal() for label in labels)


def round_up(step: int) -> int:
    """The next of 1, 2, 5, 10, 20, 50, …"""
    power = int(10 ** (len(str(step)) - 1))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= step)


def is_pattern(values: Cells) -> bool:
    """Whether every visible value is 1, as in the picture of a mask: where cells are says all, numbers add nothing."""
    return all(value == 1 for value in shown(values))


@dataclass(frozen=True)
class Limits:
    """The values at the weak and the strong end of the colors.

    `power` bends the way between them: at 1/2 a quarter of the range already takes half the colors.
    """

    low: float
    high: float
    power: float = 1.0
    signed: bool = False  # colors diverge from the middle

    @property
    def label(self) -> str:
        """What to write beside a scale of colors: how they are spread, if not evenly."""
        return "" if self.power == 1 else "square root scale"

    def fraction(self, value: float) -> float:
        """How far `value` is from low to high, within 0 and 1; not-a-number stays itself."""
        if math.isnan(value):
            return value
        if math.isinf(value):
            return 1.0 if value > 0 else 0.0
        # halved, because the difference of two large numbers can exceed the largest
        span = self.high / 2 - self.low / 2
        return min(max((value / 2 - self.low / 2) / span, 0.0), 1.0) ** self.power if span > 0 else 0.0


def limits_of(grid: Grid, values: Cells) -> Limits:
    """The limits of a Grid, for these values of it."""
    return limits(values, grid.limits, signed=isinstance(grid, SignedGrid))


def limits(values: Cells, fixed: tuple[float, float] | None = None, *, signed: bool = False) -> Limits:
    """The `fixed` limits of a Grid, or those of the finite values; `signed`, as far below zero as above.

    Colors start at zero, as weights do, unless values are negative or all lie in the upper half of their range.
    Where most weights are tiny beside the largest, as in long rows, they follow the square root: on a straight
    scale one strong weight would leave all others pale.
    """
    if fixed is not None:
        low, high = fixed
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"a Grid's limits are two finite numbers, the lower first; got {low} and {high}")
        return Limits(low, high, signed=signed)
    return array_limits([np.fromiter(shown(values), dtype=np.float64)], signed=signed)


def array_limits(arrays: "Iterable[np.ndarray[Any, Any]]", *, signed: bool = False) -> Limits:
    """The same of the finite numbers of arrays."""
    parts = [np.asarray(array[np.isfinite(array)], dtype=np.float64) for array in arrays]
    finite = np.concatenate(parts) if parts else np.zeros(0)
    low, high = float(finite.min(initial=np.inf)), float(finite.max(initial=-np.inf))
    if not finite.size:
        low, high = 0.0, 1.0
    if signed:
        most = max(-low, high) or 1.0
        return Limits(-most, most, signed=True)
    if 0 <= low <= high / 2 or low == high > 0:
        low = 0.0
    if not finite.size or high <= low:
        return Limits(low, low + 1.0)
    tiny = low == 0 and float(np.median(finite)) < high / _TINY
    return Limits(low, high, power=0.5 if tiny else 1.0)


def pooled(values: Cells, rows: int, columns: int) -> Cells:
    """One cell for every `rows` × `columns` cells: the mean of those visible, None where none is."""
    if rows == columns == 1:
        return values
    height, width = shape(values)
    return [
        [
            _mean([v for row in values[top : top + rows] for v in row[start : start + columns] if v is not None])
            for start in range(0, width, columns)
        ]
        for top in range(0, height, rows)
    ]


def shares(values: Cells, rows: int, columns: int) -> Cells:
    """One cell for every `rows` × `columns` cells of a pattern: the share that is visible, None where none is."""
    full = pooled([[0.0 if value is None else value for value in row] for row in values], rows, columns)
    return [[value or None for value in row] for row in full]


def _mean(values: Sequence[float]) -> float | None:
    # divided first, because a sum can exceed the largest number when the mean does not
    return sum(value / len(values) for value in values) if values else None
