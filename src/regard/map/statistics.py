"""Statistics of the heads of a sheet: of all rows where that is soon done, else of some."""

import math
from typing import Any

import torch

from regard.inspection.capture import Capture
from regard.inspection.heads import head_table
from regard.map.atlas import Sheet
from regard.map.estimate import sampled
from regard.map.lane import Lane
from regard.map.stop import Stop

PAIRS = 1 << 24  # of all heads that are gone through at once
ROWS = 64  # of each head else
COLUMNS = ("entropy", "relative", "distance", "previous", "first")
MORE = ("diagonal", "duplicate", "induction", "punctuation")


def all_rows(sheet: Sheet, batch: int, capture: Capture | None) -> dict[str, Any] | None:
    """The table of heads, if it is soon done; None if it is not, or there is none."""
    if capture is None or sheet.queries * sheet.keys * sheet.heads * sheet.batch > PAIRS:
        return None
    table = head_table(capture, layers=[sheet.name], which=(*COLUMNS, *MORE), per_batch=True)
    rows = [row for row in table if row["batch"] == batch]
    columns = [name for name in (*COLUMNS, *MORE) if any(_number(row[name]) is not None for row in rows)]
    return {"columns": columns, "rows": [[_number(row[name]) for name in columns] for row in rows], "sampled": None}


def some_rows(sheet: Sheet, batch: int, lanes: list[Lane], stop: Stop) -> dict[str, Any]:
    """The same from a few rows of every head."""
    chosen = list(sampled(0, sheet.queries, ROWS))
    rows = []
    for lane in lanes:
        stop.check()
        rows.append(_means(lane, chosen, sheet.query_start(batch)))
    return {"columns": list(COLUMNS), "rows": rows, "sampled": len(chosen) if len(chosen) < sheet.queries else None}


def _means(lane: Lane, chosen: list[int], start: int) -> list[float | None]:
    weights = lane.lines(chosen)
    seen = (weights >= 0).sum(-1)
    weights = weights.clamp_(min=0)
    place = torch.tensor(chosen, device="cpu", dtype=torch.int64) + start
    entropy = -torch.xlogy(weights, weights).sum(-1).double()
    away = (place.view(-1, 1) - torch.arange(lane.keys, device="cpu")).abs_().to(weights.dtype)
    before = (place - 1).clamp(0, lane.keys - 1).view(-1, 1)
    previous = torch.where((place >= 1) & (place <= lane.keys), weights.gather(1, before)[:, 0], 0.0)
    found = (
        entropy[seen > 0],
        (entropy / seen.clamp(min=2).log())[seen > 1],
        away.mul_(weights).sum(-1)[seen > 0],
        previous[seen > 0],
        weights[:, 0][seen > 0],
    )
    return [float(part.double().mean()) if len(part) else None for part in found]


def _number(cell: Any) -> float | None:
    return float(cell) if isinstance(cell, int | float) and math.isfinite(cell) else None
