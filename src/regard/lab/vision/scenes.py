"""Scenes: what stands in the cells of a picture, the words for it, and which patch belongs to which word.

Some combinations never come in training. A model that does well on these has learned colors, shapes and places, not
pictures.
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from regard.lab.vision.pictures import CELLS, COLORS, EMPTY, SHAPES, THINGS, different, placed

START = "<start>"
VOCABULARY = (START, *COLORS, *SHAPES)
PAIRS = 5  # pairs of things in a picture of twins
NAMED = 3  # things in a picture that has a caption
ASKED = 6  # things in a picture that words ask for
APART = 4  # one combination in so many is kept for the test


@dataclass(frozen=True)
class Twinned:
    """(batch, cell): what stands there, and the cell of its like, −1 where it is empty."""

    cells: Tensor
    twin: Tensor


@dataclass(frozen=True)
class Told:
    """What stands in each cell, (batch, cell), words (batch, word), and the cell that each is about (a start: none)."""

    cells: Tensor
    words: Tensor
    about: Tensor


def spoken(words: Tensor) -> list[str]:
    """The words of one row."""
    return [VOCABULARY[word] for word in words.tolist()]


def twinned(batch: int, generator: torch.Generator) -> Twinned:
    """Pairs of like things in cells at random."""
    where, what = placed(batch, 2 * PAIRS, generator), different(batch, PAIRS, generator)
    cells = torch.full((batch, CELLS), EMPTY).scatter(1, where, torch.cat([what, what], 1))
    twin = torch.full((batch, CELLS), -1).scatter(1, where, where.roll(PAIRS, 1))
    return Twinned(cells, twin)


def captioned(batch: int, generator: torch.Generator, *, unseen: bool) -> Told:
    """Things of different colors, named color by color: `red disc blue cross white disc`, after a start.

    Sets of things are those of the training, or, `unseen`, the others.
    """
    sets = _sets(unseen)
    what = sets[torch.randint(len(sets), (batch,), generator=generator)]
    return _told(what, placed(batch, NAMED, generator), start=True)


def described(batch: int, generator: torch.Generator, *, unseen: bool) -> Told:
    """Things with the places of their words, in any order.

    Things at a place are those of the training, or, `unseen`, the others.
    """
    where = placed(batch, ASKED, generator)
    table = _at_place(unseen)
    what = table[where, torch.randint(table.shape[1], where.shape, generator=generator)]
    return _told(what, where, start=False)


def _told(what: Tensor, where: Tensor, *, start: bool) -> Told:
    cells = torch.full((len(what), CELLS), EMPTY).scatter(1, where, what)
    color = what // len(SHAPES) + _word(next(iter(COLORS)))
    shape = what % len(SHAPES) + _word(next(iter(SHAPES)))
    words = torch.stack([color, shape], 2).flatten(1)
    if start:
        words = torch.cat([torch.full((len(what), 1), _word(START)), words], 1)
    return Told(cells, words, where.repeat_interleave(2, 1))


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
    kept = [(thing + thing // len(SHAPES) + cell) % APART == 0 for cell in range(CELLS)]
    return torch.stack([thing[of == unseen] for of in kept])
