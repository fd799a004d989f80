"""An AttentionMatrix in a terminal, as a figure, or as a file (png, svg, pdf, html, npz, csv)."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regard.inspection.files import form_of, replace
from regard.inspection.matrix.difference import MatrixDifference
from regard.inspection.records import Grid
from regard.plot.alignment import alignment
from regard.plot.attention_file import as_csv, as_npz
from regard.plot.attention_text import attention_text
from regard.plot.captions import UNTITLED, title_of
from regard.plot.figure import FIGURES, figure_bytes, need_matplotlib
from regard.plot.heatmap_figure import draw_heads
from regard.plot.lines import draw_links, links_of
from regard.plot.overview import draw_overview, stacked
from regard.plot.page import page
from regard.plot.pooling import FIGURE_SIDE, Matrix, picture, pool
from regard.plot.render import draw
from regard.plot.selection import TokenSelection
from regard.plot.terminal import window
from regard.plot.theme import colored

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (*FIGURES, "html", "npz", "csv")
KINDS = ("heatmap", "lines", "alignment")
_MANY = 48  # heads with two axes: a mosaic, whose maps have no labels
_SMALL_SIDES = ((4, FIGURE_SIDE), (16, 128), (96, 64), (1 << 30, 32))  # cells of each of so many heads


@dataclass(frozen=True)
class AttentionPicture:
    """How a matrix is shown: the kind of picture, what a cell of several weights shows, a title (None: what the matrix
    is of), the colors, and which tokens."""

    kind: str = "heatmap"
    how: str = "max"
    title: str | None = None
    colormap: str | None = None
    selection: TokenSelection = TokenSelection()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind is one of {', '.join(KINDS)}; got {self.kind!r}")

    @classmethod
    def of(
        cls,
        *,
        tokens: slice | None = None,
        hide_special: bool = False,
        renormalize: bool = False,
        kind: str = "heatmap",
        how: str = "max",
        title: str | None = None,
        colormap: str | None = None,
    ) -> "AttentionPicture":
        """The view of keyword arguments."""
        return cls(kind, how, title, colormap, TokenSelection(tokens, hide_special, renormalize))

    def title_of(self, matrix: Matrix) -> str:
        """The title of the picture of a matrix."""
        return title_of(matrix) if self.title is None else self.title


def print_attention(
    matrix: Matrix, view: AttentionPicture = AttentionPicture(), *, color: str = "auto", command: bool = False
) -> None:
    """Print `attention_text` at the size of the terminal; hints are of the command line if `command`."""
    width, height = window()
    title, part = view.title_of(matrix), view.selection.of(matrix)
    with colored(view.colormap):
        text = attention_text(
            part, width=width, height=height, how=view.how, color=color, title=title, kind=view.kind, command=command
        )
    print(text)


def save_attention(matrix: Matrix, path: str | os.PathLike[str], view: AttentionPicture = AttentionPicture()) -> None:
    """Write the matrix in the format the suffix names: png, svg, pdf, html, npz or csv."""
    form = form_of(path, FORMATS)
    if view.kind != "heatmap" and form not in FIGURES:
        what = "the page of html has its own lines; leave the kind out" if form == "html" else "numbers have no kind"
        raise ValueError(
            f"kind={view.kind!r} is a figure, saved as {', '.join(FIGURES)}; got {Path(path).name!r} ({what})"
        )
    title, part = view.title_of(matrix), view.selection.of(matrix)
    if form == "html":
        with colored(view.colormap):
            content = page(part, how=view.how, title=title).encode()
    elif form == "npz":
        content = as_npz(part)
    elif form == "csv":
        content = as_csv(part)
    else:
        content = figure_bytes(figure_of(matrix, view, every=form != "png"), form)
    replace(path, content)


def figure_of(matrix: Matrix, view: AttentionPicture = AttentionPicture(), *, every: bool = False) -> "Figure":
    """The matplotlib figure: a map of one head with its tokens, or small ones of all heads under one scale; lines
    between tokens; or an alignment of two texts. `every`: write every token, however small, as in a vector file."""
    need_matplotlib()
    title, how, part = view.title_of(matrix) or (UNTITLED if view.title is None else ""), view.how, matrix
    part = view.selection.of(matrix)
    with colored(view.colormap):
        if isinstance(part, MatrixDifference):
            if view.kind != "heatmap":
                raise ValueError(f"kind={view.kind!r} is drawn of weights; a difference is drawn as a heatmap")
            return _heatmaps(part, how, title, every)
        if view.kind == "lines":
            return draw_links(links_of(part, title=title))
        if view.kind == "alignment":
            two_texts = alignment(part, how=how, title=title)
            return draw(two_texts.grid, two_texts.marks, every=every)
        return _heatmaps(part, how, title, every)


def _heatmaps(matrix: Matrix, how: str, title: str, every: bool) -> "Figure":
    heads = math.prod(matrix.shape[:-2])
    side = next(side for most, side in _SMALL_SIDES if heads <= most)
    varying = [size for size in matrix.shape[:-2] if size > 1]
    if heads > _MANY and len(varying) == 2 and all(matrix.shape[-2:]):
        return draw_overview(stacked(pool(matrix, side, side, how=how), (varying[0], varying[1]), how, title))
    record = picture(matrix, side, side, how=how, title=title)
    if isinstance(record, Grid) or not all(matrix.shape[-2:]):
        return draw(record, every=every)
    return draw_heads(record, varying[-1] if len(varying) > 1 and varying[-1] <= 16 else None)
