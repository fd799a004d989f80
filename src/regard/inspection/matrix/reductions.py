"""Reductions over all pairs, block by block; survey: several of them in as few passes as possible."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.engine.second_pass import PassOutputs, RowStates
from regard.inspection.matrix.source import Computed, Source, WeightBlock
from regard.progress import display, report

HOWS = ("mean", "max", "sum")


def edges(count: int, cells: int) -> Tensor:
    """Where each cell starts, and where the last ends."""
    return torch.arange(cells + 1, device="cpu") * count // cells


def cell_of(numbers: Tensor, count: int, cells: int) -> Tensor:
    """The cell that holds each row (or column)."""
    return ((numbers + 1) * cells - 1) // count


class PooledGrid(NamedTuple):
    """A picture-sized summary of all pairs: sum, largest weight and number of visible pairs of every cell, (map, row,
    column); 0 where there are none. Cell a of n rows in `cells` starts at row a · n // cells."""

    sum: Tensor
    max: Tensor
    pairs: Tensor

    @property
    def mean(self) -> Tensor:
        """Over the visible pairs."""
        return self.sum / self.pairs.clamp(min=1)

    def by(self, how: str) -> Tensor:
        """One of mean, max, sum."""
        tensor: Tensor = getattr(self, how)
        return tensor

    def halved(self) -> "PooledGrid":
        """Two by two cells in one; an odd last row or column stays alone."""
        return PooledGrid(_joined(self.sum, torch.sum), _joined(self.max, torch.amax), _joined(self.pairs, torch.sum))

    def stretched(self, rows: int, columns: int) -> "PooledGrid":
        """With cells repeated, for more cells than there are rows or columns."""
        high, wide = self.sum.shape[-2:]
        if (rows, columns) == (high, wide):
            return self
        down = torch.arange(rows, device="cpu") * high // rows
        right = torch.arange(columns, device="cpu") * wide // columns
        return PooledGrid(*(part[..., down, :][..., right] for part in self))


def _joined(tensor: Tensor, how: Callable[..., Tensor]) -> Tensor:
    """Pairs of neighbors joined, down and across."""
    for _ in range(2):
        if tensor.shape[-1] > 1:
            tensor = torch.nn.functional.pad(tensor, (0, tensor.shape[-1] % 2))
            tensor = how(tensor.unflatten(-1, (-1, 2)), dim=-1)
        tensor = tensor.mT
    return tensor


class Peak(NamedTuple):
    """The largest weight of each row and its key; 0 and −1 where a row sees nothing."""

    value: Tensor
    key: Tensor


class TopK(NamedTuple):
    """The largest weights of each row, largest first, and their keys; 0 and −1 where a row has no more."""

    value: Tensor
    key: Tensor


class Distance(NamedTuple):
    """Σ w·|i − j| of each row, and the standard deviation of |i − j| under its weights."""

    mean: Tensor
    spread: Tensor


class Reduction:
    """Takes the blocks of a source; `result` is (map, …)."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def zeros(self, *size: int, dtype: torch.dtype | None = None) -> Tensor:
        """Zeros of one size for each map."""
        return torch.zeros((self.source.maps, *size), dtype=dtype or self.source.dtype, device=self.source.device)

    def take(self, block: WeightBlock) -> None:
        """Add a rectangle."""
        raise NotImplementedError(f"{type(self).__name__} must define take(block)")


class Received(Reduction):
    """Σ over queries of the weights, (map, key)."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.total = self.zeros(source.keys, dtype=torch.float64)

    def take(self, block: WeightBlock) -> None:
        self.total[:, block.columns] += block.weights.sum(1)

    @property
    def result(self) -> Tensor:
        return self.total.to(self.source.dtype)


class RowSum(Reduction):
    """Σ over keys of the weights, (map, query)."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.result = self.zeros(source.queries)

    def take(self, block: WeightBlock) -> None:
        self.result[:, block.rows] += block.weights.sum(-1)


class Entropy(RowSum):
    """−Σ w·log w, (map, query)."""

    def take(self, block: WeightBlock) -> None:
        self.result[:, block.rows] -= torch.special.xlogy(block.weights, block.weights).sum(-1)


class LargestWeights(Reduction):
    """`count` largest weights of each row and their keys."""

    def __init__(self, source: Source, count: int) -> None:
        super().__init__(source)
        self.count = count
        self.value = self.zeros(source.queries, count)
        self.key = self.zeros(source.queries, count, dtype=torch.int64) - 1

    def take(self, block: WeightBlock) -> None:
        width = block.columns.stop - block.columns.start
        seen = block.weights if block.visible is None else torch.where(block.visible, block.weights, -1.0)
        value, key = seen.topk(min(self.count, width), -1)
        earlier = torch.where(self.key[:, block.rows] < 0, -1.0, self.value[:, block.rows])
        value, key = (
            torch.cat([earlier, value], -1),
            torch.cat([self.key[:, block.rows], key + block.columns.start], -1),
        )
        order = key.argsort(-1)  # of equal weights the first key
        value, key = value.gather(-1, order), key.gather(-1, order)
        best = value.sort(dim=-1, descending=True, stable=True).indices[..., : self.count]
        value, key = value.gather(-1, best), key.gather(-1, best)
        self.value[:, block.rows] = value.clamp(min=0.0)
        self.key[:, block.rows] = torch.where(value < 0, -1, key)

    @property
    def result(self) -> TopK:
        return TopK(self.value, self.key)


class DistanceMoments(Reduction):
    """Mean and spread of |i − j|; parts of a row are merged by their means, to avoid cancellation."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.weight, self.mean, self.square = (self.zeros(source.queries, dtype=torch.float64) for _ in range(3))

    def take(self, block: WeightBlock) -> None:
        weights, away = block.weights.double(), block.away.double()
        weight = weights.sum(-1)
        mean = (weights * away).sum(-1) / torch.where(weight == 0, 1.0, weight)
        square = (weights * (away - mean.unsqueeze(-1)).square()).sum(-1)
        old, rows = self.weight[:, block.rows].clone(), block.rows
        both = old + weight
        share = weight / torch.where(both == 0, 1.0, both)
        apart = mean - self.mean[:, rows]
        self.square[:, rows] += square + apart.square() * old * share
        self.mean[:, rows] += apart * share
        self.weight[:, rows] = both

    @property
    def result(self) -> Distance:
        spread = (self.square / torch.where(self.weight == 0, 1.0, self.weight)).sqrt()
        return Distance((self.mean * self.weight).to(self.source.dtype), spread.to(self.source.dtype))


class Pooling(Reduction):
    """A PooledGrid of all pairs."""

    def __init__(self, source: Source, rows: int, columns: int) -> None:
        super().__init__(source)
        self.rows, self.columns = min(rows, source.queries), min(columns, source.keys)
        size = (self.rows, self.columns)
        self.sum, self.max = (self.zeros(*size, dtype=torch.float64) for _ in range(2))
        self.pairs = self.zeros(*size, dtype=torch.int64)

    def take(self, block: WeightBlock) -> None:
        device = block.weights.device
        down = cell_of(torch.arange(block.rows.start, block.rows.stop, device=device), self.source.queries, self.rows)
        right = cell_of(
            torch.arange(block.columns.start, block.columns.stop, device=device), self.source.keys, self.columns
        )
        top, left = int(down[0]), int(right[0])
        down, right = down - top, right - left
        size = (self.source.maps, int(down[-1]) + 1, int(right[-1]) + 1)
        place = (slice(None), slice(top, top + size[1]), slice(left, left + size[2]))
        index = (down.view(-1, 1) * size[2] + right).reshape(-1)
        weights = block.weights.double().flatten(1)
        seen = torch.ones_like(block.weights) if block.visible is None else block.visible.expand_as(block.weights)
        flat = torch.zeros((size[0], size[1] * size[2]), dtype=torch.float64, device=device)
        self.sum[place] += flat.index_add(1, index, weights).view(size)
        largest = flat.scatter_reduce(1, index.expand_as(weights), weights, "amax").view(size)
        self.max[place] = torch.maximum(self.max[place], largest)
        self.pairs[place] += flat.long().index_add(1, index, seen.flatten(1).long()).view(size)

    @property
    def result(self) -> PooledGrid:
        return PooledGrid(self.sum, self.max, self.pairs)


class Gram(Reduction):
    """Σ over pairs of w·w′ for any two maps, (map, map); centered, each row less its mean."""

    def __init__(self, source: Source, centered: bool, alike: bool) -> None:
        """`alike`: only maps of one batch row are compared."""
        super().__init__(source)
        self.width = source.heads if alike else source.maps
        self.result = self.zeros(self.width, dtype=torch.float64)
        self.counts = row_counts(source) if centered else None

    def take(self, block: WeightBlock) -> None:
        weights = block.weights.double()
        if self.counts is not None:
            sums, counts = (part[:, block.rows] for part in self.counts)
            mean = (sums / counts.clamp(min=1)).double().unsqueeze(-1)
            weights = weights - (mean if block.visible is None else torch.where(block.visible, mean, 0.0))
        flat = weights.flatten(1).unflatten(0, (-1, self.width))
        self.result += (flat @ flat.mT).flatten(0, 1)


def row_counts(source: Source) -> tuple[Tensor, Tensor]:
    """The sum of weights and the number of visible keys of each row."""
    sums = RowSum(source)
    counts = sums.zeros(source.queries, dtype=torch.int64)
    for block in source.blocks():
        sums.take(block)
        if block.visible is None:
            counts[:, block.rows] += block.columns.stop - block.columns.start
        else:
            counts[:, block.rows] += block.visible.expand_as(block.weights).sum(-1)
    return sums.result, counts


class ReductionCall(NamedTuple):
    """The name of a reduction and its arguments: the key of its cached result."""

    name: str
    arguments: tuple[Any, ...] = ()


_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "received": Received,
    "rowsum": RowSum,
    "entropy": Entropy,
    "peak": partial(LargestWeights, count=1),
    "topk": LargestWeights,
    "distance": DistanceMoments,
    "pool": Pooling,
    "gram": Gram,
}


def survey(source: Source, calls: Iterable[ReductionCall]) -> dict[ReductionCall, Any]:
    """The results of all calls, (map, …) each."""
    left, results = list(dict.fromkeys(calls)), dict[ReductionCall, Any]()
    with torch.no_grad(), display():
        if isinstance(source, Computed):
            if any(call.name in ("entropy", "peak", "distance") for call in left):
                results |= _from_row_statistics(source, left)
            left = [call for call in left if call not in results]
            results |= _from_second_pass(source, left)
            left = [call for call in left if call not in results]
        reductions = {call: _REDUCTIONS[call.name](source, *call.arguments) for call in left}
        for block in source.blocks() if reductions else ():
            for reduction in reductions.values():
                reduction.take(block)
            report("reading the weights", block.rows.stop, source.queries, "rows")
        for call, reduction in reductions.items():
            result = reduction.result
            results[call] = Peak(result.value[..., 0], result.key[..., 0]) if call.name == "peak" else result
    return results


def _from_row_statistics(source: Computed, calls: list[ReductionCall]) -> dict[ReductionCall, Any]:
    """The results that row statistics of the engine give, all in one pass."""
    names = {call.name for call in calls}
    needed = {"entropy"} & names
    if "peak" in names:
        needed |= {"peak", "peak_at"}
    if "distance" in names and source.softmax:
        needed |= {"distance", "peak_at"}
    if not needed:
        return {}
    statistics = source.known(tuple(sorted(needed))).statistics
    results: dict[ReductionCall, Any] = {}
    if "entropy" in names:
        results[ReductionCall("entropy")] = statistics["entropy"].flatten(0, 1)
    if "peak" in names:
        results[ReductionCall("peak")] = Peak(statistics["peak"].flatten(0, 1), statistics["peak_at"].flatten(0, 1))
    return results


def _from_second_pass(source: Computed, calls: list[ReductionCall]) -> dict[ReductionCall, Any]:
    """The results that the second pass of the native engine gives; none if it does not support the call."""
    names = {call.name for call in calls}
    if not names & {"received", "distance", "pool"} or source.queries == 0 or source.keys == 0:
        return {}
    rows = source.known(("distance", "peak_at") if "distance" in names and source.softmax else ())
    if rows.kernel is None:
        return {}
    results: dict[ReductionCall, Any] = {}
    mean = rows.statistics.get("distance")
    center = None if mean is None else _center(source, rows)
    grids: list[ReductionCall | None] = [call for call in calls if call.name == "pool"]
    for number, grid in enumerate(grids or [None]):
        first = number == 0
        size = None if grid is None else (min(grid.arguments[0], source.queries), min(grid.arguments[1], source.keys))
        outputs = PassOutputs(first and "received" in names, first and "distance" in names, size)
        sums = rows.kernel.run(outputs, center)
        if outputs.received:
            results[ReductionCall("received")] = sums["received"].flatten(0, 1)
        if outputs.spread:
            assert mean is not None
            assert center is not None
            total = torch.where(sums["rowsum"] == 0, 1.0, sums["rowsum"])
            variance = sums["spread"] / total - (mean / total - center).square()
            spread = torch.where(sums["rowsum"] == 0, 0.0, variance.clamp(min=0.0).sqrt())
            results[ReductionCall("distance")] = Distance(mean.flatten(0, 1), spread.flatten(0, 1))
        if grid is not None:
            results[grid] = PooledGrid(*(sums[name].flatten(0, 1) for name in ("sum", "max", "pairs")))
    return results


def _center(source: Computed, rows: RowStates) -> Tensor:
    """A distance near the mean of each row: the mean itself; with a sink, which may hold most weight, the peak's."""
    mean, plane = rows.statistics["distance"], source.request.plane
    if source.request.sink is None:
        return mean
    positions = torch.arange(plane.queries, device="cpu") + plane.starts.view(-1, 1, 1)
    return (positions - plane.key_start - rows.statistics["peak_at"]).abs().to(mean.dtype)
