"""Threads: a model whose modules run in another thread than that of its capture is followed there, and told as missed.

Modes of torch hold for one thread. Modules are called through `nn.Module.__call__` in every thread, so this is where a
thread that nobody listens in is noticed.
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import wraps
from typing import Any

import torch
from torch import nn

from regard.inspection.hooks.missed import Watch


class _Local(threading.local):
    def __init__(self) -> None:
        self.here: list[Watch] = []  # whose capture was begun in this thread
        self.elsewhere: list[Watch] = []  # whose model runs in this thread, and whose capture was begun in another


local = _Local()
_open: list[Watch] = []


def begin(watch: Watch) -> Callable[[], None]:
    """Watch for its model in other threads than this; returns what ends it."""
    _open.append(watch)
    local.here.append(watch)
    here = local.here

    def end() -> None:
        _open.remove(watch)
        here.remove(watch)

    return end


def tapped(following: Callable[[Watch], AbstractContextManager[Any]]) -> Callable[[], None]:
    """Follow every model that is watched in threads that are not its own; returns what takes this back."""
    original = nn.Module.__call__

    @wraps(original)
    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(self, *args, **kwargs)
        new = [watch for watch in _open if watch not in local.here and watch not in local.elsewhere]
        new = [watch for watch in new if self in watch.names]
        if not new:
            return original(self, *args, **kwargs)
        with ExitStack() as stack:
            for watch in new:
                local.elsewhere.append(watch)
                stack.callback(local.elsewhere.remove, watch)
                stack.enter_context(following(watch))
            return original(self, *args, **kwargs)

    nn.Module.__call__ = call  # type: ignore[method-assign]

    def back() -> None:
        nn.Module.__call__ = original  # type: ignore[method-assign]

    return back
