"""Memory: how many bytes the tensors made inside a block hold, now and at most."""

import weakref
from collections.abc import Sequence
from functools import reduce
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class Memory(TorchDispatchMode):
    """Counts storages from the operation that makes them to the moment they are freed.

    What exists before the block is not counted, and a view costs nothing. Tensors on the device "meta" count with the
    size they would have, so a block can be weighed without being carried.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held: int = 0
        self.peak: int = 0
        self._alive: set[int] = set()

    def __enter__(self) -> Self:
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = [tensor for tensor in tree_iter((args, kwargs)) if isinstance(tensor, Tensor)]
        found = func(*args, **(kwargs or {}))
        made = [tensor for tensor in tree_iter(found) if isinstance(tensor, Tensor)]
        known = {tensor.untyped_storage()._cdata for tensor in given} | self._alive
        for tensor in made:
            storage = tensor.untyped_storage()
            if storage._cdata not in known:
                known.add(storage._cdata)
                self._add(storage)
        self.peak = max(self.peak, self.held + _casts(func, given, made))
        return found

    def _add(self, storage: torch.UntypedStorage) -> None:
        self._alive.add(storage._cdata)
        weakref.finalize(storage, self._drop, storage._cdata, storage.nbytes()).atexit = False
        self.held += storage.nbytes()

    def _drop(self, identity: int, size: int) -> None:
        self._alive.discard(identity)
        self.held -= size


def _casts(func: Any, given: list[Tensor], made: list[Tensor]) -> int:
    """Bytes of the copies in another type that torch makes unseen: of mixed operands, of bools to be summed."""
    kind, aten = func.overloadpacket, torch.ops.aten
    if not (torch.Tag.pointwise in func.tags or kind in (aten.sum, aten.cumsum)) or not given or not made:
        return 0
    wanted = made[0].dtype
    if wanted == torch.bool:  # a comparison: its operands are cast to what all of them fit in
        wanted = reduce(torch.promote_types, (tensor.dtype for tensor in given))
    operands = given[1:] if kind is aten.where else given  # a condition stays what it is
    return sum(tensor.numel() * wanted.itemsize for tensor in operands if tensor.dtype != wanted)
