"""How many pairs are visible, as exactly as can be said without looking at too many of them."""

import torch

from regard.spec.masks import Mask
from regard.spec.masks.count import count_visible
from regard.spec.masks.runs import EMPTY, MIXED
from regard.spec.plane import Plane, Strips

LOOKS = 1 << 28  # pairs that are looked at before a bound has to do
EDGES = 1 << 20  # edges of runs held at once


def visible_pairs(mask: Mask, plane: Plane, looks: int = LOOKS) -> tuple[int, bool]:
    """(number of visible pairs over all batch rows and heads, True), or an upper bound and False where the number could
    only be found by looking at more than `looks` pairs."""
    bound = unsettled = 0
    for strips in _single_rows(mask, plane):
        runs = mask.runs(strips)
        widths = runs.edges.diff(dim=-1)
        seen, open_ = widths * (runs.kinds != EMPTY), (runs.kinds == MIXED) & (widths > 0)
        bound += _over_lanes(seen, plane)
        unsettled += _over_lanes(seen * open_.any(-1, keepdim=True), plane)
    if unsettled > looks:
        return bound, False
    return count_visible(mask, plane) if unsettled else bound, True


def _single_rows(mask: Mask, plane: Plane) -> list[Strips]:
    """All rows, one by one: then nearly every mask is settled without looking."""
    if plane.queries * plane.keys * plane.batch * plane.heads == 0:
        return []
    step = max(1, EDGES // mask.runs(Strips(plane, 1, 0, 1)).edges.numel())
    return [Strips(plane, 1, first, min(first + step, plane.queries)) for first in range(0, plane.queries, step)]


def _over_lanes(widths: torch.Tensor, plane: Plane) -> int:
    return int(widths.sum((-1, -2)).expand(plane.batch, plane.heads).sum())
