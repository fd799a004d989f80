"""Pictures of colored shapes on a grid, one cell to a patch, and the words for what stands where.

Pictures are drawn with noise, so that none comes twice. Some combinations never come in training: a model that does
well on these has learned colors, shapes and places, not pictures.
"""

from dataclasses import dataclass
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
ASKED = 6  # things in a picture that words ask for
APART = 4  # one combination in so many is kept for the test


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
    nearest = torch.cdist(patches, known.expand(len(patches), -1, -1)).argmin(-1)
    return torch.where(nearest == THINGS, EMPTY, nearest)


def placed(batch: int, count: int, generator: torch.Generator) -> Tensor:
    """(batch, count): different cells, drawn at random."""
    return torch.rand(batch, CELLS, generator=generator).argsort(1)[:, :count]


def different(batch: int, count: int, generator: torch.Generator) -> Tensor:
    """(batch, count): different things, drawn at random."""
    return torch.rand(batch, THINGS, generator=generator).argsort(1)[:, :count]


@dataclass(frozen=True)
class TwinScene:
    """(batch, cell): what stands there, and the cell of its like, −1 where it is empty."""

    cells: Tensor
    twin: Tensor


@dataclass(frozen=True)
class WordedScene:
    """What stands in each cell, (batch, cell), words (batch, word), and the cell that each is about (a start: none)."""

    cells: Tensor
    words: Tensor
    about: Tensor


def spoken(words: Tensor) -> list[str]:
    """The words of one row."""
    return [VOCABULARY[word] for word in words.tolist()]


def twinned(batch: int, generator: torch.Generator) -> TwinScene:
    """Pairs of like things in cells at random."""
    where, what = placed(batch, 2 * PAIRS, generator), different(batch, PAIRS, generator)
    cells = torch.full((batch, CELLS), EMPTY).scatter(1, where, torch.cat([what, what], 1))
    twin = torch.full((batch, CELLS), -1).scatter(1, where, where.roll(PAIRS, 1))
    return TwinScene(cells, twin)


def captioned(batch: int, generator: torch.Generator, *, unseen: bool) -> WordedScene:
    """Things of different colors, named color by color: `red disc blue cross white disc`, after a start.

    Sets of things are those of the training, or, `unseen`, the others.
    """
    sets = _sets(unseen)
    what = sets[torch.randint(len(sets), (batch,), generator=generator)]
    return _told(what, placed(batch, NAMED, generator), start=True)


def described(batch: int, generator: torch.Generator, *, unseen: bool) -> WordedScene:
    """Things with the places of their words, in any order.

    Things at a place are those of the training, or, `unseen`, the others.
    """
    where = placed(batch, ASKED, generator)
    table = _at_place(unseen)
    what = table[where, torch.randint(table.shape[1], where.shape, generator=generator)]
    return _told(what, where, start=False)


def _told(what: Tensor, where: Tensor, *, start: bool) -> WordedScene:
    cells = torch.full((len(what), CELLS), EMPTY).scatter(1, where, what)
    color = what // len(SHAPES) + _word(next(iter(COLORS)))
    shape = what % len(SHAPES) + _word(next(iter(SHAPES)))
    words = torch.stack([color, shape], 2).flatten(1)
    if start:
        words = torch.cat([torch.full((len(what), 1), _word(START)), words], 1)
    return WordedScene(cells, words, where.repeat_interleave(2, 1))


def _word(name: str) -> int:
    return VOCABULARY.index(name)


@cache
def _sets(unseen: bool) -> Tensor:
    """(set, thing): things of different colors, in the order of the colors."""
    sets = torch.combinations(torch.arange(THINGS), NAMED)
    color = sets // len(SHAPES)
    sets = sets[(color[:, 1:] > color[:, :-1]).all(1)]
    return sets[(sets.sum(1) % APART == 0) == unseen]


@cache
def _at_place(unseen: bool) -> Tensor:
    """(cell, thing): what may stand in a cell. One shape of each color is kept for the test, another in each cell."""
    thing = torch.arange(THINGS)
    held_out = [(thing + thing // len(SHAPES) + cell) % APART == 0 for cell in range(CELLS)]
    return torch.stack([thing[of == unseen] for of in held_out])
