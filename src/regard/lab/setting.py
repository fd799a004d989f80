"""Setting: how an experiment is run. It hands out randomness and sizes, and hears about progress."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from regard.checks import whole

T = TypeVar("T")

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many steps are done, and of how many."""


def silent(what: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True)
class Setting:
    """`quick` trades repetitions for seconds; the same `seed` gives the same numbers."""

    quick: bool = False
    seed: int = 0
    progress: Progress = silent

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
        """The items, one by one, with progress told before each: `d_k = 64`, 2 of 6."""
        for done, item in enumerate(items):
            self.progress(f"{what} {item}", done, len(items))
            yield item
