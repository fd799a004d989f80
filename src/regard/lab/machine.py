"""Where an experiment or a training ran."""

import os
import platform
from pathlib import Path

import torch


def machine() -> dict[str, str | int]:
    """The system, its processor, and the instructions that torch chose for it: other ones round otherwise."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # no Linux
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or "unknown"
