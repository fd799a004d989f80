"""Memory beyond inputs and outputs: what a process grows by during one call, seen by the operating system.

Workspaces of C++ code, torch's own included, never pass torch's allocator; a fresh child process shows them all.
"""

import ctypes
import multiprocessing
import signal
import sys
import warnings
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from regard.bench.agree import direction, run
from regard.bench.case import Case
from regard.bench.contenders import Contender, contenders

PATIENCE = 300.0  # seconds
FAREWELL = 10.0
WARM = 32  # length of a call that loads code and starts threads


def extra_bytes(case: Case, name: str, engines: Sequence[str] = ("auto",)) -> int | None:
    """The most that the contender's process holds during its first call, beyond inputs, outputs and gradients.

    A dense mask or bias that the contender needs counts; what made it does not, nor does a compiler. None where the
    system does not tell, or the child fails. Correct to a few pages per thread.
    """
    if not sys.platform.startswith("linux"):
        return None
    start = multiprocessing.get_context("forkserver")
    start.set_forkserver_preload(["regard.bench.memory"])
    ours, theirs = start.Pipe(duplex=False)
    child = start.Process(
        target=_child, args=(theirs, case, name, tuple(engines), torch.get_num_threads()), daemon=True
    )
    child.start()
    theirs.close()
    try:
        if not ours.poll(PATIENCE):
            warnings.warn(f"{name} on {case.name} was not weighed within {PATIENCE:.0f} s", stacklevel=2)
            return None
        found = int(ours.recv())
        child.join(FAREWELL)  # a compiler's workers want to be sent home
        return found
    except EOFError:
        child.join()
        why = f"its process ended with status {child.exitcode}"
        warnings.warn(f"{name} on {case.name} was not weighed: {why}", stacklevel=2)
        return None
    finally:
        child.kill()
        child.join()
        ours.close()


def _child(answer: Connection, case: Case, name: str, engines: Sequence[str], threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C, and ends this process
    torch.set_num_threads(threads)
    contender = next(each for each in contenders(case, engines) if each.name == name)
    answer.send(_growth(case, contender))


def _growth(case: Case, contender: Contender) -> int:
    if not contender.compiles:
        small = case.sized(n=min(WARM, case.shape.n))
        inputs, back = small.inputs(), direction(small) if small.backward else None
        run(small, contender, contender.prepare(small, inputs), inputs, back)
    inputs, back = case.inputs(), direction(case) if case.backward else None
    if contender.compiles:
        work = contender.prepare(case, inputs)
        before = _settled()
    else:
        before = _settled()
        work = contender.prepare(case, inputs)
        _settled()
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins again at what is held now
    found = run(case, contender, work, inputs, back)
    most = _status("VmHWM")
    return max(0, most - before - sum(tensor.nbytes for tensor in found))


def _settled() -> int:
    """Bytes held, after what is free went back to the system."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return _status("VmRSS")


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    raise OSError(f"/proc/self/status has no {name}")
