"""Where the benchmark runs: when work there is done, how large its cache is, and the peak memory of a call.

On a processor a fresh child process shows the memory: workspaces of C++ code, torch's own included, never pass torch's
allocator.
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

from regard.bench.cases import Workload
from regard.bench.contenders import Contender, contenders
from regard.bench.machine import cache_bytes, resident_bytes

PATIENCE = 300.0  # seconds for a child process
FAREWELL = 10.0  # seconds for a compiler's workers to end
WARM = 32  # length of a call that loads code and starts threads


class Device:
    """The processor: a call returns when it is done, and the operating system knows the memory of a process."""

    kind = "cpu"

    @property
    def name(self) -> str | None:
        """The product name, if it is not the processor."""
        return None

    def cache_bytes(self) -> int:
        """Size of the last-level cache."""
        return cache_bytes()

    def synchronize(self) -> None:
        """Wait until all work is done."""

    def extra_bytes(self, case: Workload, contender: Contender, engines: Sequence[str] = ("auto",)) -> int | None:
        """Peak memory of the contender's first call, beyond inputs, outputs and gradients.

        A dense mask or bias that the contender needs counts; what made it does not, nor does a compiler. None where
        the system does not tell, or the child fails. Correct to a few pages per thread.
        """
        if not sys.platform.startswith("linux"):
            return None
        start = multiprocessing.get_context("forkserver")
        start.set_forkserver_preload(["regard.bench.device"])
        ours, theirs = start.Pipe(duplex=False)
        given = (theirs, case, contender.name, tuple(engines), torch.get_num_threads())
        child = start.Process(target=_child, args=given, daemon=True)
        child.start()
        theirs.close()
        what = f"the memory of {contender.name} on {case.name} was not measured"
        try:
            if not ours.poll(PATIENCE):
                warnings.warn(f"{what} within {PATIENCE:.0f} s", stacklevel=2)
                return None
            extra = int(ours.recv())
            child.join(FAREWELL)
            return extra
        except EOFError:
            child.join()
            warnings.warn(f"{what}: its process ended with status {child.exitcode}", stacklevel=2)
            return None
        finally:
            child.kill()
            child.join()
            ours.close()


class Cuda(Device):
    """A GPU: calls return before their work is done, and torch's allocator counts the memory."""

    kind = "cuda"

    @property
    def name(self) -> str | None:
        return str(torch.cuda.get_device_name())

    def cache_bytes(self) -> int:
        return int(torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size)

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def extra_bytes(self, case: Workload, contender: Contender, engines: Sequence[str] = ("auto",)) -> int | None:
        """As on a processor, a dense mask that the contender needs counts, and a compiler's own work does not."""
        inputs, output_gradient = case.inputs(), case.output_gradient()
        work = contender.prepare(case, inputs)
        if contender.compiles:
            before = self._allocated()
        else:
            del work
            before = self._allocated()
            work = contender.prepare(case, inputs)
        self.synchronize()
        torch.cuda.reset_peak_memory_stats()
        results = contender.run(work, inputs, output_gradient)
        self.synchronize()
        most = int(torch.cuda.max_memory_allocated())
        return max(0, most - before - sum(tensor.nbytes for tensor in results))

    def _allocated(self) -> int:
        self.synchronize()
        return int(torch.cuda.memory_allocated())


def device(kind: str) -> Device:
    """The device of that name, or why there is none."""
    if kind == "cpu":
        return Device()
    if kind != "cuda":
        raise ValueError(f"--device must be cpu or cuda, got {kind!r}")
    if not torch.cuda.is_available():
        built = "finds no GPU" if torch.version.cuda or torch.version.hip else "was built without CUDA"
        raise ValueError(f"--device cuda needs a GPU that torch can use, and torch {torch.__version__} {built}")
    return Cuda()


def _child(answer: Connection, case: Workload, name: str, engines: Sequence[str], threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, which ends this process
    torch.set_num_threads(threads)
    contender = next(each for each in contenders(case, engines) if each.name == name)
    if not contender.compiles:
        small = case.sized(n=min(WARM, case.shape.n))
        inputs = small.inputs()
        contender.run(contender.prepare(small, inputs), inputs, small.output_gradient())
    inputs, output_gradient = case.inputs(), case.output_gradient()
    if contender.compiles:
        work = contender.prepare(case, inputs)
        before = _trimmed()
    else:
        before = _trimmed()
        work = contender.prepare(case, inputs)
        _trimmed()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins again at what is resident now
    results = contender.run(work, inputs, output_gradient)
    most = resident_bytes("VmHWM")
    assert most is not None
    answer.send(max(0, most - before - sum(tensor.nbytes for tensor in results)))


def _trimmed() -> int:
    """Resident bytes of this process, after what is free went back to the system."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    resident = resident_bytes()
    assert resident is not None
    return resident
