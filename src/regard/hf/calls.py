"""Which attention layers called: what a user asserts to know that regard ran."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import nn

_listening: ContextVar[tuple[list[nn.Module], ...]] = ContextVar("regard_hf_calls", default=())


@contextmanager
def counting() -> Iterator[list[nn.Module]]:
    """The attention modules that call regard inside the block, in order, once for each call.

    >>> with counting() as calls:  # doctest: +SKIP
    ...     model(**inputs)
    >>> calls == [layer.self_attn for layer in model.layers]  # doctest: +SKIP
    True
    """
    calls: list[nn.Module] = []
    token = _listening.set((*_listening.get(), calls))
    try:
        yield calls
    finally:
        _listening.reset(token)


def note(module: nn.Module) -> None:
    """Write the call into every list that is open; a compiled graph writes none."""
    if torch.compiler.is_compiling():
        return
    for calls in _listening.get():
        calls.append(module)
