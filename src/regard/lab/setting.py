"""Setting: how an experiment is run. It hands out randomness and sizes, and reports progress."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from regard.checks import whole
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
        """Fresh randomness that depends on the seed alone."""
        return torch.Generator().manual_seed(self.seed)

    def each(self, what: str, items: Sequence[T]) -> Iterator[T]:
        """The items, one by one, with progress reported before each: `d_k = 64`, 2 of 6."""
        for done, item in enumerate(items):
            report(f"{what} {item}", done, len(items))
            yield item
