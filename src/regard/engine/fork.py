"""Forking: a fork waits until imports, library loads and short locked sections of other threads are finished.

A child of fork has only the thread that called it. A lock that another thread held at that moment is never released in
the child, so an import of the same module would wait forever, and a library would be half loaded. Locks that are held
for long do not exist in this package for the same reason (see `regard.cached`).

torch has such locks too. The first call of each of its operators initializes a static variable of a C++ function, which
the compiler guards by a lock. Operators run without the GIL, so a fork can meet the guard locked. So a fork keeps
the GIL for SETTLE seconds before it goes on: other threads finish short operators and then wait for the GIL.
"""

import _imp
import ctypes
import os
import sys
import threading
import time
from importlib import _bootstrap

import torch

PATIENCE = 20.0  # seconds; an import that takes longer may itself wait for the thread that forks
SETTLE = 0.02  # seconds; an operator is initialized in microseconds, on a busy machine in milliseconds
QUIET = 0.2  # seconds for which no thread asks the one that forks to hand over the GIL

#: held while the native library is loaded
LOADING = threading.RLock()
#: not empty once an engine runs on torch's OpenMP threads
OPENMP: list[bool] = []
#: locks of short sections, and those of them that the fork under way has taken
_locks: list["threading.RLock"] = []
_taken: list["threading.RLock"] = []
#: Python's switch interval before the forks under way
_interval: list[float] = []


def fork_waits() -> "threading.RLock":
    """A new lock, for short sections: a fork waits until no other thread has it."""
    lock = threading.RLock()
    _locks.append(lock)
    return lock


def _imports_elsewhere() -> bool:
    """Whether another thread is importing: every import under way has an entry in importlib's table of locks."""
    here = threading.get_ident()
    locks = [reference() for reference in list(getattr(_bootstrap, "_module_locks", {}).values())]
    return any(lock is not None and getattr(lock, "owner", None) not in (None, here) for lock in locks)


def _before() -> None:
    """Take all locks at a moment when no import is under way; none can begin until they are released.

    LOADING comes first and is waited for. The others are only tried: their owners may want one that is taken here.
    """
    deadline = time.monotonic() + PATIENCE
    alone = len(sys._current_frames()) == 1
    if not alone:
        _keep_the_gil()
    while True:
        LOADING.acquire()
        _imp.acquire_lock()
        _taken[:] = [lock for lock in _locks if lock.acquire(blocking=False)]
        if time.monotonic() > deadline or not (len(_taken) < len(_locks) or _imports_elsewhere()):
            break
        _release()
        time.sleep(0.001)
    if not alone:
        _sleep_with_the_gil(SETTLE)


def _keep_the_gil() -> None:
    """Let no thread ask for the GIL within the next moments: it would be handed over between two steps of the fork.

    A thread that already waits does so with the old interval, which is over after the sleep.
    """
    old = sys.getswitchinterval()
    _interval.append(old)
    sys.setswitchinterval(max(old, QUIET))
    time.sleep(min(2 * old, QUIET))


def _sleep_with_the_gil(seconds: float) -> None:
    """Sleep without releasing the GIL, which only a function of `PyDLL` does."""
    ctypes.PyDLL(None).usleep(ctypes.c_uint(int(seconds * 1e6)))


def _after() -> None:
    if _interval:
        sys.setswitchinterval(_interval.pop())
    _release()


def _release() -> None:
    while _taken:
        _taken.pop().release()
    _imp.release_lock()
    LOADING.release()


def _in_child() -> None:
    """torch's OpenMP threads are gone in a child, and an operator that waits for them would wait forever."""
    for lock in _locks:
        if lock not in _taken:  # the wait was given up
            lock._at_fork_reinit()  # type: ignore[attr-defined]
    _after()
    if OPENMP:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
