"""What the generator of calls draws from: sizes, choices and numbers."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from torch import Tensor


@dataclass
class Sizes:
    """The sizes of one call; `low` and `high` are the first query position of any batch row, and one past the last."""

    leading: tuple[int, ...]
    kv_heads: int
    group: int
    queries: int
    keys: int
    d_query: int
    d_key: int
    d_value: int
    low: int = 0
    high: int = 0

    @property
    def batch(self) -> int:
        return torch.Size(self.leading).numel()

    @property
    def heads(self) -> int:
        return self.kv_heads * self.group


@dataclass
class Draw:
    """Choices and numbers. Numbers are exact in float32, so that they are the same in every precision."""

    seed: int
    dtype: torch.dtype
    whole: bool = False
    scale: float = 1.0
    leaves: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.generator = torch.Generator().manual_seed(self.seed)

    def leaf(self, name: str, numbers: Tensor) -> Tensor:
        while name in self.leaves:
            name += "′"
        self.leaves[name] = numbers.float().to(self.dtype).requires_grad_()
        return self.leaves[name]

    def normal(self, name: str, *shape: int, scale: float | None = None, hide: float = 0.0) -> Tensor:
        """Normal numbers, or small whole ones; −inf with probability `hide`."""
        numbers = torch.randn(shape, generator=self.generator, dtype=torch.float64)
        factor = self.scale if scale is None else scale
        numbers = numbers.round().clamp(-2, 2) if self.whole else numbers * factor
        return self.leaf(name, numbers.masked_fill(self.chance(hide, *shape), -torch.inf) if hide else numbers)

    def positive(self, name: str, *shape: int) -> Tensor:
        """Between 0.4 and 2, or 0.5 and 2."""
        numbers = torch.rand(shape, generator=self.generator, dtype=torch.float64) * 1.6 + 0.4
        return self.leaf(name, (numbers > 1) * 1.5 + 0.5 if self.whole else numbers)

    def chance(self, share: float, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.generator) < share

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, max(high, low + 1), shape, generator=self.generator)

    def often(self, share: float) -> bool:
        return self.random.random() < share

    def pick(self, *options: Any) -> Any:
        return self.random.choice(options)
