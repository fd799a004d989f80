"""Stored head views: a head whose weights are given as numbers; what is hidden in it has to be read from them."""

import torch
from torch import Tensor

from regard.cached import cached_property
from regard.inspection.matrix import AttentionMatrix
from regard.inspection.matrix.source import Stored
from regard.map.head_view import CELLS, GenericHeadView
from regard.map.tile_cache import fingerprint
from regard.map.tiles import sampled

LEAST_ROWS = 64  # looked at to see whether a matrix is causal


class StoredHeadView(GenericHeadView):
    """Given weights. Hidden are numbers that are not finite and, in a causal matrix, zeros behind the query."""

    def __init__(self, matrix: AttentionMatrix) -> None:
        """`matrix` is (query, key)."""
        super().__init__(matrix)
        assert isinstance(matrix._source, Stored)
        self._stored = matrix._source

    @cached_property
    def _causal(self) -> bool:
        return stored_causal(self._stored, self._head)

    def fingerprint(self) -> str | None:
        return fingerprint((self._head, self._causal), self._stored.one_map(self._head))

    def weights(self, rows: slice, columns: slice) -> Tensor:
        weights = self._stored.one_map(self._head)[rows, columns].detach().cpu().to(self._stored.dtype)
        hidden = ~torch.isfinite(weights)
        if self._causal:
            i = torch.arange(rows.start, rows.stop, device="cpu") + self.keys - self.queries
            hidden |= (torch.arange(columns.start, columns.stop, device="cpu") > i.view(-1, 1)) & (weights == 0)
        return torch.where(hidden, -1.0, weights.clamp(min=0))

    def _count(self, rows: slice) -> Tensor:
        step = max(1, CELLS // self.keys)
        parts = (slice(first, min(rows.stop, first + step)) for first in range(rows.start, rows.stop, step))
        return torch.cat([(self.weights(part, slice(0, self.keys)) >= 0).sum(-1) for part in parts])


def stored_causal(source: Stored, head: int) -> bool:
    """Whether stored weights look like those of causal attention: zeros behind every query, and not before.

    Of a large matrix some rows are looked at. Only zeros are hidden for it, so no weight disappears.
    """
    weights, start = source.one_map(head), source.keys - source.queries
    if source.queries == 1 or start < 0:
        return False
    before = False
    for row in sampled(0, source.queries, max(LEAST_ROWS, CELLS // source.keys)):
        line = weights[row].detach().cpu()
        if bool((line[row + start + 1 :] != 0).any()):
            return False
        before = before or bool((line[: row + start] > 0).any())
    return before
