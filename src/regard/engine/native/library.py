"""The native library: its C structs, loading it, and running an entry point with Ctrl-C and progress."""

import _thread
import ctypes
import os
import sys
import threading
from ctypes import POINTER, Structure, c_char_p, c_double, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.engine.fork import LOADING, OPENMP
from regard.progress import CALLBACK, Progress

DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
FORMS = {"tanh": 1, "sigmoid": 2, "relu": 3, "gelu": 4}  # of v · φ(a + b); 0 is q · k
DONE, NO_MEMORY, NOT_FINITE, STOPPED = 0, 2, 3, 4


def lazy(tensor: Tensor) -> bool:
    """Whether torch holds other numbers than lie in memory: a sign not yet changed, or zeros without memory."""
    return tensor.is_neg() or tensor._is_zerotensor()


def plain(tensor: Tensor) -> Tensor:
    """The tensor as its memory must be to be read by address."""
    if tensor._is_zerotensor():
        return torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu")
    return tensor.resolve_neg()


def address(tensor: Tensor) -> int:
    """Where its numbers lie; some subclasses have none, and a storage may have been released."""
    found = tensor.data_ptr()
    if found == 0 and tensor.numel():
        raise TypeError(f"a {type(tensor).__name__} has no memory that the native engine could read")
    return found


class Strided(Structure):
    """A 4-D tensor: data and strides in elements."""

    _fields_ = [("data", c_void_p), *((name, c_int64) for name in ("batch", "head", "row", "column"))]

    @classmethod
    def of(cls, tensor: Tensor) -> "Strided":
        """Describe a 4-D tensor; an axis of size 1 is never stepped along."""
        strides = (0 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        return cls(address(tensor), *strides)


class MaskOp(Structure):
    """One step of a mask in postfix order."""

    _fields_ = [
        *((name, c_int64) for name in ("code", "a", "b")),
        *((name, c_void_p) for name in ("data", "data2", "data3")),
        *((name, c_int64) for name in ("batch", "head", "row", "column")),
    ]


SIZES = ("dtype", "batch", "kv_heads", "group", "queries", "keys", "d_key", "d_value", "threads")
RESULTS = ("out", "lse", "row_max", "row_sum", "entropy", "peak", "distance", "max_logit", "peak_at")
GRADIENTS = ("grad_query", "grad_key", "grad_value", "grad_temperature", "grad_sink", "grad_offset_table", "grad_v")


class Call(Structure):
    """One call; field for field `regard_call` of native/regard.h."""

    _fields_ = [
        *((name, c_int64) for name in SIZES),
        ("stop", POINTER(c_int32)),
        ("progress", POINTER(c_int64)),
        *((name, Strided) for name in ("query", "key", "value")),
        ("form", c_int64),
        ("v", c_void_p),
        ("scale", c_double),
        ("cap", c_double),
        ("temperature", c_void_p),
        ("sink", c_void_p),
        ("query_start", c_void_p),
        ("key_start", c_int64),
        ("mask", POINTER(MaskOp)),
        ("mask_ops", c_int64),
        ("slopes", c_void_p),
        ("offset_table", c_void_p),
        ("reach", c_int64),
        ("offset_heads", c_int64),
        ("dense_bias", Strided),
        ("seed", c_uint64),
        ("drop_below", c_uint32),
        ("keep_scale", c_double),
        *((name, c_void_p) for name in RESULTS),
        ("grad_out", Strided),
        ("grad_lse", c_void_p),
        ("grad_entropy", c_void_p),
        *((name, c_void_p) for name in GRADIENTS),
        ("grad_dense", Strided),
        ("tile", c_void_p),
        *((name, c_int64) for name in ("tile_row", "tile_rows", "tile_column", "tile_columns")),
        ("received", c_void_p),
        ("spread", c_void_p),
        ("weight_sum", c_void_p),
        ("pool_rows", c_int64),
        ("pool_columns", c_int64),
        *((name, c_void_p) for name in ("pool_sum", "pool_max", "pool_pairs")),
    ]


class KindStruct(Structure):
    """A kind of keys; field for field `regard_kind` of native/regard.h."""

    _fields_ = [
        *((name, c_void_p) for name in ("key_ids", "query_ids")),
        *((name, c_int64) for name in ("key_batch", "query_batch", "ids", "excludes", "excluded")),
    ]


class HeadSums(Structure):
    """What a head pass gives; field for field `regard_head_sums` of native/regard.h."""

    _fields_ = [
        ("products", c_void_p),
        ("kinds", POINTER(KindStruct)),
        ("kind_count", c_int64),
        ("shares", c_void_p),
        ("weights", c_void_p),
        ("weights_batch", c_int64),
        ("rows", c_void_p),
        *((name, c_int64) for name in ("row_count", "column", "columns")),
    ]


class Matrices(Structure):
    """One product of matrices; field for field `regard_product` of native/regard.h."""

    _fields_ = [
        *((name, c_int64) for name in ("dtype", "batch", "heads", "rows", "depth", "columns", "threads")),
        *((name, Strided) for name in ("a", "b", "c")),
    ]


def _path() -> Path | None:
    """What REGARD_LIBRARY names, or the one beside this file, or where an editable installation put it."""
    if asked := os.environ.get("REGARD_LIBRARY"):
        if not Path(asked).is_file():
            raise _not_a_build(asked, "there is no such file")
        return Path(asked).resolve()
    name = f"libregard.{ {'win32': 'dll', 'darwin': 'dylib'}.get(sys.platform, 'so') }"
    if (beside := Path(__file__).parent / name).exists():
        return beside
    try:
        files = metadata.files("regard") or []
    except metadata.PackageNotFoundError:
        return None
    return next((path for file in files if file.name == name and (path := Path(str(file.locate()))).exists()), None)


def _not_a_build(asked: str, why: object) -> ValueError:
    return ValueError(
        f"the environment's REGARD_LIBRARY must name a build of regard's shared library, got {asked!r}: {why}; "
        "unset it, and the package's own is loaded"
    )


GET_IT = (
    "to get it, install GCC 12 or Clang 14, or newer, and then regard again, with pip's options --force-reinstall "
    "--no-deps --no-cache-dir"
)


@cache
def library() -> ctypes.CDLL | None:
    """The library, or None where the package was built without a compiler, or its library does not load."""
    found = _load()
    return None if isinstance(found, str) else found


def absence() -> str | None:
    """None, or why there is no library, and how to get it."""
    found = _load()
    return found if isinstance(found, str) else None


@cache
def _load() -> ctypes.CDLL | str:
    path = _path()
    if path is None:
        return f"this installation has no native core; {GET_IT}"
    with LOADING:
        return _loaded(path)


def _loaded(path: Path) -> ctypes.CDLL | str:
    try:
        found = ctypes.CDLL(os.fspath(path))
        found.regard_forward  # noqa: B018  (looked up, not called)
    except (OSError, AttributeError) as error:
        if asked := os.environ.get("REGARD_LIBRARY"):
            raise _not_a_build(asked, error) from None
        return f"this installation has no native core that works here ({error}); {GET_IT}"
    for name in ("regard_forward", "regard_backward", "regard_second_pass"):
        getattr(found, name).argtypes = [POINTER(Call)]
        getattr(found, name).restype = c_int
    if hasattr(found, "regard_head_pass"):  # a library that was built before the newest sources lacks it
        found.regard_head_pass.argtypes, found.regard_head_pass.restype = [POINTER(Call), POINTER(HeadSums)], c_int
    found.regard_multiply.argtypes, found.regard_multiply.restype = [POINTER(Matrices)], c_int
    found.regard_plan.argtypes = [POINTER(Call), POINTER(c_int64), POINTER(c_int64)]
    found.regard_workspace.restype = found.regard_workspace_peak.restype = c_int64
    found.regard_isa.restype = c_char_p
    chosen, asked = found.regard_isa().decode(), os.environ.get("REGARD_ISA")
    if asked and asked != chosen:
        raise ValueError(
            "the environment's REGARD_ISA must be portable, avx2 or avx512, and the processor must have it; "
            f"got {asked!r}, and only {chosen!r} would be left; unset it, and the best one is chosen"
        )
    if team := _torch_team():
        found.regard_use_team.argtypes = [c_void_p]
        found.regard_use_team.restype = None
        found.regard_use_team(team)
        OPENMP.append(True)
    return found


def _torch_team() -> int | None:
    """The address of GOMP_parallel in the OpenMP runtime that torch has loaded, or None.

    Its threads spin for a while after every parallel operator of torch; beside them a pool of our own has half a core.
    """
    asked = os.environ.get("REGARD_POOL", "torch")
    if asked not in ("torch", "own"):
        raise ValueError(f"the environment's REGARD_POOL must be torch or own, got {asked!r}")
    if asked == "own" or not sys.platform.startswith("linux"):
        return None
    home = Path(torch.__file__).parent
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = Path(line.split(maxsplit=5)[-1])
        if path.name.startswith(("libgomp", "libiomp")) and (
            home in path.parents or home.with_suffix(".libs") in path.parents
        ):
            return ctypes.cast(ctypes.CDLL(os.fspath(path)).GOMP_parallel, c_void_p).value
    return None


def isa() -> str | None:
    """The instruction set in use, or None without the library."""
    found = library()
    return None if found is None else str(found.regard_isa().decode())


LONG = 5e10  # floating-point operations (a tenth of a second or more) from which a call must answer Ctrl-C
WORK = {0: 1, FORMS["relu"]: 4}  # multiply-adds of one unit of a score; 10 for the others


def work_of(call: Call) -> float:
    """Floating-point operations of the forward pass if nothing is hidden."""
    pairs: int = call.batch * call.kv_heads * call.group * call.queries * call.keys
    width: int = WORK.get(call.form, 10) * call.d_key + call.d_value
    return 2.0 * pairs * width


def run_kernel(name: str, call: Call, *owners: object) -> int:
    """Run one entry point. It releases the interpreter's lock while it works, and a long one answers Ctrl-C.

    `owners` hold the memory that `call` points to. They are kept until the kernel has returned, whatever happens.
    """
    return run_entry(getattr(library(), name), call, work_of(call) > LONG, *owners)


def run_entry(entry: Any, call: Call, long: bool, *owners: object) -> int:
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
