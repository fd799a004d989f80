"""Pictures of colored shapes on a grid, one cell to a patch, and the words for what stands where.

Pictures are drawn with noise, so that none comes twice. Some combinations never come in training: a model that does
well on these has learned colors, shapes and places, not pictures.
"""

from dataclasses import dataclass, replace
from functools import cache

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
START = "<start>"
VOCABULARY = (START, *COLORS, *SHAPES)
PAIRS = 5  # pairs of things in a picture of twins
NAMED = 3  # things in a picture that has a caption
DESCRIBED = 6  # things in a picture that is made from words
APART = 4  # one combination in so many is held out for the test


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
    return from_patches(patches)


def from_patches(patches: Tensor) -> Tensor:
    """(batch, 3, pixel, pixel) from patches (batch, cell, 3, pixel, pixel)."""
    grid = patches.reshape(len(patches), SIDE, SIDE, *patches.shape[2:])
    return grid.permute(0, 3, 1, 4, 2, 5).reshape(len(patches), 3, SIDE * CELL, SIDE * CELL)


def to_patches(pictures: Tensor) -> Tensor:
    """(batch, cell, 3, pixel, pixel): the inverse of `from_patches`."""
    grid = pictures.reshape(len(pictures), 3, SIDE, CELL, SIDE, CELL)
    return grid.permute(0, 2, 4, 1, 3, 5).reshape(len(pictures), CELLS, 3, CELL, CELL)


def recognized(pictures: Tensor) -> Tensor:
    """(batch, cell): the thing, or `EMPTY`, whose drawing is nearest to each patch."""
    patches = to_patches(pictures).flatten(2)
    known = torch.cat([things() * (1 + DIMMEST) / 2, torch.zeros(1, 3, CELL, CELL)]).flatten(1)
    nearest = torch.cdist(patches, known.expand(len(patches), -1, -1)).argmin(-1)
    return torch.where(nearest == THINGS, EMPTY, nearest)


def distinct(batch: int, count: int, total: int, generator: torch.Generator) -> Tensor:
    """(batch, count): different numbers below `total`, drawn at random: cells or things."""
    return torch.rand(batch, total, generator=generator).argsort(1)[:, :count]


@dataclass(frozen=True)
class Scene:
    """What stands in each cell, (batch, cell), and words for it, (batch, word).

    `about` is the cell of each word (a start has none), or of twins the cell of the other one, −1 in an empty cell.
    """

    cells: Tensor
    words: Tensor
    about: Tensor


def decode(words: Tensor) -> list[str]:
    """The words of one row."""
    return [VOCABULARY[word] for word in words.tolist()]


def twinned(batch: int, generator: torch.Generator) -> Scene:
    """Pairs of like things in cells at random, without words."""
    where, what = distinct(batch, 2 * PAIRS, CELLS, generator), distinct(batch, PAIRS, THINGS, generator)
    cells = torch.full((batch, CELLS), EMPTY).scatter(1, where, torch.cat([what, what], 1))
    twin = torch.full((batch, CELLS), -1).scatter(1, where, where.roll(PAIRS, 1))
    return Scene(cells, torch.empty(batch, 0, dtype=torch.long), twin)


def captioned(batch: int, generator: torch.Generator, *, unseen: bool) -> Scene:
    """Things of different colors, named color by color: `red disc blue cross white disc`, after a start.

    Sets of things are those of the training, or, `unseen`, the others.
    """
    sets = _sets(unseen)
    what = sets[torch.randint(len(sets), (batch,), generator=generator)]
    scene = _worded(what, distinct(batch, NAMED, CELLS, generator))
    start = torch.full((batch, 1), VOCABULARY.index(START))
    return replace(scene, words=torch.cat([start, scene.words], 1))


def described(batch: int, generator: torch.Generator, *, unseen: bool) -> Scene:
    """Things with the places of their words, in any order.

    Things at a place are those of the training, or, `unseen`, the others.
    """
    where = distinct(batch, DESCRIBED, CELLS, generator)
    table = _at_place(unseen)
    what = table[where, torch.randint(table.shape[1], where.shape, generator=generator)]
    return _worded(what, where)


def _worded(what: Tensor, where: Tensor) -> Scene:
    cells = torch.full((len(what), CELLS), EMPTY).scatter(1, where, what)
    color, shape = 1 + what // len(SHAPES), 1 + len(COLORS) + what % len(SHAPES)  # the order of the vocabulary
    return Scene(cells, torch.stack([color, shape], 2).flatten(1), where.repeat_interleave(2, 1))


@cache
def _sets(unseen: bool) -> Tensor:
    """(set, thing): things of different colors, in the order of the colors."""
    sets = torch.combinations(torch.arange(THINGS), NAMED)
    color = sets // len(SHAPES)
    sets = sets[(color[:, 1:] > color[:, :-1]).all(1)]
    return sets[(sets.sum(1) % APART == 0) == unseen]


@cache
def _at_place(unseen: bool) -> Tensor:
    """(cell, thing): what may stand in a cell. In each cell another shape of each color is held out for the test."""
    thing = torch.arange(THINGS)
    held_out = [(thing + thing // len(SHAPES) + cell) % APART == 0 for cell in range(CELLS)]
    return torch.stack([thing[of == unseen] for of in held_out])
