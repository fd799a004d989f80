"""Pictures of pictures: brightness of pixels, and attention laid over the patches it falls on, side by side."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.inspection.records import Grid, Picture
from regard.lab.vision.measure import Seen
from regard.lab.vision.pictures import CELL, NAMES, SIDE
from regard.lab.vision.scenes import spoken

FLOOR = 0.4  # what remains of a patch's weight where it is dark
SHOWN = 3  # words


def brightness(picture: Tensor) -> Tensor:
    """(pixel, pixel) in 0 to 1, the brightest channel."""
    return picture.amax(0).clamp(0.0, 1.0)


def laid_over(weights: Tensor, picture: Tensor) -> Tensor:
    """(pixel, pixel): the weight of each patch, its dark pixels darker, so that the shape shows."""
    wide = weights.view(SIDE, SIDE).repeat_interleave(CELL, 0).repeat_interleave(CELL, 1)
    return wide * (FLOOR + (1 - FLOOR) * brightness(picture))


def twins(seen: Seen) -> Picture:
    """A picture, and where one of its patches looks."""
    asked = int((seen.cells[0] >= 0).nonzero()[0])
    over = laid_over(seen.weights[0, seen.heads[0], asked], seen.picture[0])
    title = f"Trained: where the {NAMES[int(seen.cells[0, asked])]} at {place(asked)} looks"
    twin = place(int(seen.about[0, asked]))
    note = f"Left: the picture, rows a to d. Right: weights, on the patches; its twin is at {twin}."
    return mosaic([brightness(seen.picture[0]), over], title, note)


def caption(seen: Seen) -> Picture:
    """A picture, and where the words for the shapes of its caption look."""
    words = spoken(seen.words[0])[1:]
    tiles = [laid_over(seen.weights[0, seen.heads[-1], number], seen.picture[0]) for number in range(1, 2 * SHOWN, 2)]
    told = ", ".join(f"“{word}”" for word in words[1 : 2 * SHOWN : 2])
    note = f"Left: the picture. Then weights of the step that writes {told}, on the patches."
    return mosaic([brightness(seen.picture[0]), *tiles], f"Trained: where “{' '.join(words)}” looks", note)


def noise(seen: Seen) -> Picture:
    """A picture made from noise, and which patches look at some of its words."""
    words, made = spoken(seen.words[0]), seen.picture[0] / seen.picture[0].max()
    numbers = range(1, 2 * SHOWN, 2)
    tiles = [laid_over(seen.weights[0, seen.heads[0], :, number], made) for number in numbers]
    told = ", ".join(f"“{words[number]}” for {place(int(seen.about[0, number]))}" for number in numbers)
    note = f"Left: the picture. Then the weight that each patch, still noise, gives to {told}."
    return mosaic([brightness(made), *tiles], "Trained: a picture made from noise and words", note)


def place(cell: int) -> str:
    """The name of a cell: row a to d, column 1 to 4."""
    return f"{'abcdefgh'[cell // SIDE]}{cell % SIDE + 1}"


def mosaic(tiles: Sequence[Tensor], title: str, note: str) -> Grid:
    """Squares side by side, a line between them."""
    line = torch.ones(len(tiles[0]), 1)
    joined = torch.cat([part for tile in tiles for part in (tile, line)][:-1], 1)
    rows, columns = joined.shape
    return Grid(joined.tolist(), [""] * rows, [""] * columns, title, note, limits=(0.0, 1.0))
