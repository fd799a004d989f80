"""Layers that are given nested tensors: only torch's fast path takes them, and it stays shut where a mode listens."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

FAST = (nn.MultiheadAttention, nn.TransformerEncoderLayer)
Seen = Callable[[nn.Module, Tensor], None]


class _Local(threading.local):
    def __init__(self) -> None:
        self.seen: list[Seen] = []  # of the open blocks of this thread


_local, _lock = _Local(), threading.Lock()
_open = 0  # blocks, in all threads


@contextmanager
def fast_path_for_nested(seen: Seen) -> Iterator[None]:
    """In this thread, hide all modes from such a layer while it runs, after telling `seen`."""
    _count(1)
    _local.seen.append(seen)
    try:
        yield
    finally:
        _local.seen.pop()
        _count(-1)


def _count(step: int) -> None:
    """The first block gives these layers a `__call__` of their own, the last takes it away."""
    global _open
    with _lock:
        _open += step
        for layer in FAST:
            if _open == 1 and step == 1:
                layer.__call__ = _called  # type: ignore[method-assign]
            elif _open == 0:
                del layer.__call__


def _called(layer: nn.Module, *args: Any, **kwargs: Any) -> Any:
    if torch.compiler.is_dynamo_compiling() or not _local.seen or not torch._C._is_torch_function_enabled():
        return nn.Module.__call__(layer, *args, **kwargs)
    given = args[0] if args else next(iter(kwargs.values()), None)
    if not isinstance(given, Tensor) or not given.is_nested:
        return nn.Module.__call__(layer, *args, **kwargs)
    _local.seen[-1](layer, given)
    with torch._C.DisableTorchFunction():
        return nn.Module.__call__(layer, *args, **kwargs)
