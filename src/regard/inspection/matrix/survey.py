"""Survey: several reductions in as few passes over the pairs as possible."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.engine.second_pass import PassOutputs, RowStates
from regard.inspection.matrix.reductions import (
    Distance,
    DistanceMoments,
    Entropy,
    Gram,
    LargestWeights,
    Peak,
    PooledGrid,
    Pooling,
    Received,
    Reduction,
    RowSum,
)
from regard.inspection.matrix.source import Computed, Source
from regard.progress import display, report


class ReductionCall(NamedTuple):
    """The name of a reduction and its arguments: the key of its cached result."""

    name: str
    arguments: tuple[Any, ...] = ()


def survey(source: Source, calls: Iterable[ReductionCall]) -> dict[ReductionCall, Any]:
    """The results of all calls, (map, …) each."""
    left, results = list(dict.fromkeys(calls)), dict[ReductionCall, Any]()
    with torch.no_grad(), display():
        if isinstance(source, Computed):
            results |= _from_row_statistics(source, left)
            left = [call for call in left if call not in results]
            results |= _from_second_pass(source, left)
            left = [call for call in left if call not in results]
        reductions = {call: _reduction(source, call) for call in left}
        for block in source.blocks() if reductions else ():
            for reduction in reductions.values():
                reduction.take(block)
            report("reading the weights", block.rows.stop, source.queries, "rows")
        for call, reduction in reductions.items():
            results[call] = _finished(call, reduction)
    return results


def _reduction(source: Source, call: ReductionCall) -> Reduction:
    match call.name:
        case "received":
            return Received(source)
        case "rowsum":
            return RowSum(source)
        case "entropy":
            return Entropy(source)
        case "peak":
            return LargestWeights(source, 1)
        case "topk":
            return LargestWeights(source, *call.arguments)
        case "distance":
            return DistanceMoments(source)
        case "pool":
            return Pooling(source, *call.arguments)
        case "gram":
            return Gram(source, *call.arguments)
    raise AssertionError(call)


def _finished(call: ReductionCall, reduction: Any) -> Any:
    result = reduction.result
    return Peak(result.value[..., 0], result.key[..., 0]) if call.name == "peak" else result


def _from_row_statistics(source: Computed, calls: list[ReductionCall]) -> dict[ReductionCall, Any]:
    """The results that row statistics of the engine give, all in one pass."""
    names = {call.name for call in calls}
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
    results: dict[ReductionCall, Any] = {}
    if "entropy" in names:
        results[ReductionCall("entropy")] = statistics["entropy"].flatten(0, 1)
    if "peak" in names:
        results[ReductionCall("peak")] = Peak(statistics["peak"].flatten(0, 1), statistics["peak_at"].flatten(0, 1))
    return results


def _from_second_pass(source: Computed, calls: list[ReductionCall]) -> dict[ReductionCall, Any]:
    """The results that the second pass of the native engine gives; none if it does not support the call."""
    names = {call.name for call in calls}
    grids = [call for call in calls if call.name == "pool"]
    if not names & {"received", "distance", "pool"} or source.queries == 0 or source.keys == 0:
        return {}
    rows = source.known(("distance", "peak_at") if "distance" in names and source.softmax else ())
    if rows.kernel is None:
        return {}
    results: dict[ReductionCall, Any] = {}
    mean = rows.statistics.get("distance")
    centre = None if mean is None else _centre(source, rows)
    passes: list[ReductionCall | None] = [*grids] if grids else [None]
    for number, grid in enumerate(passes):
        first = number == 0
        size = None if grid is None else (min(grid.arguments[0], source.queries), min(grid.arguments[1], source.keys))
        wanted = PassOutputs(first and "received" in names, first and "distance" in names, size)
        given = rows.kernel.run(wanted, centre)
        if wanted.received:
            results[ReductionCall("received")] = given["received"].flatten(0, 1)
        if wanted.spread:
            assert mean is not None
            assert centre is not None
            total = torch.where(given["rowsum"] == 0, 1.0, given["rowsum"])
            variance = given["spread"] / total - (mean / total - centre).square()
            spread = torch.where(given["rowsum"] == 0, 0.0, variance.clamp(min=0.0).sqrt())
            results[ReductionCall("distance")] = Distance(mean.flatten(0, 1), spread.flatten(0, 1))
        if grid is not None:
            results[grid] = PooledGrid(*(given[name].flatten(0, 1) for name in ("sum", "max", "pairs")))
    return results


def _centre(source: Computed, rows: RowStates) -> Tensor:
    """A distance near the mean of each row: the mean itself; with a sink, which may hold most weight, the peak's."""
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
