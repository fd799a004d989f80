"""Profiles: one row or one column of a head, in bins, with its largest weights."""

from typing import Any

import torch
from torch import Tensor

from regard.map.lane import Lane
from regard.map.stop import Stop

TOP = 20
STEP = 4096  # rows of a column that are computed at once


def row(lane: Lane, q: int) -> Tensor:
    """All weights of a query, (key,); −1 where a key is hidden."""
    return lane.lines([q])[0].double()


def column(lane: Lane, k: int, stop: Stop) -> Tensor:
    """All weights that a key gets, (query,); −1 where it is hidden."""
    found = torch.full((lane.queries,), -1.0, dtype=torch.float64, device="cpu")
    for first in range(0, lane.queries, STEP):
        stop.check()
        rows = slice(first, min(lane.queries, first + STEP))
        seen = lane.hull(rows, slice(k, k + 1))
        if seen.start < seen.stop:
            found[rows] = lane.weights(rows, slice(k, k + 1))[:, 0].double()
    return found


def told(
    weights: Tensor, visible: Tensor, first: int, past: int, bins: int, name: str, words: tuple[str, ...] | None
) -> dict[str, Any]:
    """What the page draws: bins of weights times `visible`, the keys that their rows see, and the largest weights.

    `name` is what the places are called, "k" or "q".
    """
    seen = weights >= 0
    shown = torch.where(seen, weights, 0.0)
    values, places = shown.topk(min(TOP, int(seen.sum())))
    total = float(shown.sum())
    share = shown / total if total > 0 else shown
    largest, mean = binned(torch.where(seen, weights * visible, -1.0)[first:past], bins)
    return {
        "max": largest,
        "mean": mean,
        "top": [
            {name: place, "weight": value, "token": None if words is None else words[place]}
            for value, place in zip(values.tolist(), places.tolist(), strict=True)
        ],
        "visible": int(seen.sum()),
        "entropy": float(-torch.xlogy(share, share).sum()),
        "sum": total,
    }


def binned(weights: Tensor, bins: int) -> tuple[list[float | None], list[float | None]]:
    """Largest and mean of what is not below 0 in each bin, None where there is none; bin b starts at b · n // bins."""
    number = ((torch.arange(len(weights), device="cpu") + 1) * bins - 1) // max(1, len(weights))
    seen = weights >= 0
    counts = torch.zeros(bins, dtype=torch.float64, device="cpu").index_add_(0, number, seen.double())
    shown = weights.clamp(min=0)
    sums = torch.zeros(bins, dtype=torch.float64, device="cpu").index_add_(0, number, shown)
    largest = torch.zeros(bins, dtype=torch.float64, device="cpu").scatter_reduce_(0, number, shown, "amax")
    mean = sums / counts.clamp(min=1)
    return tuple(  # type: ignore[return-value]
        [None if count == 0 else value for value, count in zip(part.tolist(), counts.tolist(), strict=True)]
        for part in (largest, mean)
    )
