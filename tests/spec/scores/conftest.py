"""Queries and keys, and a score computed pair by pair with Python numbers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.spec.plane import Plane
from regard.spec.scores import Score

BATCH, KV_HEADS, GROUP, QUERIES, KEYS, WIDTH = 2, 2, 3, 7, 11, 5
RECTANGLES = [(slice(0, 7), slice(0, 11)), (slice(2, 3), slice(5, 6)), (slice(4, 7), slice(0, 8))]
EPS = torch.finfo(torch.float64).eps


class Inputs:
    """Random inputs in the axes engines use, and ways to compute a score over them."""

    def __init__(self, d_key: int = WIDTH, start: int = 2) -> None:
        self.plane = Plane(BATCH, KV_HEADS, GROUP, QUERIES, KEYS, torch.tensor([start]))
        self.query = self.draw(BATCH, KV_HEADS, GROUP, QUERIES, WIDTH)
        self.key = self.draw(BATCH, KV_HEADS, 1, KEYS, d_key, seed=1)

    @staticmethod
    def draw(*shape: int, seed: int = 0) -> Tensor:
        """Normal numbers in float64."""
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    def formula(self, score: Score) -> Tensor:
        """The definition, checked first."""
        score.check(self.query.shape[-1], self.key.shape[-1], KV_HEADS, GROUP)
        return score.formula(self.query, self.key, self.plane.all)

    def by_hand(self, number: Callable[[list[float], list[float], int, int, int], float]) -> Tensor:
        """number(q, k, h, i, j) for every pair."""
        found = torch.zeros(BATCH, KV_HEADS, GROUP, QUERIES, KEYS, dtype=torch.float64)
        start = int(self.plane.starts)
        for b, kv, g, row, j in torch.cartesian_prod(*map(torch.arange, found.shape)).tolist():
            q, k = self.query[b, kv, g, row].tolist(), self.key[b, kv, 0, j].tolist()
            found[b, kv, g, row, j] = number(q, k, kv * GROUP + g, start + row, j)
        return found

    def agrees(self, score: Score, number: Callable[[list[float], list[float], int, int, int], float]) -> None:
        """The formula is the number by hand, and every rectangle computed alone is the formula."""
        formula, right = self.formula(score), self.by_hand(number)
        size = 1.0 + float(right.abs().max())
        assert float((formula - right).abs().max()) <= 64 * EPS * size
        form = score.lower(self.query, self.key)
        for rows, columns in RECTANGLES:
            pairs = self.plane.pairs(rows, columns)
            found = form.evaluate(pairs, None, tuple(one.cut(one.tensor, pairs) for one in form.operands))
            assert float((found - formula[..., rows, columns]).abs().max()) <= 64 * EPS * size


@pytest.fixture
def inputs() -> Inputs:
    return Inputs()


@pytest.fixture
def make_inputs() -> Any:
    return Inputs
