"""The two attention maps printed in the mini-course, as data: their weights are given, no model computed them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.inspection.records import Grid
from regard.lab import sources
from regard.lab.draws import looked_at


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
        _, seen = looked_at(query, key, key, *aux, bias=self.tensor().log(), query_start=0)
        return {name: each[0, 0] for name, each in seen.items()}


SELF = PrintedMap(
    title="The cat sleeps on the mat",
    source=f"{sources.MINI_COURSE}, Visualizing attention scores",
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
    source=f"{sources.MINI_COURSE}, Exercise 2",
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
