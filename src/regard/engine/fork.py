"""Forking: a fork waits until imports and library loads that other threads have begun are finished.

A child of fork has only the thread that called it. A lock that another thread held at that moment is never released in
the child, so an import of the same module would wait forever, and a library would be half loaded.
"""

import _imp
import os
import threading
import time
from importlib import _bootstrap

import torch

PATIENCE = 20.0  # seconds; an import that takes longer may itself wait for the thread that forks

#: held while the native library is loaded
LOADING = threading.RLock()
#: not empty once the native library runs on torch's OpenMP threads
OPENMP: list[bool] = []


def _imports_elsewhere() -> bool:
    """Whether another thread is importing: every import under way has an entry in importlib's table of locks."""
    here = threading.get_ident()
    locks = [reference() for reference in list(getattr(_bootstrap, "_module_locks", {}).values())]
    return any(lock is not None and getattr(lock, "owner", None) not in (None, here) for lock in locks)


def _before() -> None:
    """Take both locks at a moment when no import is under way; none can begin until they are released."""
    deadline = time.monotonic() + PATIENCE
    while True:
        LOADING.acquire()
        _imp.acquire_lock()
        if not _imports_elsewhere() or time.monotonic() > deadline:
            return
        _after()
        time.sleep(0.001)


def _after() -> None:
    _imp.release_lock()
    LOADING.release()


def _in_child() -> None:
    """torch's OpenMP threads are gone in a child, and an operator that waits for them would wait forever."""
    _after()
    if OPENMP:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
