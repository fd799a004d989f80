"""Statistics of the heads of a layer, (batch, head) each: entropy, shares of kinds of keys, and similarities."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.cached import cached_property
from regard.engine.request import Request
from regard.engine.second_pass import SecondPass
from regard.inspection.heads.visibility import WIDE, MarkedPairs, Visibility, headed, visible
from regard.inspection.matrix.gradients import mass, stored_mass
from regard.inspection.matrix.reductions import ReductionCall, survey
from regard.inspection.matrix.source import Computed, Stored
from regard.progress import report
from regard.spec.masks import Full, Mask
from regard.spec.masks.count import hull
from regard.spec.normalizers import Softmax


@dataclass(frozen=True, eq=False)
class HeadLayer:
    """A captured layer, and what its queries can see. `request` has the axes and the visible pairs of its weights.
    `within`: queries and keys are of one text. `heads` are the numbers of its heads in the model, `shown` those that
    the table shows."""

    number: int
    name: str
    source: Computed | Stored
    request: Request
    visibility: Visibility
    within: bool
    heads: tuple[int, ...]
    shown: tuple[int, ...]

    @cached_property
    def sink(self) -> Tensor | None:
        """The share of the learned sink, (batch, head, query)."""
        request = self.request
        if isinstance(self.source, Stored) or not isinstance(request.normalizer, Softmax) or request.sink is None:
            return None
        known = self.source.known()
        logit = request.sink.double().expand(request.plane.kv_heads, request.plane.group, 1).flatten(0, 1)
        return (logit - (known.state.double() + known.rest.double())).exp().cpu()

    @cached_property
    def mean(self) -> Tensor:
        """The mean weight of each query over its visible keys, (batch, head, query)."""
        keys, plane = self.visibility.keys, self.request.plane
        total = torch.ones((plane.batch, plane.heads, plane.queries), dtype=torch.float64, device="cpu")
        if self.sink is not None:
            total = self.share(Full())
        return torch.where(keys > 0, total / keys.clamp(min=1), 0.0)

    @cached_property
    def row_statistics(self) -> dict[str, Tensor]:
        """Entropy, and within a text the distance, of every row: (batch, head, query) each."""
        names = ("entropy", "distance") if self.within else ("entropy",)
        if isinstance(self.source, Computed):
            return {name: each.double().cpu() for name, each in self.source.known(names).statistics.items()}
        found = survey(self.source, [ReductionCall(name) for name in names])
        rows = {name: found[ReductionCall(name)] for name in names}
        maps = {name: each if isinstance(each, Tensor) else each.mean for name, each in rows.items()}
        return {name: each.unflatten(0, (-1, self.source.heads)).double().cpu() for name, each in maps.items()}

    @property
    def kernel(self) -> SecondPass | None:
        """The engine's own comparison of heads; None if it has none for this layer."""
        if isinstance(self.source, Stored) or not self.source.softmax:
            return None
        kernel = self.source.known().kernel
        return kernel if kernel is not None and kernel.compares_heads() else None

    def share(self, mask: Mask) -> Tensor:
        """The share of each row's weight on a mask, (batch, head, query)."""
        of_maps = stored_mass(self.source, mask) if isinstance(self.source, Stored) else mass(self.source, mask)
        share: Tensor = of_maps.unflatten(0, (-1, self.source.heads)).double().cpu()
        return share

    def noise(self, rows: slice) -> Tensor:
        """Rounding error of products in these rows, where uniform heads should be 0 once centered: (batch, head)."""
        even = self.mean[..., rows].square() * self.visibility.keys[..., rows]
        return (64 * torch.finfo(self.source.dtype).eps) ** 2 * even.sum(-1)


def head_statistics(layer: HeadLayer, wanted: Collection[str], centered: bool) -> dict[str, Tensor]:
    """The wanted statistics that this layer has, (batch, head) each; NaN where no query counts."""
    source, visibility = layer.source, layer.visibility
    if not bool(visibility.counted.any()):
        return {}
    rows = layer.row_statistics
    entropy = rows["entropy"]
    result = {"entropy": _mean(entropy, visibility.counted)}
    result["relative"] = _mean(entropy / visibility.keys.clamp(min=2).double().log(), visibility.keys > 1)
    if layer.within:
        result["distance"] = _mean(rows["distance"], visibility.counted)
    if (sink := layer.sink) is not None:
        result["sink"] = _mean(sink, visibility.counted)
    pairs = (
        HeadProducts(layer.request, visibility.counted, layer.mean if centered else None)
        if "similarity" in wanted
        else None
    )
    kinds = {name: mask for name, mask in visibility.kinds.items() if name in wanted}
    if pairs is None and not any(name in WIDE for name in kinds):  # no pass over the weights for a few of them
        shares = {name: layer.share(mask) for name, mask in kinds.items()}
    else:
        shares = _read(layer, kinds, pairs)
    for name, share in shares.items():
        result[name] = _mean(share, visibility.sees[name])
    if pairs is not None:
        alone = visibility.counted.any(1).any(-1, keepdim=True)
        noise = layer.noise(slice(None)) if centered else None
        similarity = cosines(pairs.result, noise)
        others = similarity.sum(-1) - similarity.diagonal(dim1=-2, dim2=-1)
        heads = source.heads
        mean = others / (heads - 1) if heads > 1 else torch.ones_like(others)  # 1 for a single head
        result["similarity"] = torch.where(alone, mean, torch.nan)
    return {name: result[name] for name in wanted if name in result}


def _read(layer: HeadLayer, kinds: dict[str, Mask], pairs: "HeadProducts | None") -> dict[str, Tensor]:
    """The shares of the kinds, and the products of heads, in one pass over the weights."""
    source, visibility = layer.source, layer.visibility
    if (kernel := layer.kernel) is not None and (pairs is None or pairs.mean is None):
        numbers = [visibility.numbers[name] for name in kinds]
        of_kinds, of_heads = kernel.head_sums(numbers, visibility.counted, pairs is not None)
        if pairs is not None:
            pairs.result += of_heads
        return dict(zip(kinds, of_kinds, strict=True))
    shares = KindShares(layer.request, kinds, visibility.marked)
    if isinstance(source, Computed) and source.softmax:
        for rows, columns, weights in source.passing_blocks():
            visible = None
            if pairs is not None and pairs.mean is not None:
                visible = weights >= 0.0
            shares.take(rows, columns, weights.clamp_(min=0.0))
            if pairs is not None:
                pairs.take(rows, weights, visible)
            report("reading the weights", rows.stop, source.queries, "rows")
    else:
        for block in source.blocks():
            shares.take(block.rows, block.columns, block.weights)
            if pairs is not None:
                pairs.take(block.rows, block.weights, block.visible)
            report("reading the weights", block.rows.stop, source.queries, "rows")
    return shares.result


def _mean(values: Tensor, over: Tensor) -> Tensor:
    """Over the queries that count, (batch, head); NaN where there is none."""
    over = over.expand(values.shape)
    return torch.where(over, values, 0.0).sum(-1) / over.sum(-1)


class KindShares:
    """The weight of each query on the keys of some kinds, (batch, head, query) for each name.

    `marked` keeps the pairs of each rectangle, for the other layers that have the same kinds.
    """

    def __init__(
        self, request: Request, kinds: dict[str, Mask], marked: dict[tuple[int, ...], dict[str, MarkedPairs | None]]
    ) -> None:
        self.request, self.kinds, self.marked = request, kinds, marked
        plane = request.plane
        size = (plane.batch, plane.heads, plane.queries)
        self.result = {name: torch.zeros(size, dtype=torch.float64, device="cpu") for name in kinds}

    def take(self, rows: slice, columns: slice, weights: Tensor) -> None:
        """Add a rectangle, (map, row, column)."""
        place = (rows.start, rows.stop, columns.start, columns.stop)
        if place not in self.marked:
            self.marked[place] = {}
        known = self.marked[place]
        dense: dict[str, Tensor] = {}
        for name, mask in self.kinds.items():
            if name not in known:
                known[name] = self._listed(mask, rows, columns)
            pairs = known[name]
            if pairs is not None:
                if (sums := pairs.sums(weights)) is not None:
                    self.result[name].flatten(0, 1)[:, rows] += sums.cpu()
            else:
                dense[name] = mask.visible(self.request.plane.pairs(rows, columns))
        self._take_dense(rows, weights, dense)

    def _listed(self, mask: Mask, rows: slice, columns: slice) -> MarkedPairs | None:
        mark = headed(mask.visible(self.request.plane.pairs(rows, columns)), self.request)
        if mark.shape[:2] != (1, 1):  # batch rows, or heads, have pairs of their own
            return None
        size = (rows.stop - rows.start, columns.stop - columns.start)
        return MarkedPairs.of(mark[0, 0].expand(size))

    def _take_dense(self, rows: slice, weights: Tensor, marks: dict[str, Tensor]) -> None:
        plane = self.request.plane
        there = {name: headed(mark, self.request) for name, mark in marks.items() if bool(mark.any())}
        if not there:
            return
        batch = max(mark.shape[0] for mark in there.values())
        size = (batch, 1, *weights.shape[1:])
        marked = torch.cat([mark.expand(size).to(weights.dtype) for mark in there.values()], 1)
        by_head = weights.unflatten(0, (plane.batch, plane.heads))
        sums = by_head.transpose(1, 2) @ marked.permute(0, 2, 3, 1)  # (batch, row, head, kind)
        for name, total in zip(there, sums.permute(3, 0, 2, 1).double().cpu(), strict=True):
            self.result[name][..., rows] += total


class HeadProducts:
    """Σ over the pairs of queries that count of w·w′, (batch, head, head); centered, each row less its mean."""

    def __init__(self, request: Request, counted: Tensor, mean: Tensor | None) -> None:
        """`counted`: (batch, 1 or head, query). `mean` of each row over its visible keys, (batch, head, query)."""
        plane = request.plane
        self.heads, self.mean = plane.heads, mean
        self.counted = None if bool(counted.all()) else counted
        self.result = torch.zeros((plane.batch, plane.heads, plane.heads), dtype=torch.float64, device="cpu")

    def take(self, rows: slice, block: Tensor, visible: Tensor | None) -> None:
        """Add a rectangle, (map, row, column)."""
        weights = block.unflatten(0, (-1, self.heads))
        if self.mean is not None:
            seen = None if visible is None else visible.expand(block.shape).unflatten(0, (-1, self.heads))
            weights = centered_weights(weights, seen, self.mean[..., rows])
        if self.counted is not None:
            weights = weights * self.counted[..., rows].to(weights).unsqueeze(-1)
        self.result += products(weights)


def centered_weights(weights: Tensor, visible: Tensor | None, mean: Tensor) -> Tensor:
    """The weights, (batch, head, row, key), less the mean of their row where they are visible."""
    even = mean.to(weights).unsqueeze(-1)
    return weights - (even if visible is None else torch.where(visible, even, 0.0))


def products(weights: Tensor) -> Tensor:
    """Σ w·w′ of any two heads of (batch, head, row, key), (batch, head, head)."""
    flat, heads = weights.flatten(2), weights.shape[1]
    if heads > FEW_HEADS:
        return _symmetric(flat).double().cpu()
    result = torch.zeros((len(flat), heads, heads), dtype=torch.float64, device="cpu")
    for head in range(heads):  # few heads: products of matrices and vectors, of each pair once
        row = (flat[:, : head + 1] @ flat[:, head].unsqueeze(-1)).squeeze(-1).double().cpu()
        result[:, head, : head + 1] = result[:, : head + 1, head] = row
    return result


def _symmetric(flat: Tensor) -> Tensor:
    """flat · flatᵀ of (batch, head, pair), the part below the diagonal blocks from that above them."""
    heads = flat.shape[1]
    step = -(-heads // -(-heads // HEADS_TOGETHER))
    result = flat.new_zeros((len(flat), heads, heads))
    for first in range(0, heads, step):
        own = slice(first, min(heads, first + step))
        result[:, own, own.start :] = flat[:, own] @ flat[:, own.start :].mT
        result[:, own.stop :, own] = result[:, own, own.stop :].mT
    return result


def cosines(gram: Tensor, noise: Tensor | None = None) -> Tensor:
    """From products of any two, (…, head, head); 0 where one of them is no larger than its `noise`, (…, head)."""
    square = gram.diagonal(dim1=-2, dim2=-1)
    size = torch.where(square > (0.0 if noise is None else noise), square, 0.0).sqrt()
    both = size.unsqueeze(-1) * size.unsqueeze(-2)
    cosine = torch.where(both > 0, gram / torch.where(both > 0, both, 1.0), 0.0).clamp(-1.0, 1.0)
    return torch.where(gram.isnan(), torch.nan, cosine)


FEW_HEADS, HEADS_TOGETHER = 16, 64  # that are compared pair by pair, and in one product
NEAREST = ("nearest_layer", "nearest_head", "nearest_similarity")
EXACT = 512  # more queries than this are sampled:
SAMPLE, RUN = 512, 8  # so many of them, so many in a row
CELLS = 1 << 24  # weights that are held together
ROWS, WIDTH = 128, 256  # rows that the engine computes together, and the least columns


def nearest(layers: Sequence[HeadLayer], centered: bool, per_batch: bool) -> dict[int, dict[str, Tensor]]:
    """The most similar other head of each head, by the number of the layer: the columns `NEAREST`, (batch or 1, head)
    each, NaN if there is none. Only layers of equal size are compared."""
    by_layer: dict[int, dict[str, Tensor]] = {}
    groups: dict[tuple[int, ...], list[HeadLayer]] = {}
    for layer in layers:
        plane = layer.request.plane
        groups.setdefault((plane.batch, plane.queries, plane.keys), []).append(layer)
    for group in groups.values():
        similarity = _similarities(group, centered)
        counts = torch.stack([layer.visibility.counted.any(1).any(-1) for layer in group]).all(0)
        similarity = torch.where(counts.view(-1, 1, 1), similarity, torch.nan)
        similarity = similarity if per_batch else similarity.nanmean(0, keepdim=True)
        by_layer |= _split(group, similarity)
    return by_layer


def sampled(queries: int) -> Iterator[slice]:
    """The rows that are compared: all if they are few, else short runs at even distances, ends included."""
    if queries <= EXACT:
        yield slice(0, queries)
        return
    count = SAMPLE // RUN
    for number in range(count):
        first = number * (queries - RUN) // (count - 1)
        yield slice(first, first + RUN)


def _similarities(group: Sequence[HeadLayer], centered: bool) -> Tensor:
    """The cosine over the sampled rows of any two heads of the layers, (batch, head, head)."""
    plane = group[0].request.plane
    heads = sum(layer.source.heads for layer in group)
    kernels = [] if centered else [kernel for layer in group if (kernel := layer.kernel) is not None]
    if len(kernels) == len(group):
        return cosines(_kernel_products(group, kernels, heads))
    total = torch.zeros((plane.batch, heads, heads), dtype=torch.float64, device="cpu")
    noise = torch.zeros((plane.batch, heads), dtype=torch.float64, device="cpu")
    step = max(1, CELLS // max(1, plane.batch * heads * plane.keys))
    for run in sampled(plane.queries):
        for first in range(run.start, run.stop, step):
            rows = slice(first, min(run.stop, first + step))
            seen = [_seen_columns(layer, rows) for layer in group]
            columns = slice(min(each.start for each in seen), max(each.stop for each in seen))
            if columns.start == columns.stop:
                continue
            total += products(torch.cat([_pattern(layer, rows, columns, centered) for layer in group], 1))
            if centered:
                noise += torch.cat([layer.noise(rows) for layer in group], 1)
            report("comparing heads", rows.stop, plane.queries, "rows")
    return cosines(total, noise)


def _kernel_products(group: Sequence[HeadLayer], kernels: Sequence[SecondPass], heads: int) -> Tensor:
    """Σ w·w′ over the sampled rows by the engine: many rows at a time, so that keys are packed for all of them."""
    plane, dtype = group[0].request.plane, group[0].source.dtype
    chosen = torch.cat([torch.arange(run.start, run.stop, device="cpu") for run in sampled(plane.queries)])
    total = torch.zeros((plane.batch, heads, heads), dtype=torch.float64, device="cpu")
    width = max(1, CELLS // max(1, plane.batch * heads * ROWS) // WIDTH) * WIDTH
    buffer = torch.empty(
        plane.batch * heads * min(ROWS, len(chosen)) * min(width, plane.keys), dtype=dtype, device="cpu"
    )
    for rows in chosen.split(ROWS) if len(chosen) else ():
        seen = [_seen_columns(layer, slice(int(rows[0]), int(rows[-1]) + 1)) for layer in group]
        for first in range(min(each.start for each in seen), max(each.stop for each in seen), width):
            columns = slice(first, min(max(each.stop for each in seen), first + width))
            size = (plane.batch, heads, len(rows), columns.stop - first)
            weights = buffer[: math.prod(size)].view(size)
            start = 0
            for layer, kernel in zip(group, kernels, strict=True):
                part = weights[:, start : start + layer.source.heads]
                kernel.some_rows(rows, columns, layer.visibility.counted, part)
                start += layer.source.heads
            total += products(weights)
        report("comparing heads", int(rows[-1]) + 1, plane.queries, "rows")
    return total


def _seen_columns(layer: HeadLayer, rows: slice) -> slice:
    """The columns that have all weights of these rows; those of stored weights may be anywhere."""
    everything = slice(0, layer.source.keys)
    if isinstance(layer.source, Stored):
        return everything
    return hull(layer.request.mask, layer.request.plane, rows, everything)


def _pattern(layer: HeadLayer, rows: slice, columns: slice, centered: bool) -> Tensor:
    """(batch, head, row, key); 0 in rows that do not count."""
    source, counted = layer.source, layer.visibility.counted[..., rows]
    weights: Tensor = source.tile(rows, columns).unflatten(0, (-1, source.heads))
    if centered:
        weights = centered_weights(weights, visible(layer.request, rows)[..., columns], layer.mean[..., rows])
    return weights if bool(counted.all()) else weights * counted.to(weights).unsqueeze(-1)


def _split(group: Sequence[HeadLayer], similarity: Tensor) -> dict[int, dict[str, Tensor]]:
    """(batch, head, head) of all layers to the nearest head of each."""
    every = [(layer.number, head, head in layer.shown) for layer in group for head in layer.heads]
    numbers, heads, shown = torch.tensor(every, device="cpu", dtype=torch.int64).view(-1, 3).unbind(-1)
    similarity = torch.where(shown.bool(), similarity, -2.0)
    similarity.diagonal(dim1=-2, dim2=-1).fill_(-2.0)
    value, place = torch.where(similarity.isnan(), -2.0, similarity).max(-1)
    best = torch.stack([numbers[place].double(), heads[place].double(), value])
    by_heads = torch.where(value < -1.5, torch.nan, best).split([layer.source.heads for layer in group], -1)
    return {layer.number: dict(zip(NEAREST, own, strict=True)) for layer, own in zip(group, by_heads, strict=True)}
