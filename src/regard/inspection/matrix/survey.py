"""Survey: several reductions in as few passes over the pairs as possible."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.engine.known import Known, Wanted
from regard.inspection.matrix.grid import Grid
from regard.inspection.matrix.reductions import (
    Distance,
    Entropy,
    Gram,
    Largest,
    Peak,
    Pool,
    Reach,
    Received,
    Reduction,
    RowSum,
)
from regard.inspection.matrix.source import Computed, Source
from regard.progress import display, report


class Ask(NamedTuple):
    """One reduction and its arguments; what it found is kept under this."""

    name: str
    arguments: tuple[Any, ...] = ()


def surveyed(source: Source, asks: Iterable[Ask]) -> dict[Ask, Any]:
    """All that is asked for, (lane, …) each."""
    left, found = list(dict.fromkeys(asks)), dict[Ask, Any]()
    with torch.no_grad(), display():
        if isinstance(source, Computed):
            found |= _from_rows(source, left)
            left = [ask for ask in left if ask not in found]
            found |= _from_second(source, left)
            left = [ask for ask in left if ask not in found]
        reductions = {ask: _reduction(source, ask) for ask in left}
        for block in source.blocks() if reductions else ():
            for reduction in reductions.values():
                reduction.take(block)
            report("reading the weights", block.rows.stop, source.queries, "rows")
        for ask, reduction in reductions.items():
            found[ask] = _finished(ask, reduction)
    return found


def _reduction(source: Source, ask: Ask) -> Reduction:
    match ask.name:
        case "received":
            return Received(source)
        case "rowsum":
            return RowSum(source)
        case "entropy":
            return Entropy(source)
        case "peak":
            return Largest(source, 1)
        case "topk":
            return Largest(source, *ask.arguments)
        case "distance":
            return Reach(source)
        case "pool":
            return Pool(source, *ask.arguments)
        case "gram":
            return Gram(source, *ask.arguments)
    raise AssertionError(ask)


def _finished(ask: Ask, reduction: Any) -> Any:
    result = reduction.result
    return Peak(result.value[..., 0], result.key[..., 0]) if ask.name == "peak" else result


def _from_rows(source: Computed, asks: list[Ask]) -> dict[Ask, Any]:
    """What one pass of the engine gives: it is done at once for all of them, and for the second pass."""
    names = {ask.name for ask in asks}
    wanted = set[str]()
    if "entropy" in names:
        wanted.add("entropy")
    if "peak" in names:
        wanted |= {"peak", "peak_at"}
    if "distance" in names and source.softmax:
        wanted |= {"distance", "peak_at"}
    if not wanted:
        return {}
    statistics = source.known(tuple(sorted(wanted))).statistics
    found: dict[Ask, Any] = {}
    if "entropy" in names:
        found[Ask("entropy")] = statistics["entropy"].flatten(0, 1)
    if "peak" in names:
        found[Ask("peak")] = Peak(statistics["peak"].flatten(0, 1), statistics["peak_at"].flatten(0, 1))
    return found


def _from_second(source: Computed, asks: list[Ask]) -> dict[Ask, Any]:
    """What the native engine's second pass gives; nothing if it cannot."""
    names = {ask.name for ask in asks}
    grids = [ask for ask in asks if ask.name == "pool"]
    if not names & {"received", "distance", "pool"} or source.queries == 0 or source.keys == 0:
        return {}
    rows = source.known(("distance", "peak_at") if "distance" in names and source.softmax else ())
    if rows.kernel is None:
        return {}
    found: dict[Ask, Any] = {}
    mean = rows.statistics.get("distance")
    centre = None if mean is None else _centre(source, rows)
    passes: list[Ask | None] = [*grids] if grids else [None]
    for number, grid in enumerate(passes):
        first = number == 0
        size = None if grid is None else (min(grid.arguments[0], source.queries), min(grid.arguments[1], source.keys))
        wanted = Wanted(first and "received" in names, first and "distance" in names, size)
        given = rows.kernel.run(wanted, centre)
        if wanted.received:
            found[Ask("received")] = given["received"].flatten(0, 1)
        if wanted.spread:
            assert mean is not None
            assert centre is not None
            total = torch.where(given["rowsum"] == 0, 1.0, given["rowsum"])
            variance = given["spread"] / total - (mean / total - centre).square()
            spread = torch.where(given["rowsum"] == 0, 0.0, variance.clamp(min=0.0).sqrt())
            found[Ask("distance")] = Distance(mean.flatten(0, 1), spread.flatten(0, 1))
        if grid is not None:
            found[grid] = Grid(*(given[name].flatten(0, 1) for name in ("sum", "max", "pairs")))
    return found


def _centre(source: Computed, rows: Known) -> Tensor:
    """A distance near the mean of each row: the mean itself, or where a sink has most of the weight, the peak's."""
    mean, plane = rows.statistics["distance"], source.request.plane
    if source.request.sink is None:
        return mean
    away = (
        torch.arange(plane.queries, device="cpu")
        + plane.starts.view(-1, 1, 1)
        - plane.key_start
        - rows.statistics["peak_at"]
    ).abs()
    return away.to(mean.dtype)
