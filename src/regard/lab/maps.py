"""Attention maps: those of random queries and keys, and the two that are printed in the mini-course, as data."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.engine.attend import attend
from regard.inspection.records import Grid
from regard.lab.report import MINI_COURSE

KEYS = 20  # the printed entropies fit attention over 20 keys
CHUNK = 100  # repetitions held in memory at once


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Independent standard normal numbers in float64."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def chunks(repetitions: int) -> Iterator[int]:
    """Sizes that add up to the repetitions, none larger than `CHUNK`."""
    for first in range(0, repetitions, CHUNK):
        yield min(CHUNK, repetitions - first)


def attend_statistics(
    query: Tensor, key: Tensor, value: Tensor, *aux: str, **spec: Any
) -> tuple[Tensor, dict[str, Tensor]]:
    """`attend` with its statistics by name: the output, and one number per query for each of `aux`."""
    result = attend(query, key, value, aux=aux, **spec)
    assert isinstance(result, tuple)
    out, statistics = result
    return out, {name: getattr(statistics, name).detach() for name in aux}


def weights(query: Tensor, key: Tensor, **spec: Any) -> Tensor:
    """The weights, (…, query, key): what attention returns when the values are the unit vectors."""
    unit = torch.eye(key.shape[-2], dtype=key.dtype)
    out = attend(query, key, unit.expand(*key.shape[:-2], -1, -1), **spec)
    assert isinstance(out, Tensor)
    return out


@dataclass(frozen=True)
class PrintedMap:
    """Weights as printed: a row for each word that looks, a column for each word that is looked at."""

    title: str
    source: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]

    def tensor(self) -> Tensor:
        """The weights, (row, column), in float64."""
        return torch.tensor(self.weights, dtype=torch.float64)

    def grid(self) -> Grid:
        """The map as a heatmap with its words; colors run from no weight to all of it."""
        return Grid(self.weights, self.rows, self.columns, self.title, self.source, limits=(0.0, 1.0))

    def statistics(self, *aux: str) -> dict[str, Tensor]:
        """What `attend` says of these weights: their logarithms are the logits, and a weight of 0 is hidden."""
        query, key = (torch.zeros(1, 1, len(words), 1, dtype=torch.float64) for words in (self.rows, self.columns))
        _, seen = attend_statistics(query, key, key, *aux, bias=self.tensor().log(), query_start=0)
        return {name: each[0, 0] for name, each in seen.items()}


SELF = PrintedMap(
    title="The cat sleeps on the mat",
    source=f"{MINI_COURSE}, Visualizing attention scores",
    rows=("The", "cat", "sleeps", "on", "the", "mat"),
    columns=("The", "cat", "sleeps", "on", "the", "mat"),
    weights=(
        (0.7, 0.1, 0.05, 0.05, 0.1, 0.0),
        (0.1, 0.6, 0.2, 0.05, 0.0, 0.05),
        (0.0, 0.3, 0.5, 0.1, 0.0, 0.1),
        (0.0, 0.1, 0.1, 0.6, 0.1, 0.1),
        (0.1, 0.0, 0.0, 0.1, 0.3, 0.5),
        (0.0, 0.05, 0.05, 0.1, 0.2, 0.6),
    ),
)


TRANSLATION = PrintedMap(
    title="Le chat est assis sur le tapis",
    source=f"{MINI_COURSE}, Exercise 2",
    rows=("Le", "chat", "est", "assis", "sur", "le", "tapis"),
    columns=("The", "cat", "sits", "on", "the", "mat"),
    weights=(
        (0.8, 0.1, 0.0, 0.0, 0.1, 0.0),
        (0.1, 0.8, 0.1, 0.0, 0.0, 0.0),
        (0.0, 0.1, 0.4, 0.3, 0.1, 0.1),
        (0.0, 0.1, 0.7, 0.1, 0.0, 0.1),
        (0.0, 0.0, 0.1, 0.8, 0.1, 0.0),
        (0.1, 0.0, 0.0, 0.1, 0.7, 0.1),
        (0.0, 0.0, 0.0, 0.1, 0.1, 0.8),
    ),
)


MAPS = (SELF, TRANSLATION)
