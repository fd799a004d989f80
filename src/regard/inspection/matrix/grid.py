"""Grids: a picture-sized summary of all pairs. Cell a of n rows in `cells` starts at row a · n // cells."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.inspection.matrix.index import taken

HOWS = ("mean", "max", "sum")


def edges(count: int, cells: int) -> Tensor:
    """Where each cell starts, and where the last ends."""
    return torch.arange(cells + 1, device="cpu") * count // cells


def cell_of(numbers: Tensor, count: int, cells: int) -> Tensor:
    """The cell that holds each row (or column)."""
    return ((numbers + 1) * cells - 1) // count


@dataclass(frozen=True, eq=False)
class Grid:
    """Sum, largest weight and number of visible pairs of every cell, (lane, row, column); 0 where there are none."""

    sum: Tensor
    max: Tensor
    pairs: Tensor

    @property
    def mean(self) -> Tensor:
        """Over the visible pairs."""
        return self.sum / self.pairs.clamp(min=1)

    def by(self, how: str) -> Tensor:
        """One of mean, max, sum."""
        found: Tensor = getattr(self, how)
        return found

    def halved(self) -> "Grid":
        """Two by two cells in one; an odd last row or column stays alone."""
        return Grid(_joined(self.sum, torch.sum), _joined(self.max, torch.amax), _joined(self.pairs, torch.sum))

    def stretched(self, rows: int, columns: int) -> "Grid":
        """The cells repeated where more were asked for than there are rows or columns."""
        high, wide = self.sum.shape[-2:]
        if (rows, columns) == (high, wide):
            return self
        down = torch.arange(rows, device="cpu") * high // rows
        right = torch.arange(columns, device="cpu") * wide // columns
        return Grid(*(part[..., down, :][..., right] for part in (self.sum, self.max, self.pairs)))

    def pick(self, lanes: Tensor) -> "Grid":
        """The grids of some lanes."""
        return Grid(*(taken(part, lanes) for part in (self.sum, self.max, self.pairs)))


def _joined(tensor: Tensor, how: Callable[..., Tensor]) -> Tensor:
    """Neighbours in pairs, down and across."""
    for _ in range(2):
        if tensor.shape[-1] > 1:
            tensor = torch.nn.functional.pad(tensor, (0, tensor.shape[-1] % 2))
            tensor = how(tensor.unflatten(-1, (-1, 2)), dim=-1)
        tensor = tensor.mT
    return tensor
