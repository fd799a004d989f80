"""Documents: packed sequences that must not see each other."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.checks import shape
from regard.spec.masks.base import Mask
from regard.spec.masks.columns import integers
from regard.spec.masks.runs import EMPTY, FULL, MIXED, Runs, cut
from regard.spec.plane import Pairs, Plane, Strips


@dataclass(frozen=True, eq=False, repr=False)
class Documents(Mask):
    """Visible within one document: `key_ids[j] == query_ids[i]`.

    `key_ids` is (key,) or (batch, key). Without `query_ids` the query at position i is in document
    `key_ids[i]`. With them: one per query row, or one per absolute position, (query,) or (batch, query).
    """

    key_ids: Tensor
    query_ids: Tensor | None = None

    def __post_init__(self) -> None:
        for name in ("key_ids", "query_ids"):
            ids = getattr(self, name)
            if ids is None:
                continue
            ids = integers(f"Documents' {name}", ids)
            if ids.ndim not in (1, 2):
                raise ValueError(f"Documents' {name} must be (length,) or (batch, length), got {shape(ids)}")
            object.__setattr__(self, name, ids if ids.ndim == 2 else ids.unsqueeze(0))

    @property
    def positional(self) -> bool:
        return self.query_ids is None

    def check(self, plane: Plane) -> None:
        for name, ids in (("key_ids", self.key_ids), ("query_ids", self.query_ids)):
            if ids is not None and ids.shape[0] not in (1, plane.batch):
                raise ValueError(
                    f"Documents' {name} has {ids.shape[0]} batch rows, the inputs have {plane.batch}; "
                    "give one row, or one per batch row"
                )
        if self.key_ids.shape[1] < plane.key_start + plane.keys:
            raise ValueError(
                f"Documents' key_ids must name a document for each of the {plane.keys} keys, "
                f"got {self.key_ids.shape[1]}"
            )
        first, stop = int(plane.starts.min()), int(plane.starts.max()) + plane.queries
        if self.query_ids is None:
            if plane.queries and (first < 0 or stop > self.key_ids.shape[1]):
                raise ValueError(
                    f"Documents has no id for queries at positions {first} to {stop - 1} "
                    f"({self.key_ids.shape[1]} key_ids); pass query_ids"
                )
        elif self.query_ids.shape[1] != plane.queries and (first < 0 or stop > self.query_ids.shape[1]):
            raise ValueError(
                f"Documents' query_ids must name a document for each of the {plane.queries} queries, "
                f"got {self.query_ids.shape[1]}"
            )

    def visible(self, pairs: Pairs) -> Tensor:
        keys = self.key_ids.to(pairs.plane.device)[:, pairs.j]
        queries = self._query_ids(pairs.plane).to(pairs.plane.device)[:, pairs.rows]
        return queries[:, None, None, :, None] == keys[:, None, None, None, :]

    def _query_ids(self, plane: Plane) -> Tensor:
        """The document of each query row, (batch or 1, query)."""
        ids = self.query_ids
        if ids is not None and ids.shape[1] == plane.queries:
            return ids
        ids = self.key_ids if ids is None else ids
        rows = plane.starts.view(-1, 1) + torch.arange(plane.queries)
        if ids.shape[0] == 1:
            return ids.cpu()[0][rows]
        return ids.cpu().gather(1, rows.expand(ids.shape[0], -1))

    def runs(self, strips: Strips) -> Runs:
        low, high = strips.key_span
        keys = self.key_ids.cpu()[:, low:high].contiguous()
        queries = self._query_ids(strips.plane).cpu()[:, strips.start : strips.stop].contiguous()
        if _sorted(keys) and _sorted(queries):
            start, stop, one = _packed(keys, queries, strips)
        else:
            start, stop, one = _scattered(keys, queries, strips)
        stop = torch.maximum(start, stop)
        kinds = torch.where(one, FULL, MIXED).unsqueeze(1)
        return cut(strips, (EMPTY, kinds, EMPTY), (start + low).unsqueeze(1), (stop + low).unsqueeze(1))


Spans = tuple[Tensor, Tensor, Tensor]  # first key, one past the last, one document without a gap: (batch or 1, strips)


def _sorted(ids: Tensor) -> bool:
    return bool((ids[:, 1:] >= ids[:, :-1]).all())


def _packed(keys: Tensor, queries: Tensor, strips: Strips) -> Spans:
    first = queries[:, strips.first_row - strips.start].contiguous()
    last = queries[:, strips.last_row - strips.start].contiguous()
    batch = max(keys.shape[0], queries.shape[0])
    keys = keys.expand(batch, -1).contiguous()
    first, last = first.expand(batch, -1).contiguous(), last.expand(batch, -1).contiguous()
    return torch.searchsorted(keys, first), torch.searchsorted(keys, last, right=True), first == last


def _scattered(keys: Tensor, queries: Tensor, strips: Strips) -> Spans:
    """Any order of ids: from the first occurrence of any document in the strip to the last of any."""
    batch = max(keys.shape[0], queries.shape[0])
    keys, queries = keys.expand(batch, -1), queries.expand(batch, -1)
    names, numbers = torch.unique(torch.cat([keys, queries], 1), return_inverse=True)
    keys, queries = numbers[:, : keys.shape[1]], numbers[:, keys.shape[1] :]
    place = torch.arange(keys.shape[1]).expand(batch, -1)
    shape_ = (batch, len(names))
    first = torch.full(shape_, keys.shape[1]).scatter_reduce(1, keys, place, "amin")
    last = torch.full(shape_, -1).scatter_reduce(1, keys, place, "amax")
    solid = last - first + 1 == torch.zeros(shape_, dtype=torch.int64).scatter_add(1, keys, torch.ones_like(place))
    missing = strips.count * strips.height - queries.shape[1]
    rows = torch.cat([queries, queries[:, -1:].expand(-1, missing)], 1).unflatten(1, (strips.count, strips.height))
    flat = rows.flatten(1)
    start = first.gather(1, flat).view_as(rows).amin(-1)
    stop = last.gather(1, flat).view_as(rows).amax(-1) + 1
    same = rows.amin(-1) == rows.amax(-1)
    return start, stop, same & solid.gather(1, rows[..., 0])
