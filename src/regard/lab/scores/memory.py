"""What each score holds in a forward pass, against n and against d: counted, so the same on any machine."""

from functools import partial

import torch

from regard.inspection.records import Cell, Line, Lines, Panel, Picture, Table
from regard.lab.counted import order
from regard.lab.scores.cost import LENGTH, SCORES, WIDTH, held

LENGTHS, WIDTHS = (64, 128, 256, 512, 1024), (16, 32, 64, 128, 256)
DRAWN = ("additive", "scaled dot")  # those that add hold the same, and so do those that multiply
ENGINES = {"dense": "reference", "tiled": "tiled"}
MEBI = 2**20

Held = dict[tuple[str, str], list[int]]  # by score and engine


def by_length(generator: torch.Generator) -> Held:
    """Bytes for every n, at d = 64."""
    return _held(generator, [(length, WIDTH) for length in LENGTHS])


def by_width(generator: torch.Generator) -> Held:
    """Bytes for every d, at n = 256."""
    return _held(generator, [(LENGTH, width) for width in WIDTHS])


def _held(generator: torch.Generator, sizes: list[tuple[int, int]]) -> Held:
    return {
        (name, shown): [held(made(generator, width), length, width, engine) for length, width in sizes]
        for name, made in SCORES.items()
        for shown, engine in ENGINES.items()
    }


def memory_table(lengths: Held, widths: Held) -> Table:
    """At the largest sizes, and how it grows there when the size doubles."""
    rows: list[tuple[Cell, ...]] = []
    for name in SCORES:
        cells: list[Cell] = [name]
        for shown in ENGINES:
            far, wide = lengths[name, shown], widths[name, shown]
            cells += [far[-1] / MEBI, f"n^{order(*far[-2:]):.2f}", f"d^{order(*wide[-2:]):.2f}"]
        rows.append(tuple(cells))
    named = [
        (f"{shown}, n = {LENGTHS[-1]:,}", f"{shown} grows from n = {LENGTHS[-2]}", f"… from d = {WIDTHS[-2]}")
        for shown in ENGINES
    ]
    title = (
        f"MiB of a forward pass beyond inputs and outputs: one head, d = {WIDTH} where n grows, n = {LENGTH} where d"
    )
    return Table(("score", *(column for group in named for column in group)), rows, title)


def memory_picture(lengths: Held, widths: Held) -> Picture:
    """Bytes against n and d, of a score that adds and one that multiplies."""
    log = partial(Lines, log_x=True, log_y=True)
    drawn = [
        [
            Line(f"{name}, {shown}", sizes, [each / MEBI for each in found[name, shown]])
            for name in DRAWN
            for shown in ENGINES
        ]
        for sizes, found in ((LENGTHS, lengths), (WIDTHS, widths))
    ]
    return Panel(
        (
            log(drawn[0], "n", "MiB", f"Memory against n, d = {WIDTH}"),
            log(drawn[1], "d", "MiB", f"Memory against d, n = {LENGTH}"),
        )
    )
