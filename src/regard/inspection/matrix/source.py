"""Sources: where weights come from. A lane is one batch row and head; every source gives weights lane by lane."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from regard.engine.known import Known, known
from regard.engine.logits import Tensors
from regard.engine.request import Request
from regard.engine.schedule import Tile
from regard.engine.strip import Kernel
from regard.engine.tiled import ready
from regard.engine.whole import span, strip_logits, weights_of
from regard.spec.normalizers import Softmax

HEIGHT = 64  # rows of stored weights at a time


@dataclass(frozen=True, eq=False)
class Block:
    """A rectangle of weights, (lane, row, column). `visible` broadcasts to it, None if all are; `away` is |i − j|."""

    rows: slice
    columns: slice
    weights: Tensor
    visible: Tensor | None
    away: Tensor


class Source(Protocol):
    """What reductions need to know."""

    lanes: int
    heads: int  # lanes of one batch row
    queries: int
    keys: int
    dtype: torch.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""

    def blocks(self) -> Iterator[Block]:
        """Rectangles that together hold every pair that may be visible, strip by strip, left to right."""

    def tile(self, rows: slice, columns: slice) -> Tensor:
        """The weights of one rectangle, (lane, row, column)."""


class Computed:
    """Weights that are computed from queries and keys, whenever they are asked for."""

    def __init__(self, request: Request) -> None:
        plane = request.plane
        self.request = request
        self.lanes, self.queries, self.keys = plane.batch * plane.heads, plane.queries, plane.keys
        self.heads, self.dtype = plane.heads, request.dtype
        self._known: Known | None = None

    @property
    def device(self) -> torch.device:
        return self.request.query.device

    @property
    def softmax(self) -> bool:
        """Whether a weight needs no more of its row than the lse."""
        return isinstance(self.request.normalizer, Softmax)

    def known(self, statistics: tuple[str, ...] = ()) -> Known:
        """The rows' state and these statistics; a pass over the pairs unless they are known already."""
        if self._known is None or set(statistics) - set(self._known.statistics):
            before = {} if self._known is None else self._known.statistics
            found = known(self.request, statistics)
            self._known = Known(found.state, found.rest, before | found.statistics, found.kernel)
        return self._known

    @cached_property
    def _kernel(self) -> tuple[Kernel, Tensors]:
        kernel, _, operands = ready(self.request)
        return kernel, operands

    def blocks(self) -> Iterator[Block]:
        kernel, operands = self._kernel
        for rows, tiles in kernel.schedule.strips:
            if not tiles:
                continue
            if self.softmax:
                for tile in tiles:
                    x = self._logits(tile)
                    yield self._block(rows, tile.columns, self._weights(x, rows), x)
            else:
                x = strip_logits(kernel, rows, tiles, operands)[0]
                yield self._block(rows, span(tiles), weights_of(kernel, x)[0], x)

    def tile(self, rows: slice, columns: slice) -> Tensor:
        with torch.no_grad():
            plane = self.request.plane
            if self.softmax:
                x = self._logits(Tile(plane, rows, columns, mixed=True))
                return self._flat(self._weights(x, rows), rows, columns)
            kernel, _ = self._kernel
            everything = slice(0, plane.keys)
            found = []
            for first in range(rows.start, rows.stop, kernel.schedule.height):
                some = slice(first, min(rows.stop, first + kernel.schedule.height))
                whole = weights_of(kernel, self._logits(Tile(plane, some, everything, mixed=True)))[0]
                found.append(self._flat(whole, some, everything)[..., columns])
            return torch.cat(found, 1)

    def _logits(self, tile: Tile) -> Tensor:
        kernel, operands = self._kernel
        return kernel.logits.tile(tile, kernel.logits.cut(operands, tile))[0]

    def _weights(self, x: Tensor, rows: slice) -> Tensor:
        plane, found = self.request.plane, self.known()
        state, rest = (
            part[..., rows].unflatten(1, (plane.kv_heads, plane.group)).unsqueeze(-1)
            for part in (found.state, found.rest)
        )
        weights = (x - torch.where(state == -torch.inf, 0.0, state)).sub_(rest).exp_()
        return torch.where(x == -torch.inf, 0.0, weights)

    def _flat(self, tensor: Tensor, rows: slice, columns: slice) -> Tensor:
        size = (rows.stop - rows.start, columns.stop - columns.start)
        plane = self.request.plane
        return tensor.expand(plane.batch, plane.kv_heads, plane.group, *size).reshape(self.lanes, *size)

    def _block(self, rows: slice, columns: slice, weights: Tensor, x: Tensor) -> Block:
        pairs = self.request.plane.pairs(rows, columns)
        away = (pairs.i - pairs.j).abs().to(self.dtype)
        if away.ndim > 2:
            away = self._flat(away, rows, columns)
        flat = self._flat(weights, rows, columns)
        return Block(rows, columns, flat, self._flat(x != -torch.inf, rows, columns), away)


class Stored:
    """Weights that exist, (…, head, query, key) or (query, key)."""

    def __init__(self, weights: Tensor) -> None:
        self.heads = weights.shape[-3] if weights.ndim > 2 else 1
        self.weights = weights.reshape(-1, *weights.shape[-2:])
        self.lanes, self.queries, self.keys = self.weights.shape
        self.dtype = weights.dtype

    @property
    def device(self) -> torch.device:
        return self.weights.device

    def blocks(self) -> Iterator[Block]:
        j = torch.arange(self.keys, device=self.device)
        for first in range(0, self.queries, HEIGHT):
            rows = slice(first, min(self.queries, first + HEIGHT))
            i = torch.arange(rows.start, rows.stop, device=self.device) + max(self.keys - self.queries, 0)
            away = (i.view(-1, 1) - j).abs().to(self.dtype)
            yield Block(rows, slice(0, self.keys), self.weights[:, rows], None, away)

    def tile(self, rows: slice, columns: slice) -> Tensor:
        return self.weights[:, rows, columns]
