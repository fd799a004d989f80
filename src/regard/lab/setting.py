"""Setting: how an experiment is run: its seed and sizes, its progress, and on which machine and versions."""

import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import torch

from regard.checks import whole
from regard.inspection.records import Cell
from regard.progress import report

T = TypeVar("T")


@dataclass(frozen=True)
class Setting:
    """`quick` trades repetitions for seconds; the same `seed` gives the same numbers."""

    quick: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if whole("seed", self.seed, least=0) >= 2**63:
            raise ValueError(f"seed must be below 2^63, got {self.seed}")

    def choose(self, full: T, quick: T) -> T:
        """One of two sizes."""
        return quick if self.quick else full

    def generator(self) -> torch.Generator:
        """A new generator that depends on the seed alone."""
        return torch.Generator().manual_seed(self.seed)

    def seeds(self, count: int, generator: torch.Generator | None = None) -> list[int]:
        """Seeds of `count` trainings, from `generator` or a new one."""
        return torch.randint(2**31, (count,), generator=generator or self.generator()).tolist()

    def each(self, what: str, items: Sequence[T]) -> Iterator[T]:
        """The items, one by one, with progress reported before each: `d_k = 64`, 2 of 6."""
        for done, item in enumerate(items):
            report(f"{what} {item}", done, len(items))
            yield item

    def record(self, repetitions: int, **more: Cell) -> dict[str, Cell]:
        """What is needed to run the experiment again; an underscore in a name of `more` becomes a space."""
        here = machine()
        return {
            "seed": self.seed,
            "repetitions": repetitions,
            "quick": self.quick,
            "regard": version("regard"),
            "torch": torch.__version__,
            "python": here["python"],
            "machine": f"{here['system']}, {here['processor']}, {here['instructions']}, cores: {here['cores']}, "
            f"threads: {torch.get_num_threads()}",
            **{name.replace("_", " "): value for name, value in more.items()},
        }


def machine() -> dict[str, str | int]:
    """The system, its processor, and the instruction set that torch chose for it: others round differently."""
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
