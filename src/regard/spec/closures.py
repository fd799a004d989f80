"""The tensors that a user's function reads: what it closes over, its defaults, partial arguments and globals."""

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor


def read_tensors(fn: Any) -> tuple[Tensor, ...]:
    """Every tensor that `fn` visibly reads, each once; tensors that it reaches in other ways are missing."""
    return tuple({id(tensor): tensor for tensor in _tensors(fn, set())}.values())


def captured_tensors(fn: Any) -> tuple[Tensor, ...]:
    """Those of them that need gradients."""
    return tuple(tensor for tensor in read_tensors(fn) if tensor.requires_grad)


def _tensors(value: Any, seen: set[int]) -> Iterator[Tensor]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, torch.nn.Module):
        yield from value.parameters()
        yield from value.buffers()
    else:
        inner: Iterable[Any] = ()
        if isinstance(value, functools.partial):
            inner = (value.func, *value.args, *value.keywords.values())
        elif isinstance(value, (list, tuple)):
            inner = value
        elif isinstance(value, dict):
            inner = value.values()
        elif callable(value) and not isinstance(value, type):
            inner = _of_function(value)
        for item in inner:
            yield from _tensors(item, seen)


def _of_function(fn: Any) -> Iterator[Any]:
    for cell in getattr(fn, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a variable that has no value yet
            continue
    yield from getattr(fn, "__defaults__", None) or ()
    yield from (getattr(fn, "__kwdefaults__", None) or {}).values()
    if hasattr(fn, "__self__"):
        yield from (fn.__self__, *vars(fn.__self__).values()) if hasattr(fn.__self__, "__dict__") else (fn.__self__,)
    elif not hasattr(fn, "__code__") and hasattr(fn, "__dict__"):  # an object with __call__
        yield from vars(fn).values()
    known = getattr(fn, "__globals__", {})
    for name in getattr(getattr(fn, "__code__", None), "co_names", ()):
        if isinstance(known.get(name), (Tensor, torch.nn.Module)):
            yield known[name]
