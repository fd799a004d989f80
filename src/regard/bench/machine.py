"""The machine under the benchmark: its name, its best rates, and the memory of this process."""

import datetime
import os
import platform
from ctypes import c_double, c_int64, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from regard.engine.native.library import isa, library

BURST = 0.01  # seconds of multiply-adds between two rounds
CACHE = 64 << 20  # bytes of the last-level cache where it is not known


@dataclass(frozen=True)
class Machine:
    """Where and when numbers were taken."""

    processor: str
    cores: int
    threads: int
    isa: str | None
    cache_bytes: int
    system: str
    python: str
    torch: str
    date: str
    gpu: str | None = None

    def __str__(self) -> str:
        used = f"{self.threads} of {self.cores} cores" if self.threads < self.cores else f"{self.cores} cores"
        here = f"{self.gpu}; " if self.gpu else ""
        return here + (
            f"{self.processor}, {used}, {self.isa or 'no native core'}, "
            f"last-level cache {self.cache_bytes / 2**20:.0f} MiB; torch {self.torch}; {self.date}"
        )


def machine(gpu: str | None = None) -> Machine:
    """This machine, now, and the GPU that the work was done on, if it was."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    processor = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return Machine(
        processor=processor or platform.processor() or platform.machine(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        threads=torch.get_num_threads(),
        isa=isa(),
        cache_bytes=cache_bytes(),
        system=platform.platform(),
        python=platform.python_version(),
        torch=torch.__version__,
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        gpu=gpu,
    )


@cache
def cache_bytes() -> int:
    """Size of the last-level cache."""
    sizes = [0]
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = file.read_text().strip()
        sizes.append(int(text.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(text[-1], 0))
    return max(sizes) or CACHE


def resident_bytes(name: str = "VmRSS") -> int | None:
    """Resident memory of this process, or its peak ("VmHWM"); None where the system does not tell."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)


def fma_peak(seconds: float = BURST) -> float | None:
    """FLOP/s of float multiply-adds that stay in registers, on all threads; None without the native core."""
    kernels = library()
    if kernels is None or not hasattr(kernels, "regard_fma_peak"):
        return None
    kernels.regard_fma_peak.restype, kernels.regard_fma_peak.argtypes = c_double, [c_int64, c_double]
    return float(kernels.regard_fma_peak(torch.get_num_threads(), seconds))


@cache
def _uncached() -> Tensor:
    """Three times the last-level cache, so that little of it is found there."""
    return torch.ones(3 * cache_bytes() // 4)


def read_bandwidth() -> float | None:
    """Bytes per second of reading memory that no cache holds, on all threads; None without the native core."""
    kernels = library()
    if kernels is None or not hasattr(kernels, "regard_read_bandwidth"):
        return None
    kernels.regard_read_bandwidth.restype = c_double
    kernels.regard_read_bandwidth.argtypes = [c_void_p, c_int64, c_int64]
    data = _uncached()
    return float(kernels.regard_read_bandwidth(data.data_ptr(), data.nbytes, torch.get_num_threads()))
