"""The exact number of visible pairs, without visiting those that a closed form settles."""

from typing import TYPE_CHECKING

from regard.spec.masks.runs import FULL, MIXED
from regard.spec.plane import Plane, Strips

if TYPE_CHECKING:
    from regard.spec.masks.base import Mask

ROWS = 65_536  # rows whose runs are held at once
CELLS = 1 << 22  # pairs looked at at once


def count_visible(mask: "Mask", plane: Plane) -> int:
    """Visible pairs over all batch rows and query heads."""
    return sum(
        _in_rows(mask, plane, first, min(first + ROWS, plane.queries)) for first in range(0, plane.queries, ROWS)
    )


def _in_rows(mask: "Mask", plane: Plane, first: int, stop: int) -> int:
    """Strips of one row each: most masks are then settled in closed form."""
    if plane.keys == 0 or plane.batch * plane.heads == 0:
        return 0
    runs = mask.runs(Strips(plane, 1, first, stop))
    widths = runs.edges.diff(dim=-1)
    open_ = (runs.kinds == MIXED) & (widths > 0)
    if not bool(open_.any()):
        full = (widths * (runs.kinds == FULL)).sum((-1, -2))
        return int(full.expand(plane.batch, plane.heads).sum())
    return _looked_at(mask, plane, first, stop)


def _looked_at(mask: "Mask", plane: Plane, first: int, stop: int) -> int:
    height = max(1, CELLS // max(1, plane.keys * plane.batch * plane.heads))
    total = 0
    for row in range(first, stop, height):
        pairs = plane.pairs(slice(row, min(row + height, stop)), slice(0, plane.keys))
        shape = (plane.batch, plane.kv_heads, plane.group, pairs.rows.stop - row, plane.keys)
        total += int(mask.visible(pairs).expand(shape).sum())
    return total
