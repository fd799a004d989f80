"""A capture made of weights, for pictures of every shape of model."""

from collections.abc import Callable, Sequence

import pytest
import torch

import regard
from regard.inspection.records import Table


class Weights:
    """What pictures ask of a capture: layers of given weights, None for one that was refused."""

    def __init__(
        self,
        weights: Sequence[torch.Tensor | regard.AttentionMatrix | None],
        tokens: Sequence[str] | None = None,
        names: Sequence[str] | None = None,
        heads: Sequence[int] | None = None,
    ) -> None:
        self._weights, self._tokens, self._heads = weights, tokens, heads
        self.layers = tuple(names or (f"blocks.{n}.attention" for n in range(len(weights))))
        self.refused = {
            self.layers[n]: "its weights cannot be computed again" for n, each in enumerate(weights) if each is None
        }

    def __getitem__(self, layer: int, /) -> regard.AttentionMatrix:
        found = self._weights[layer]
        if isinstance(found, regard.AttentionMatrix):
            return found
        assert found is not None
        tokens = [self._tokens if self._tokens and len(self._tokens) == size else None for size in found.shape[-2:]]
        return regard.AttentionMatrix.from_weights(found, *tokens)

    def numbers(self, layer: int, /) -> tuple[int, ...]:
        """As chosen, or all."""
        return tuple(self._heads or range(self[layer].shape[-3]))

    def heads(self) -> Table:
        """Entropy and share of the first key of each head, and the text of another column."""
        rows = []
        for layer, each in enumerate(self._weights):
            if isinstance(each, torch.Tensor):
                for head, weights in enumerate(each[0].double()):
                    entropy = float(-(weights * weights.log()).sum(-1).mean())
                    rows.append((layer, self.layers[layer], head, entropy, float(weights[:, 0].mean()), "even"))
        return Table(("layer", "name", "head", "entropy", "first", "nearest"), rows)


@pytest.fixture
def captured() -> Callable[..., Weights]:
    """Makes one: captured(weights of each layer, tokens, names)."""
    return Weights


@pytest.fixture
def softmax() -> Callable[..., torch.Tensor]:
    """Makes weights (batch, head, query, key) whose rows add up to 1."""

    def made(heads: int, queries: int, keys: int | None = None, *, batch: int = 1, seed: int = 0) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(batch, heads, queries, keys or queries, generator=generator).mul(2).softmax(-1)

    return made
