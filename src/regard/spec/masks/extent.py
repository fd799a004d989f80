"""Extent: the sizes a mask was made for; and the plane on which it is counted or shown without inputs."""

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from regard.arrays import tensor_of
from regard.checks import dtype, is_tensor, shape, whole, written
from regard.spec.plane import Plane

if TYPE_CHECKING:
    from regard.spec.masks.base import Mask


FARTHEST = 1 << 62  # positions and their differences must fit in 64 bits


class Extent(NamedTuple):
    """Batch rows and heads that differ, and lengths; 1 and 0 where the mask fits any."""

    batch: int = 1
    heads: int = 1
    queries: int = 0
    keys: int = 0

    @property
    def sized(self) -> bool:
        """Whether the mask has a length of its own."""
        return self.queries + self.keys > 0


def plane_of(
    mask: "Mask",
    queries: int | None = None,
    keys: int | None = None,
    batch: int | None = None,
    heads: int | None = None,
    query_start: int | Tensor | None = None,
) -> Plane:
    """A plane of the given sizes that fits the mask; what is None comes from the mask's extent."""
    extent = mask.extent
    if queries is None and keys is None and extent.sized:
        queries, keys = extent.queries or extent.keys, extent.keys or extent.queries
    keys = queries if keys is None else keys
    queries = keys if queries is None else queries
    if queries is None or keys is None:
        raise ValueError(f"{mask!r} fits any number of queries; say how many, as in pairs(1024)")
    if batch is None:
        batch = max(extent.batch, query_start.numel()) if isinstance(query_start, Tensor) else extent.batch
    heads = extent.heads if heads is None else heads
    for name, size in (("queries", queries), ("keys", keys), ("batch", batch), ("heads", heads)):
        whole(name, size, least=0, most=FARTHEST)
    starts = starts_of(query_start, queries, keys, batch, mask, mask.positional_for(queries))
    plane = Plane(batch, heads, 1, queries, keys, starts)
    mask.check(plane)
    return plane


def picture_plane(mask: "Mask", queries: int | None, keys: int | None, query_start: int | Tensor | None) -> Plane:
    """The same for a picture: 16 queries for a mask that fits any number."""
    if queries is None and keys is None and not mask.extent.sized:
        queries = 16
    return plane_of(mask, queries, keys, query_start=query_start)


def query_span(plane: Plane) -> tuple[int, int]:
    """The first query position of any batch row, and one past the last; (0, 0) if there is no query at all."""
    if plane.queries == 0 or plane.starts.numel() == 0:
        return 0, 0
    return int(plane.starts.min()), int(plane.starts.max()) + plane.queries


def starts_of(query_start: object, queries: int, keys: int, batch: int, mask: "Mask", positional: bool) -> Tensor:
    """Where the first query of each batch row stands. By default the last query stands at the last key; where that
    could be wrong and positions matter, it is refused."""
    if query_start is None:
        ragged = any(leaf.ragged for leaf in mask.leaves())
        if torch.compiler.is_compiling() and not (type(queries) is int and type(keys) is int):  # symbols
            return torch.scalar_tensor(keys - queries, device="cpu", dtype=torch.int64).view(1)
        if queries != keys and (queries > keys or ragged) and positional:
            why = "there are more queries than keys" if queries > keys else "the keys have Lengths"
            raise ValueError(
                f"query_start is ambiguous: {queries} queries, {keys} keys, and {why}; pass query_start=0 if the first "
                "query stands at the first key, or the position of the first query (an int, or one per batch row)"
            )
        return torch.full((1,), max(keys - queries, 0), device="cpu", dtype=torch.int64)
    query_start = tensor_of("query_start", query_start)
    if isinstance(query_start, (list, tuple)):
        raise TypeError(
            f"query_start must be an int, or a tensor with one per batch row, got {type(query_start).__name__}; "
            "wrap it with torch.tensor(...)"
        )
    if isinstance(query_start, torch.SymInt):
        return torch.scalar_tensor(query_start, device="cpu", dtype=torch.int64).view(1)  # type: ignore[arg-type]
    if not isinstance(query_start, Tensor):
        if isinstance(query_start, int) and abs(query_start) > FARTHEST:
            raise ValueError(f"query_start must lie within ±2**62, got {written(query_start)}")
        return torch.full((1,), whole("query_start", query_start), device="cpu", dtype=torch.int64)
    if is_tensor("query_start", query_start).is_meta:
        raise ValueError("query_start is on the device meta, which holds shapes but no numbers")
    if query_start.dtype not in (torch.int64, torch.int32) or query_start.numel() not in (1, batch):
        raise ValueError(
            f"query_start must be an int, or integers for each of the {batch} batch rows, "
            f"got {dtype(query_start)} of shape {shape(query_start)}"
        )
    starts = query_start.detach().reshape(-1).to("cpu", torch.int64, copy=True)
    if torch.compiler.is_compiling():  # a traced tensor has no numbers yet
        return starts
    wrong = starts[(starts > FARTHEST) | (starts < -FARTHEST)]
    if wrong.numel():
        raise ValueError(f"query_start must lie within ±2**62, got {int(wrong[0])}")
    return starts
