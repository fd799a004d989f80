"""The example under torchrun learns what one process learns."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
OPTIONS = ("--length", "64", "--word", "8", "--rows", "4", "--steps", "20", "--every", "5", "--dtype", "float64")


def losses(*launcher: str) -> list[float]:
    call = [sys.executable, *launcher, str(ROOT / "examples" / "ring_training.py"), *OPTIONS]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    found = subprocess.run(call, capture_output=True, text=True, timeout=900, check=False, env=environment)
    assert found.returncode == 0, found.stderr
    return [float(line.split()[-1]) for line in found.stdout.splitlines() if line.startswith("step")]


def test_two_processes_learn_as_one() -> None:
    alone = losses()
    assert losses("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2") == alone
    assert len(alone) == 5
    assert alone[-1] < alone[0] - 0.5
