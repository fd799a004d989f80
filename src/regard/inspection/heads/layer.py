"""One layer: the statistics of its heads, (batch, head) each."""

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.cached import cached_property
from regard.inspection.heads.sight import NARROW, WIDE, Sight
from regard.inspection.heads.sums import Products, Shares, cosines
from regard.inspection.matrix.gradients import mass
from regard.inspection.matrix.source import Computed
from regard.progress import report
from regard.spec.masks import Full
from regard.spec.normalizers import Softmax


@dataclass(frozen=True, eq=False)
class Layer:
    """What was captured of a layer, and what its queries can see. `within`: queries and keys are of one text. `heads`
    are the numbers that its heads have in the model, `shown` those that were asked for."""

    number: int
    name: str
    source: Computed
    sight: Sight
    within: bool
    heads: tuple[int, ...]
    shown: tuple[int, ...]

    @cached_property
    def sink(self) -> Tensor | None:
        """The share of the learned sink, (batch, head, query)."""
        request = self.source.request
        if not isinstance(request.normalizer, Softmax) or request.sink is None:
            return None
        known = self.source.known()
        logit = request.sink.double().expand(request.plane.kv_heads, request.plane.group, 1).flatten(0, 1)
        return (logit - (known.state.double() + known.rest.double())).exp().cpu()

    @cached_property
    def mean(self) -> Tensor:
        """The mean weight of each query over its visible keys, (batch, head, query)."""
        keys, plane = self.sight.keys, self.source.request.plane
        size = (plane.batch, plane.heads, plane.queries)
        total = torch.ones(size, dtype=torch.float64, device="cpu")
        if self.sink is not None:
            total = mass(self.source, Full()).view(size).double().cpu()
        return torch.where(keys > 0, total / keys.clamp(min=1), 0.0)

    def noise(self, rows: slice) -> Tensor:
        """How large products of heads that look evenly come out in these rows, where rows less their mean should be 0:
        (batch, head)."""
        even = self.mean[..., rows].square() * self.sight.keys[..., rows]
        return (64 * torch.finfo(self.source.dtype).eps) ** 2 * even.sum(-1)


def statistics(layer: Layer, wanted: Collection[str], centered: bool) -> dict[str, Tensor]:
    """The wanted ones that this layer has, (batch, head) each; NaN where no query has a say."""
    source, sight = layer.source, layer.sight
    if not bool(sight.counted.any()):
        return {}
    rows = source.known(("entropy", "distance") if layer.within else ("entropy",)).statistics
    entropy = rows["entropy"].double().cpu()
    found = {"entropy": _mean(entropy, sight.counted)}
    found["relative"] = _mean(entropy / sight.keys.clamp(min=2).double().log(), sight.keys > 1)
    if layer.within:
        found["distance"] = _mean(rows["distance"].double().cpu(), sight.counted)
    if (sink := layer.sink) is not None:
        found["sink"] = _mean(sink, sight.counted)
    shares: dict[str, Tensor] = {}
    for name in NARROW:
        if name in sight.kinds and name in wanted:
            shares[name] = mass(source, sight.kinds[name]).view(entropy.shape).double().cpu()
    wide = Shares(source, {name: mask for name, mask in sight.kinds.items() if name in WIDE and name in wanted})
    pairs = Products(source, sight.counted, layer.mean if centered else None) if "similarity" in wanted else None
    if wide.kinds or pairs is not None:
        for block in source.blocks():
            wide.take(block)
            if pairs is not None:
                pairs.take(block)
            report("reading the weights", block.rows.stop, source.queries, "rows")
    for name, share in (shares | wide.result).items():
        found[name] = _mean(share, sight.sees[name])
    if pairs is not None:
        alone = sight.counted.any(1).any(-1, keepdim=True)
        noise = layer.noise(slice(None)) if centered else None
        found["similarity"] = torch.where(alone, _to_others(cosines(pairs.result, noise)), torch.nan)
    return {name: found[name] for name in wanted if name in found}


def _mean(values: Tensor, over: Tensor) -> Tensor:
    """Over the queries that count, (batch, head); NaN where there is none."""
    over = over.expand(values.shape)
    return torch.where(over, values, 0.0).sum(-1) / over.sum(-1)


def _to_others(cosines: Tensor) -> Tensor:
    """The mean cosine of each head with the others of its layer; a single head is 1, as alike as can be."""
    heads = cosines.shape[-1]
    if heads == 1:
        return torch.ones(cosines.shape[:-1], dtype=cosines.dtype, device="cpu")
    return (cosines.sum(-1) - cosines.diagonal(dim1=-2, dim2=-1)) / (heads - 1)
