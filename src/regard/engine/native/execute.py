"""Running an entry point of the native library: its status as an exception, Ctrl-C, and progress."""

import _thread
import ctypes
import threading
from typing import Any

from regard.engine.native.library import DONE, FORMS, NO_MEMORY, NOT_FINITE, Call, library
from regard.progress import CALLBACK, Progress

LONG = 5e10  # floating-point operations (a tenth of a second or more) from which a call must answer Ctrl-C
WORK = {0: 1, FORMS["relu"]: 4}  # multiply-adds of one unit of a score; 10 for the others


def work_of(call: Call) -> float:
    """Floating-point operations of the forward pass if nothing is hidden."""
    pairs: int = call.batch * call.kv_heads * call.group * call.queries * call.keys
    width: int = WORK.get(call.form, 10) * call.d_key + call.d_value
    return 2.0 * pairs * width


def execute(name: str, call: Call, *owners: object) -> int:
    """Run one entry point. It releases the interpreter's lock while it works, and a long one answers Ctrl-C.

    `owners` hold the memory that `call` points to. They are kept until the kernel has returned, whatever happens.
    """
    return run(getattr(library(), name), call, work_of(call) > LONG, *owners)


def run(entry: Any, call: Call, long: bool, *owners: object) -> int:
    """The same for an entry point that is at hand."""
    waits = long and threading.current_thread() is threading.main_thread()
    status: int = _interruptible(entry, call, owners) if waits else entry(call)
    if status == NO_MEMORY:
        raise MemoryError("the native engine could not allocate its workspace")
    if status not in (DONE, NOT_FINITE):
        raise RuntimeError(f"the native engine returned status {status}")
    return status


def _interruptible(entry: Any, call: Call, owners: tuple[object, ...]) -> int:
    """Run the kernel in another thread, because Python handles signals only between its own instructions.

    An exception, such as KeyboardInterrupt, asks the kernel to stop and is raised after the kernel has returned. The
    kernel counts as returned when `status` has an entry: `Thread.join` does not tell after it was interrupted once.
    A second interrupt may end this function early. That is safe too: the thread itself keeps `call` and `owners`.
    """
    stop, progress, status = ctypes.c_int32(0), (ctypes.c_int64 * 2)(), []
    call.stop, call.progress = ctypes.pointer(stop), progress
    callback = CALLBACK.get()
    returned = _thread.allocate_lock()
    returned.acquire()

    def compute(kept: tuple[object, ...]) -> None:
        code = -1
        try:
            code = entry(call)
        finally:
            status.append(code)
            returned.release()

    interrupt: BaseException | None = None
    try:
        _thread.start_new_thread(compute, ((stop, progress, owners),))
    except RuntimeError:  # no thread can be had: the call cannot be interrupted
        return int(entry(call))
    except BaseException as error:
        stop.value, interrupt = 1, error
    while not status:
        try:
            waiting = not returned.acquire(timeout=0.1)
            if callback is not None and interrupt is None and progress[1]:
                done, total = progress
                callback(Progress("computing attention", done if waiting else total, total, "blocks"))
        except BaseException as error:
            stop.value, interrupt = 1, interrupt or error
    if interrupt is not None:
        raise interrupt
    return int(status[0])
