"""Pictures: colored shapes on a grid of cells, one cell to a patch, drawn here with noise so that none comes twice."""

import torch
from torch import Tensor

SIDE = 4  # cells in a row, and rows
CELL = 6  # pixels of a cell's side
CELLS = SIDE * SIDE
COLORS = {"red": (1.0, 0.1, 0.1), "green": (0.1, 0.9, 0.1), "blue": (0.2, 0.3, 1.0), "white": (1.0, 1.0, 1.0)}
SHAPES = {
    "disc": ("..##..", ".####.", "######", "######", ".####.", "..##.."),
    "frame": ("######", "#....#", "#....#", "#....#", "#....#", "######"),
    "cross": ("#....#", ".#..#.", "..##..", "..##..", ".#..#.", "#....#"),
    "grate": ("######", "......", "######", "######", "......", "######"),
}
NAMES = tuple(f"{color} {shape}" for color in COLORS for shape in SHAPES)
THINGS = len(NAMES)
EMPTY = -1
NOISE, DIMMEST = 0.1, 0.6


def things() -> Tensor:
    """(thing, color channel, row, column): every shape in every color, at full brightness."""
    masks = torch.tensor([[[mark == "#" for mark in row] for row in shape] for shape in SHAPES.values()]).float()
    colors = torch.tensor(list(COLORS.values()))
    return (colors[:, None, :, None, None] * masks[None, :, None]).flatten(0, 1)


def drawn(cells: Tensor, generator: torch.Generator, noise: float = NOISE) -> Tensor:
    """(batch, 3, pixel, pixel) from what stands in each cell, (batch, cell), `EMPTY` or a thing.

    Each thing has a brightness of its own, and every pixel some noise.
    """
    batch = len(cells)
    known = torch.cat([things(), torch.zeros(1, 3, CELL, CELL)])
    patches: Tensor = known[cells]  # EMPTY is −1, the last
    bright = DIMMEST + (1 - DIMMEST) * torch.rand(batch, CELLS, 1, 1, 1, generator=generator)
    patches = patches * bright + noise * torch.randn(patches.shape, generator=generator)
    return whole(patches)


def whole(patches: Tensor) -> Tensor:
    """(batch, 3, pixel, pixel) from patches (batch, cell, 3, pixel, pixel)."""
    grid = patches.reshape(len(patches), SIDE, SIDE, *patches.shape[2:])
    return grid.permute(0, 3, 1, 4, 2, 5).reshape(len(patches), 3, SIDE * CELL, SIDE * CELL)


def cut(pictures: Tensor) -> Tensor:
    """Patches (batch, cell, 3, pixel, pixel): the inverse of `whole`."""
    grid = pictures.reshape(len(pictures), 3, SIDE, CELL, SIDE, CELL)
    return grid.permute(0, 2, 4, 1, 3, 5).reshape(len(pictures), CELLS, 3, CELL, CELL)


def recognized(pictures: Tensor) -> Tensor:
    """(batch, cell): the thing, or `EMPTY`, whose drawing is nearest to each patch."""
    patches = cut(pictures).flatten(2)
    known = torch.cat([things() * (1 + DIMMEST) / 2, torch.zeros(1, 3, CELL, CELL)]).flatten(1)
    found = torch.cdist(patches, known.expand(len(patches), -1, -1)).argmin(-1)
    return torch.where(found == THINGS, EMPTY, found)


def placed(batch: int, count: int, generator: torch.Generator) -> Tensor:
    """(batch, count): different cells, drawn at random."""
    return torch.rand(batch, CELLS, generator=generator).argsort(1)[:, :count]


def different(batch: int, count: int, generator: torch.Generator) -> Tensor:
    """(batch, count): different things, drawn at random."""
    return torch.rand(batch, THINGS, generator=generator).argsort(1)[:, :count]
