"""Shapes: how the user's axes become (batch, kv head, group, length, width) and back."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard import checks
from regard.spec.masks import Lengths, Mask


@dataclass(frozen=True)
class Shapes:
    """Sizes of one call. `leading` is what stands before (head, length, width), `rank` the axes of the result."""

    leading: tuple[int, ...]
    kv_heads: int
    group: int
    queries: int
    keys: int
    d_value: int
    rank: int

    @property
    def batch(self) -> int:
        """All leading axes in one."""
        return torch.Size(self.leading).numel()

    @property
    def heads(self) -> int:
        """Query heads."""
        return self.kv_heads * self.group

    @classmethod
    def of(cls, query: Tensor, key: Tensor, value: Tensor) -> "Shapes":
        """Read and check the shapes of the three inputs."""
        named = {"query": query, "key": key, "value": value}
        for name, tensor in named.items():
            checks.is_tensor(name, tensor)
            if tensor.ndim < 2:
                raise ValueError(
                    f"{name} must be (batch, head, length, width), or at least (length, width), "
                    f"got shape {checks.shape(tensor)}"
                )
            checks.is_float(name, tensor)
        checks.same_kind(named)
        if key.shape[-2] != value.shape[-2]:
            raise ValueError(
                "key and value must have the same length, "
                f"got key {checks.shape(key)} and value {checks.shape(value)}; axes are (batch, head, length, width)"
            )
        heads = {name: tensor.shape[-3] if tensor.ndim > 2 else 1 for name, tensor in named.items()}
        _check_heads(heads, named)
        sizes = [tensor.shape[:-3] for tensor in named.values()]
        try:
            leading = torch.broadcast_shapes(*sizes)
        except RuntimeError as error:
            listed = ", ".join(f"{name} {checks.shape(tensor)}" for name, tensor in named.items())
            raise ValueError(f"the batch axes of {listed} do not broadcast; make them equal or 1") from error
        return cls(
            leading=tuple(leading),
            kv_heads=heads["key"],
            group=heads["query"] // heads["key"] if heads["key"] else 1,
            queries=query.shape[-2],
            keys=key.shape[-2],
            d_value=value.shape[-1],
            rank=max(tensor.ndim for tensor in named.values()),
        )

    def fold_leading(self, tensor: Tensor) -> Tensor:
        """A mask or bias with more than one batch axis, as (batch, head, query, key)."""
        if tensor.ndim <= 4:
            return tensor
        try:
            return tensor.expand(*self.leading, *tensor.shape[-3:]).reshape(-1, *tensor.shape[-3:])
        except RuntimeError as error:
            raise ValueError(
                f"a mask or bias of shape {checks.shape(tensor)} does not broadcast to the batch axes {self.leading}"
            ) from error

    def unfold(self, tensor: Tensor) -> Tensor:
        """(batch, kv head, group, …) back to the user's axes."""
        tensor = tensor.flatten(1, 2)
        if self.leading:
            return tensor.reshape(*self.leading, *tensor.shape[1:])
        return tensor[0, 0] if self.rank == 2 else tensor[0]


def fold(tensor: Tensor, shapes: Shapes, group: int) -> Tensor:
    """(…, head, length, width) to (batch, kv head, group, length, width)."""
    tensor = tensor if tensor.ndim > 2 else tensor.unsqueeze(0)
    tensor = tensor.expand(*shapes.leading, *tensor.shape[-3:])
    return tensor.reshape(shapes.batch, shapes.kv_heads, group, *tensor.shape[-2:])


def starts_of(query_start: int | Tensor | None, shapes: Shapes, mask: Mask, positional: bool) -> Tensor:
    """Where the first query of each batch row stands; refuses to guess where a guess could be wrong."""
    if query_start is None:
        queries, keys = shapes.queries, shapes.keys
        ragged = any(isinstance(leaf, Lengths) for leaf in mask.leaves())
        if queries != keys and (queries > keys or ragged) and positional:
            why = "there are more queries than keys" if queries > keys else "the keys have Lengths"
            raise ValueError(
                f"query_start is ambiguous: {queries} queries, {keys} keys, and {why}; pass query_start=0 if the first "
                "query stands at the first key, or the position of the first query (an int, or one per batch row)"
            )
        return torch.tensor([max(keys - queries, 0)])
    if isinstance(query_start, Tensor):
        starts = query_start.detach().reshape(-1).cpu()
        if starts.dtype not in (torch.int64, torch.int32) or starts.numel() not in (1, shapes.batch):
            raise ValueError(
                f"query_start must be an int, or integers for each of the {shapes.batch} batch rows, "
                f"got {checks.dtype(query_start)} of shape {checks.shape(query_start)}"
            )
        return starts.to(torch.int64)
    return torch.tensor([checks.whole("query_start", query_start)])


def _check_heads(heads: dict[str, int], named: dict[str, Tensor]) -> None:
    q, k, v = heads["query"], heads["key"], heads["value"]
    listed = ", ".join(f"{name} {checks.shape(tensor)}" for name, tensor in named.items())
    hint = "axes are (batch, head, length, width)"
    query, key = named["query"], named["key"]
    if query.ndim > 3 and q != k and query.shape[-2] == key.shape[-2]:
        hint = (
            "axes are (batch, head, length, width), these look like (batch, length, head, width): call .transpose(1, 2)"
        )
    if k != v:
        raise ValueError(f"key and value must have the same number of heads, got {k} and {v} ({listed}); {hint}")
    if (q % k if k else q) != 0:
        raise ValueError(
            f"the key's heads must divide the query's, got {q} query heads and {k} key heads ({listed}); {hint}"
        )
