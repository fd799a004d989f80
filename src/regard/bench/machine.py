"""The machine under the benchmark: its name, and what it can do at best."""

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
CACHE = 64 << 20  # bytes of the last-level cache where nobody tells


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
    return Machine(
        processor=_processor(),
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


def fma_peak(seconds: float = BURST) -> float | None:
    """FLOP/s of float multiply-adds that stay in registers, on all threads; None without the native core."""
    found = library()
    if found is None or not hasattr(found, "regard_fma_peak"):
        return None
    found.regard_fma_peak.restype, found.regard_fma_peak.argtypes = c_double, [c_int64, c_double]
    return float(found.regard_fma_peak(torch.get_num_threads(), seconds))


@cache
def yard() -> Tensor:
    """What is read to measure bandwidth: three times the last-level cache, so that none of it is found there."""
    return torch.ones(3 * cache_bytes() // 4)


def read_bandwidth() -> float | None:
    """Bytes per second of reading memory that no cache holds, on all threads; None without the native core."""
    found = library()
    if found is None or not hasattr(found, "regard_read_bandwidth"):
        return None
    found.regard_read_bandwidth.restype = c_double
    found.regard_read_bandwidth.argtypes = [c_void_p, c_int64, c_int64]
    data = yard()
    return float(found.regard_read_bandwidth(data.data_ptr(), data.nbytes, torch.get_num_threads()))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()
