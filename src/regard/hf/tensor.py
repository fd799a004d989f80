"""MaskTensor: a mask with structure that passes through a model as the bool tensor it stands for.

Models hand masks on, look at their shape, slice or combine them. Handed on untouched, the structure arrives at the
attention half and nothing of the size queries × keys is built. Any operation on it builds the bools, works on those,
and from then on they are the mask: whatever a model does, it does to an ordinary tensor.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from regard.spec.masks import Mask
from regard.spec.plane import Plane


@dataclass(eq=False)
class SharedMask:
    """What a MaskTensor and its aliases share: the mask, where query 0 stands, and the bools once they are built."""

    mask: Mask
    start: int
    size: tuple[int, int, int]
    device: torch.device
    bools: Tensor | None = None

    def materialize(self) -> Tensor:
        """The mask as bools, (batch, 1, query, key), built at most once, so that writes to them last."""
        if self.bools is None:
            batch, queries, keys = self.size
            start = torch.tensor([self.start], device="cpu", dtype=torch.int64)
            plane = Plane(batch, 1, 1, queries, keys, start, 0, self.device)
            seen = self.mask.visible(plane.all).expand(batch, 1, 1, queries, keys)
            self.bools = seen.squeeze(2).clone(memory_format=torch.contiguous_format)
        return self.bools

    def copied(self) -> "SharedMask":
        """The same mask, to which writes do not show here."""
        return replace(self, bools=None if self.bools is None else self.bools.clone())


class MaskTensor(Tensor):
    """A bool tensor that is a mask until an operation needs its numbers."""

    shared: SharedMask
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, shared: SharedMask) -> "MaskTensor":
        batch, queries, keys = shared.size
        made: MaskTensor = Tensor._make_wrapper_subclass(
            cls, (batch, 1, queries, keys), dtype=torch.bool, device=shared.device
        )
        made.shared = shared
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if _is_alias(func, args, kwargs or {}):
            return cls(args[0].shared)
        if func is torch.ops.aten.clone.default:
            return cls(args[0].shared.copied())
        plain_args, plain_kwargs = tree_map_only(cls, lambda mask: mask.shared.materialize(), (args, kwargs or {}))
        return func(*plain_args, **plain_kwargs)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        what = repr(self.shared.mask) if self.shared.bools is None else "bools"
        return f"MaskTensor({what}, start={self.shared.start}, shape={tuple(self.shape)})"

    def __deepcopy__(self, memo: Any) -> "MaskTensor":
        return MaskTensor(self.shared.copied())

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.shared.materialize().__reduce_ex__(protocol)


def _is_alias(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the result is the same mask: detach, alias, and slices that leave nothing out."""
    aten = torch.ops.aten
    if func in (aten.detach.default, aten.alias.default):
        return True
    if func is not aten.slice.Tensor or kwargs:
        return False
    mask, axis, start, stop, step = (list(args) + [None] * 5)[:5]
    return start in (None, 0) and step in (None, 1) and (stop is None or stop >= mask.shape[axis or 0])
