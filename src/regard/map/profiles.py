"""Profiles of rows and columns of a head or a difference, and statistics of the heads of a layer."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.inspection.capture import Capture
from regard.inspection.heads import head_table
from regard.map.difference_view import DifferenceView, subtracted
from regard.map.head_view import HeadView
from regard.map.jobs import Stop
from regard.map.tiles import sampled
from regard.map.views import LayerView
from regard.map.words import AxisWords

TOP = 20  # weights listed with a profile
COLUMN_ROWS = 4096  # rows of a column that are computed at once
STATISTICS_PAIRS = 1 << 24  # of all heads; statistics of more pairs are taken from some rows
STATISTICS_ROWS = 64  # of each head, where statistics are of some rows
COLUMNS = ("entropy", "relative", "distance", "previous", "first")
MORE = ("diagonal", "duplicate", "induction", "punctuation")


def row_weights(head_view: HeadView, q: int) -> Tensor:
    """All weights of a query, (key,); −1 where a key is hidden."""
    return head_view.lines([q])[0].double()


def column_weights(head_view: HeadView, k: int, stop: Stop) -> Tensor:
    """All weights that a key gets, (query,); −1 where it is hidden."""
    weights = torch.full((head_view.queries,), -1.0, dtype=torch.float64, device="cpu")
    for first in range(0, head_view.queries, COLUMN_ROWS):
        stop.check()
        rows = slice(first, min(head_view.queries, first + COLUMN_ROWS))
        seen = head_view.hull(rows, slice(k, k + 1))
        if seen.start < seen.stop:
            weights[rows] = head_view.weights(rows, slice(k, k + 1))[:, 0].double()
    return weights


def profile(
    weights: Tensor, visible: Tensor, first: int, past: int, bins: int, name: str, words: AxisWords | None
) -> dict[str, Any]:
    """What the page draws: bins of weights times `visible` (the keys that their rows see) and the largest weights.

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
            {name: place, "weight": value, "token": None if words is None else words.labels[place]}
            for value, place in zip(values.tolist(), places.tolist(), strict=True)
        ],
        "visible": int(seen.sum()),
        "entropy": float(-torch.xlogy(share, share).sum()),
        "sum": total,
    }


def difference_cell(view: DifferenceView, q: int, k: int) -> dict[str, Any]:
    """Both weights of a pair, their difference, and its rank by size among the keys of the row."""
    first, second = (row_weights(own, q) for own in view.pair)
    difference, visible = subtracted(first, second)
    hidden = not bool(visible[k])
    return {
        "first": None if first[k] < 0 else float(first[k]),
        "second": None if second[k] < 0 else float(second[k]),
        "weight": float(difference[k]),
        "rank": None if hidden else int((difference.abs() > difference[k].abs()).sum()) + 1,
        "visible": int(visible.sum()),
        "hidden": hidden,
    }


def difference_profile(
    pair: Sequence[Tensor], visible: Tensor, first: int, past: int, bins: int, name: str, words: AxisWords | None
) -> dict[str, Any]:
    """The same of the differences of two rows or columns: bins have signs, the largest are those of the largest size.

    `variation` is ½ Σ |difference|, of a row the share of its weight that lies elsewhere.
    """
    difference, seen = subtracted(*pair)
    relative = difference * visible
    signs = (torch.where(seen, own.clamp(min=0), -1.0)[first:past] for own in (relative, -relative))
    largest, mean = zip(*(binned(own, bins) for own in signs), strict=True)  # above and below 0
    return {
        "max": [None if a is None or b is None else (-b if b > a else a) for a, b in zip(*largest, strict=True)],
        "mean": [None if a is None or b is None else a - b for a, b in zip(*mean, strict=True)],
        "top": [
            {
                name: place,
                "weight": float(difference[place]),
                "first": max(0.0, float(pair[0][place])),
                "second": max(0.0, float(pair[1][place])),
                "token": None if words is None else words.labels[place],
            }
            for place in difference.abs().topk(min(TOP, int(seen.sum()))).indices.tolist()
        ],
        "visible": int(seen.sum()),
        "variation": float(difference.abs().sum()) / 2,
        "sum": float(difference.sum()),
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


def statistics_of_all_rows(layer: LayerView, batch: int, capture: Capture | None) -> dict[str, Any] | None:
    """The table of heads, if it is soon done; None if it is not, or there is none."""
    if capture is None or layer.queries * layer.keys * layer.heads * layer.batch > STATISTICS_PAIRS:
        return None
    table = head_table(capture, layers=[layer.name], which=(*COLUMNS, *MORE), per_batch=True)
    rows = [row for row in table if row["batch"] == batch]
    columns = [name for name in (*COLUMNS, *MORE) if any(_number(row[name]) is not None for row in rows)]
    return {"columns": columns, "rows": [[_number(row[name]) for name in columns] for row in rows], "sampled": None}


def statistics_of_some_rows(layer: LayerView, batch: int, head_views: list[HeadView], stop: Stop) -> dict[str, Any]:
    """The same from a few rows of every head."""
    chosen = list(sampled(0, layer.queries, STATISTICS_ROWS))
    rows = []
    for head_view in head_views:
        stop.check()
        rows.append(_means(head_view, chosen, layer.query_start(batch)))
    return {"columns": list(COLUMNS), "rows": rows, "sampled": len(chosen) if len(chosen) < layer.queries else None}


def _means(head_view: HeadView, chosen: list[int], start: int) -> list[float | None]:
    weights = head_view.lines(chosen)
    seen = (weights >= 0).sum(-1)
    weights = weights.clamp_(min=0)
    place = torch.tensor(chosen, device="cpu", dtype=torch.int64) + start
    entropy = -torch.xlogy(weights, weights).sum(-1).double()
    away = (place.view(-1, 1) - torch.arange(head_view.keys, device="cpu")).abs_().to(weights.dtype)
    before = (place - 1).clamp(0, head_view.keys - 1).view(-1, 1)
    previous = torch.where((place >= 1) & (place <= head_view.keys), weights.gather(1, before)[:, 0], 0.0)
    columns = (
        entropy[seen > 0],
        (entropy / seen.clamp(min=2).log())[seen > 1],
        away.mul_(weights).sum(-1)[seen > 0],
        previous[seen > 0],
        weights[:, 0][seen > 0],
    )
    return [float(part.double().mean()) if len(part) else None for part in columns]


def _number(cell: Any) -> float | None:
    return float(cell) if isinstance(cell, int | float) and math.isfinite(cell) else None
