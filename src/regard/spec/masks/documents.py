"""Documents: packed sequences that must not see each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from regard.arrays import Array
from regard.spec.masks.base import Mask
from regard.spec.masks.columns import integers
from regard.spec.masks.extent import Extent, query_span
from regard.spec.masks.runs import EMPTY, FULL, MIXED, Runs, cut
from regard.spec.plane import Axes, Pairs, Plane, RowBlocks, Selection
from regard.spec.serialize import register
from regard.spec.steps import MaskStep, SameId

Ids = Tensor | Array | Sequence[int] | Sequence[Sequence[int]]


@register
@dataclass(frozen=True, eq=False, repr=False, init=False)
class Documents(Mask):
    """Visible within one document: `key_ids[j] == query_ids[i]`.

    `key_ids` is (key,) or (batch, key). Without `query_ids` the query at position i is in document
    `key_ids[i]`. With them: one per query row, or one per absolute position, (query,) or (batch, query).
    Ids may come in any order; documents whose keys stand together have the shortest runs.
    """

    key_ids: Tensor
    query_ids: Tensor | None = None

    def __init__(self, key_ids: Ids, query_ids: Ids | None = None) -> None:
        object.__setattr__(self, "key_ids", integers("Documents' key_ids", key_ids, axes=(1, 2)))
        if query_ids is not None:
            query_ids = integers("Documents' query_ids", query_ids, axes=(1, 2))
        object.__setattr__(self, "query_ids", query_ids)

    def positional_for(self, queries: int) -> bool:
        """Ids that come one per query row need no positions."""
        return self.query_ids is None or self.query_ids.shape[-1] != queries

    @property
    def extent(self) -> Extent:
        rows = [_rows(ids) for ids in (self.key_ids, self.query_ids) if ids is not None]
        return Extent(batch=max(len(ids) for ids in rows), queries=rows[-1].shape[1], keys=rows[0].shape[1])

    def check(self, plane: Plane) -> None:
        for name, ids in (("key_ids", self.key_ids), ("query_ids", self.query_ids)):
            if ids is not None and _rows(ids).shape[0] not in (1, plane.batch):
                raise ValueError(
                    f"Documents' {name} has {len(ids)} batch rows, the inputs have {plane.batch}; "
                    "give one row, or one per batch row"
                )
        named, past_keys = self.key_ids.shape[-1], plane.key_start + plane.keys
        if plane.keys and (plane.key_start < 0 or past_keys > named):
            raise ValueError(
                f"Documents' key_ids must name a document for each of the {plane.keys} keys at positions "
                f"{plane.key_start} to {past_keys - 1}, got {named}; give one id per key, padding included"
            )
        if not torch.compiler.is_compiling():  # a traced start has no number yet
            self._check_queries(plane)

    def _check_queries(self, plane: Plane) -> None:
        first, stop = query_span(plane)
        if self.query_ids is None:
            if first < 0 or stop > self.key_ids.shape[-1]:
                raise ValueError(
                    f"Documents has no id for queries at positions {first} to {stop - 1}, "
                    f"its key_ids name positions 0 to {self.key_ids.shape[-1] - 1}; pass query_ids, one per query"
                )
        elif self.query_ids.shape[-1] != plane.queries and (first < 0 or stop > self.query_ids.shape[-1]):
            raise ValueError(
                f"Documents' query_ids must name a document for each of the {plane.queries} queries, "
                f"or for each position up to {stop - 1}, got {self.query_ids.shape[-1]}"
            )

    def visible(self, pairs: Pairs) -> Tensor:
        device, start = pairs.plane.device, pairs.plane.key_start
        keys = _rows(self.key_ids)[:, start + pairs.columns.start : start + pairs.columns.stop].to(device)
        queries = self.query_rows(pairs.plane, pairs.rows).to(device)
        return queries[:, None, None, :, None] == keys[:, None, None, None, :]

    def query_rows(self, plane: Plane, rows: slice) -> Tensor:
        """The document of each of these query rows, (batch or 1, rows)."""
        if self.query_ids is not None and self.query_ids.shape[-1] == plane.queries:
            return _rows(self.query_ids)[:, rows]
        ids = _rows(self.key_ids if self.query_ids is None else self.query_ids)
        if plane.starts.numel() == 1 and not torch.compiler.is_compiling():  # a traced start has no number yet
            start = int(plane.starts)
            return ids[:, start + rows.start : start + rows.stop]
        places = plane.starts.view(-1, 1) + torch.arange(rows.start, rows.stop, device="cpu")
        if plane.starts.numel() == 1:
            return ids.index_select(1, places[0].to(ids.device))
        return ids.expand(len(places), -1).gather(1, places.to(ids.device))

    def runs(self, row_blocks: RowBlocks) -> Runs:
        low, high = row_blocks.key_span
        keys = _rows(self.key_ids)[:, low:high].cpu().contiguous()
        queries = self.query_rows(row_blocks.plane, slice(row_blocks.start, row_blocks.stop)).cpu()
        if keys.numel() == 0:
            return cut(row_blocks, (EMPTY,))
        start, stop, solid = (part.unsqueeze(1) for part in id_spans(keys, queries, row_blocks.height))
        kind = torch.where(solid, FULL, MIXED)
        return cut(row_blocks, (EMPTY, kind, EMPTY), start + low, torch.maximum(start, stop) + low)

    def sliced(self, selection: Selection) -> "Documents":
        by_row = self.query_ids is not None and self.query_ids.shape[-1] == selection.queries
        axes: dict[str, Axes] = {"key_ids": ("batch", None), "query_ids": ("batch", "query" if by_row else None)}
        return self._sliced(selection, axes)

    def steps(self, plane: Plane) -> tuple[MaskStep, ...]:
        keys = _rows(self.key_ids)[:, plane.key_start : plane.key_start + plane.keys]
        return (SameId(keys, self.query_rows(plane, slice(0, plane.queries))),)


class Spans(NamedTuple):
    """First key and one past the last that a block of rows may see, and whether it sees them all; (batch or 1, blocks)
    each."""

    start: Tensor
    stop: Tensor
    solid: Tensor


def _rows(ids: Tensor) -> Tensor:
    return ids if ids.ndim == 2 else ids.unsqueeze(0)


def id_spans(keys: Tensor, queries: Tensor, height: int) -> Spans:
    """The spans of keys whose id is one of those of `height` queries; (batch or 1, key) and (batch or 1, query)."""
    return (_rising_spans if _rising(keys) and _rising(queries) else _scattered_spans)(keys, queries, height)


def _rising(ids: Tensor) -> bool:
    return bool((ids[:, 1:] >= ids[:, :-1]).all())


def _rising_spans(keys: Tensor, queries: Tensor, height: int) -> Spans:
    """From the first row's document to the last row's."""
    top = torch.arange(0, queries.shape[1], height, device="cpu")
    first = queries[:, top]
    last = queries[:, (top + height - 1).clamp(max=queries.shape[1] - 1)]
    solid = first == last
    if len(keys) > 1:
        first, last = (ids.expand(len(keys), -1).contiguous() for ids in (first, last))
    else:
        keys = keys[0]
    return Spans(torch.searchsorted(keys, first), torch.searchsorted(keys, last, right=True), solid)


def _scattered_spans(keys: Tensor, queries: Tensor, height: int) -> Spans:
    """From the first key of any document in the block of rows to the last of any."""
    if len(keys) > 1:
        queries = queries.expand(len(keys), -1)
    row, start, stop, name = _segments(keys, keys.shape[1])
    names, number = name.unique(return_inverse=True)
    size = (len(keys), len(names) + 1)  # the last is any document that no key is in
    first = _extreme("amin", size, keys.shape[1], row, number, start)
    last = _extreme("amax", size, 0, row, number, stop)
    count = torch.zeros(size, dtype=torch.int64, device="cpu").index_put_((row, number), stop - start, accumulate=True)
    solid = last - first == count

    row, begin, _, name = _segments(queries, height)
    block = begin // height
    number = torch.searchsorted(names, name)
    number[names[number.clamp(max=len(names) - 1)] != name] = len(names)
    at = (row if len(keys) > 1 else torch.zeros_like(row), number)
    size = (len(queries), -(-queries.shape[1] // height))
    least = _extreme("amin", size, len(names), row, block, number)
    most = _extreme("amax", size, 0, row, block, number)
    broken = _extreme("amax", size, 0, row, block, (~solid[at]).to(torch.int64))
    return Spans(
        _extreme("amin", size, keys.shape[1], row, block, first[at]),
        _extreme("amax", size, 0, row, block, last[at]),
        (least == most) & (broken == 0),
    )


def _segments(ids: Tensor, height: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Stretches of one id, also split at multiples of `height`: batch row, first place, one past the last, id."""
    breaks = torch.ones(ids.shape, dtype=torch.bool, device="cpu")
    torch.ne(ids[:, 1:], ids[:, :-1], out=breaks[:, 1:])
    breaks[:, ::height] = True
    row, start = breaks.nonzero(as_tuple=True)
    ends = torch.cat(
        [(row * ids.shape[1] + start)[1:], torch.tensor([ids.numel()], device="cpu", dtype=torch.int64)[: len(row)]]
    )
    return row, start, ends - row * ids.shape[1], ids[row, start]


def _extreme(how: str, size: tuple[int, int], start: int, row: Tensor, column: Tensor, values: Tensor) -> Tensor:
    """The least or greatest of the values that fall on each cell, or `start`."""
    flat = torch.full((size[0] * size[1],), start, device="cpu", dtype=torch.int64)
    return flat.scatter_reduce(0, row * size[1] + column, values, how).view(size)
