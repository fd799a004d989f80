"""The heads of a model by their statistics: along the layers, and as maps of layer × head. The numbers come from the
table that `capture.heads()` gives, one row for each head."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from regard.inspection.records import Cell, Estimate, Grid, Line, Lines, Panel, Table

PROFILED = ("entropy", "distance")
_NAMES = ("layer", "head", "batch")
_UNITS = {"entropy": "entropy, nats", "distance": "distance, tokens"}


@dataclass(frozen=True)
class Profile:
    """One statistic: (layer, head, value) of each head that has it, and (layer, mean over its heads)."""

    statistic: str
    heads: Sequence[tuple[int, int, float]]
    means: Sequence[tuple[int, float]]

    @property
    def label(self) -> str:
        """Its name with its unit."""
        return _UNITS.get(self.statistic, self.statistic)

    def lines(self, title: str = "") -> Lines:
        """The means as a curve, the smallest and the largest head as its interval."""
        spread = [[value for layer, _, value in self.heads if layer == at] for at, _ in self.means]
        curve = Line(
            f"mean of heads, {self.statistic}",
            [layer for layer, _ in self.means],
            [mean for _, mean in self.means],
            [min(values) for values in spread],
            [max(values) for values in spread],
        )
        return Lines([curve], "layer", self.label, title)


def statistics_of(table: Table) -> list[str]:
    """The columns that are statistics: numbers, but not those that name a row or another head."""
    found = []
    for place, name in enumerate(table.columns):
        cells = [row[place] for row in table.rows]
        if name not in _NAMES and any(isinstance(cell, float | Estimate) for cell in cells):
            found.append(name)
    return found


def values_of(table: Table, statistic: str) -> list[tuple[int, int, float]]:
    """(layer, head, value) in the order of layers; several rows of one head, as of a batch, are averaged."""
    layer, head, place = (list(table.columns).index(name) for name in ("layer", "head", statistic))
    found: dict[tuple[int, int], list[float]] = {}
    for row in table.rows:
        value = _number(row[place])
        if math.isfinite(value):
            found.setdefault((_whole(row[layer]), _whole(row[head])), []).append(value)
    return [(*at, fmean(values)) for at, values in sorted(found.items())]


def profiles(table: Table, statistics: Sequence[str] = PROFILED) -> list[Profile]:
    """The statistics along the layers; those that the table lacks, or no head has, are left out."""
    _checked(table)
    made = []
    for statistic in statistics:
        heads = values_of(table, statistic) if statistic in table.columns else []
        layers = sorted({layer for layer, _, _ in heads})
        if layers:
            means = [(at, fmean(value for layer, _, value in heads if layer == at)) for at in layers]
            made.append(Profile(statistic, heads, means))
    if not made:
        raise ValueError(f"the table of heads has none of {', '.join(statistics)}; it has {', '.join(table.columns)}")
    return made


def maps(table: Table, title: str = "") -> Panel:
    """Every statistic as a Grid: rows are layers, columns heads, None where there is no such head or number."""
    _checked(table)
    layers, heads = (
        sorted({_whole(row[list(table.columns).index(name)]) for row in table.rows}) for name in ("layer", "head")
    )
    grids = []
    for statistic in statistics_of(table):
        found = {(layer, head): value for layer, head, value in values_of(table, statistic)}
        values = [[found.get((layer, head)) for head in heads] for layer in layers]
        if found:
            grids.append(Grid(values, [str(n) for n in layers], [str(n) for n in heads], statistic))
    return Panel(grids, title)


def _checked(table: Table) -> None:
    missing = [name for name in ("layer", "head") if name not in table.columns]
    if missing or not table.rows:
        raise ValueError(
            f"pictures of heads need a table with a row for each head and the columns layer and head, as c.heads() "
            f"gives; got {len(table.rows)} rows of {', '.join(table.columns)}"
        )


def _number(cell: Cell) -> float:
    if isinstance(cell, Estimate):
        return cell.mean
    return float(cell) if isinstance(cell, int | float) else math.nan


def _whole(cell: Cell) -> int:
    return int(_number(cell))
