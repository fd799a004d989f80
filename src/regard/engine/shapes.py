"""Shapes: how the user's axes become (batch, kv head, group, length, width) and back."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard import checks
from regard.engine.transforms import refuse_trace, tracing

AXES = "axes are (batch, head, length, width)"


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
        if not torch.compiler.is_compiling() and tracing() is not None:
            refuse_trace()
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
        _check_lengths(named)
        _check_heads(named)
        kv_heads = _heads(key)
        return cls(
            leading=_leading(named),
            kv_heads=kv_heads,
            group=_heads(query) // kv_heads if kv_heads else 1,
            queries=query.shape[-2],
            keys=key.shape[-2],
            d_value=value.shape[-1],
            rank=max(tensor.ndim for tensor in named.values()),
        )

    def fold_leading(self, name: str, tensor: Tensor) -> Tensor:
        """A mask or bias as (batch, head, query, key); its batch axes broadcast to those of the inputs."""
        axes, rest = tensor.shape[:-3], tensor.shape[-3:]
        if len(axes) < 2 and (len(self.leading) < 2 or axes.numel() == 1):
            return tensor
        try:
            return tensor.expand(*self.leading, *rest).reshape(self.batch, *rest)
        except RuntimeError as error:
            raise ValueError(
                f"the batch axes of {name} {checks.shape(tensor)} do not broadcast to those of the inputs, "
                f"{self.leading}; axes are (batch, head, query, key), each of them 1 or equal"
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


def _check_lengths(named: dict[str, Tensor]) -> None:
    query, key, value = named.values()
    if key.shape[-2] == value.shape[-2]:
        return
    hint = _swapped(named)
    if key.shape[-1] == value.shape[-2] and key.shape[-2] == query.shape[-1]:
        hint = "key looks like (…, width, length): pass key.mT"
    elif key.shape[-1] == value.shape[-1] and key.shape[-2] == query.shape[-2]:
        hint = "they look like (…, width, length): pass query.mT, key.mT and value.mT"
    raise ValueError(f"key and value must have the same length, got {_listed(named)}; {hint or AXES}")


def _check_heads(named: dict[str, Tensor]) -> None:
    q, k, v = map(_heads, named.values())
    if k == v and (q % k if k else q) == 0:
        return
    hint = _swapped(named) or AXES
    if k != v:
        raise ValueError(
            f"key and value must have the same number of heads, got {k} and {v} ({_listed(named)}); {hint}"
        )
    raise ValueError(
        f"the key's heads must divide the query's, got {q} query heads and {k} key heads ({_listed(named)}); {hint}"
    )


def _swapped(named: dict[str, Tensor]) -> str | None:
    """What to do if the shapes would fit with heads and lengths exchanged in some of the inputs."""
    if min(tensor.ndim for tensor in named.values()) < 3:
        return None
    for names in (("query", "key", "value"), ("query",), ("key", "value"), ("key",), ("value",)):
        turned = {name: tensor.transpose(-3, -2) if name in names else tensor for name, tensor in named.items()}
        q, k, v = map(_heads, turned.values())
        lengths = {tensor.shape[-2] for tensor in turned.values()}
        likely = all(_heads(tensor) <= min(lengths) for tensor in turned.values())  # few heads, long sequences
        if likely and k and k == v and q % k == 0 and turned["key"].shape[-2] == turned["value"].shape[-2]:
            what = f"{names[0]} looks" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} look"
            return f"{what} like (batch, length, head, width): call .transpose(-3, -2)"
    return None


def _heads(tensor: Tensor) -> int:
    return tensor.shape[-3] if tensor.ndim > 2 else 1


def _listed(named: dict[str, Tensor]) -> str:
    return ", ".join(f"{name} {checks.shape(tensor)}" for name, tensor in named.items())


def _leading(named: dict[str, Tensor]) -> tuple[int, ...]:
    """The batch axes that all three broadcast to (torch.broadcast_shapes would load sympy, half a second, first)."""
    sizes = [tuple(tensor.shape[:-3]) for tensor in named.values()]
    rank = max(map(len, sizes))
    aligned = [(1,) * (rank - len(size)) + size for size in sizes]
    found = [{size for size in axis if size != 1} or {1} for axis in zip(*aligned, strict=True)]
    if any(len(axis) > 1 for axis in found):
        raise ValueError(f"the batch axes of {_listed(named)} do not broadcast; make them equal or 1")
    return tuple(axis.pop() for axis in found)
