"""Sums over the pairs of a layer, from blocks of weights as they come: shares of kinds, and products of heads."""

import torch
from torch import Tensor

from regard.inspection.heads.visible import headed
from regard.inspection.matrix.source import Block, Computed
from regard.spec.masks import Mask


class Shares:
    """The weight of each query on the keys of some kinds, (batch, head, query) for each name."""

    def __init__(self, source: Computed, kinds: dict[str, Mask]) -> None:
        self.request, self.kinds = source.request, kinds
        plane = source.request.plane
        size = (plane.batch, plane.heads, plane.queries)
        self.result = {name: torch.zeros(size, dtype=torch.float64, device="cpu") for name in kinds}

    def take(self, block: Block) -> None:
        """One rectangle."""
        plane = self.request.plane
        pairs = plane.pairs(block.rows, block.columns)
        marks = {name: mask.visible(pairs) for name, mask in self.kinds.items()}
        there = {name: headed(mark, self.request) for name, mark in marks.items() if bool(mark.any())}
        if not there:
            return
        batch = max(mark.shape[0] for mark in there.values())
        size = (batch, 1, *block.weights.shape[1:])
        marked = torch.cat([mark.expand(size).to(block.weights.dtype) for mark in there.values()], 1)
        weights = block.weights.unflatten(0, (plane.batch, plane.heads))
        sums = weights.transpose(1, 2) @ marked.permute(0, 2, 3, 1)  # (batch, row, head, kind)
        for name, total in zip(there, sums.permute(3, 0, 2, 1).double().cpu(), strict=True):
            self.result[name][..., block.rows] += total


class Products:
    """Σ over the pairs of queries that count of w·w′, (batch, head, head); centered, each row less its mean."""

    def __init__(self, source: Computed, counted: Tensor, mean: Tensor | None) -> None:
        """`counted`: (batch, 1 or head, query). `mean` of each row over its visible keys, (batch, head, query)."""
        plane = source.request.plane
        self.heads, self.mean = plane.heads, mean
        self.counted = None if bool(counted.all()) else counted
        self.result = torch.zeros((plane.batch, plane.heads, plane.heads), dtype=torch.float64, device="cpu")

    def take(self, block: Block) -> None:
        """One rectangle."""
        found = block.weights.unflatten(0, (-1, self.heads))
        if self.mean is not None:
            visible = None if block.visible is None else block.visible.unflatten(0, (-1, self.heads))
            found = centered(found, visible, self.mean[..., block.rows])
        if self.counted is not None:
            found = found * self.counted[..., block.rows].to(found).unsqueeze(-1)
        self.result += products(found)


def centered(weights: Tensor, visible: Tensor | None, mean: Tensor) -> Tensor:
    """The weights, (batch, head, row, key), less the mean of their row where they are visible."""
    even = mean.to(weights).unsqueeze(-1)
    return weights - (even if visible is None else torch.where(visible, even, 0.0))


def products(weights: Tensor) -> Tensor:
    """Σ w·w′ of any two heads of (batch, head, row, key), (batch, head, head)."""
    flat = weights.flatten(2)
    return (flat @ flat.mT).double().cpu()


def cosines(gram: Tensor, noise: Tensor | None = None) -> Tensor:
    """From products of any two, (…, head, head); 0 where one of them is no larger than its `noise`, (…, head)."""
    square = gram.diagonal(dim1=-2, dim2=-1)
    size = torch.where(square > (0.0 if noise is None else noise), square, 0.0).sqrt()
    both = size.unsqueeze(-1) * size.unsqueeze(-2)
    found = torch.where(both > 0, gram / torch.where(both > 0, both, 1.0), 0.0).clamp(-1.0, 1.0)
    return torch.where(gram.isnan(), torch.nan, found)
