"""Where the benchmark runs: when work there is over, how large its cache is, and what it holds."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.bench.agree import direction, run
from regard.bench.case import Case
from regard.bench.contenders import Contender
from regard.bench.machine import cache_bytes
from regard.bench.memory import extra_bytes


class Device:
    """The processor: a call returns when it is done, and the operating system tells what a process holds."""

    kind = "cpu"

    @property
    def name(self) -> str | None:
        """What the makers call it, if it is not the processor."""
        return None

    def cache_bytes(self) -> int:
        """Size of the last-level cache."""
        return cache_bytes()

    def settle(self) -> None:
        """Wait until all work is done."""

    def weigh(self, case: Case, contender: Contender, engines: Sequence[str]) -> int | None:
        """The most that a call holds beyond inputs, outputs and gradients; None where nobody tells."""
        return extra_bytes(case, contender.name, engines)


class Cuda(Device):
    """A GPU: calls return before their work is done, and torch's allocator tells what they hold."""

    kind = "cuda"

    @property
    def name(self) -> str | None:
        return str(torch.cuda.get_device_name())

    def cache_bytes(self) -> int:
        return int(torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size)

    def settle(self) -> None:
        torch.cuda.synchronize()

    def weigh(self, case: Case, contender: Contender, engines: Sequence[str]) -> int | None:
        """As on a processor, a dense mask that the contender needs counts, and a compiler's own work does not."""
        inputs, back = case.inputs(), direction(case) if case.backward else None
        work = contender.prepare(case, inputs)
        if contender.compiles:
            before = self._allocated()
        else:
            del work
            before = self._allocated()
            work = contender.prepare(case, inputs)
        self.settle()
        torch.cuda.reset_peak_memory_stats()
        found: tuple[Tensor, ...] = run(case, contender, work, inputs, back)
        self.settle()
        most = int(torch.cuda.max_memory_allocated())
        return max(0, most - before - sum(tensor.nbytes for tensor in found))

    def _allocated(self) -> int:
        self.settle()
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
