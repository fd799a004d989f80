"""Two attention matrices side by side on one scale of colors, and their difference where they have one shape."""

import io
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.inspection.files import form_of
from regard.inspection.files import replace as replace_file
from regard.inspection.matrix.difference import MatrixDifference
from regard.inspection.matrix.handle import AttentionMatrix
from regard.inspection.records import Grid, Panel
from regard.pages.document import framed
from regard.plot import grids
from regard.plot.attention import AttentionPicture, print_attention
from regard.plot.figure import FIGURES, figure_bytes, finished, need_matplotlib
from regard.plot.heatmap_figure import draw_heads
from regard.plot.page import FILE, NOTEBOOK, PageLimits, comparison_page
from regard.plot.pooling import FIGURE_SIDE, picture
from regard.plot.render import draw, render
from regard.plot.terminal import window

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (*FIGURES, "html", "npz")
_ABREAST = 40  # tokens of maps that are printed side by side; longer ones stand below each other
_SMALL_SIDE = 64  # cells of each of many heads


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two matrices and what they are called. `difference` is the first less the second, None for different shapes."""

    first: AttentionMatrix
    second: AttentionMatrix
    names: tuple[str, str] = ("first", "second")
    title: str = ""

    @property
    def difference(self) -> MatrixDifference | None:
        """The first less the second, if they have one shape."""
        return self.first - self.second if self.first.shape == self.second.shape else None

    def show(self, *, color: str = "auto") -> None:
        """Print both, and their difference, as they fit the terminal."""
        width, _ = window()
        heads = [math.prod(matrix.shape[:-2]) for matrix in (self.first, self.second)]
        if heads == [1, 1] and max(*self.first.shape[-2:], *self.second.shape[-2:]) <= _ABREAST:
            print(render(self._panel(), width=width, color=color))
            return
        for matrix, name in zip((self.first, self.second, self.difference), self._titles, strict=False):
            if matrix is not None:
                print_attention(matrix, AttentionPicture(title=name), color=color)
                print()

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write both, and their difference: png, svg, pdf; html, a page; npz, the numbers. Returns the path."""
        form = form_of(path, FORMATS)
        if form == "html":
            content = self._page(FILE).encode()
        elif form == "npz":
            content = self._npz()
        else:
            need_matplotlib()
            content = figure_bytes(self._figure(), form)
        replace_file(path, content)
        return Path(path)

    def figure(self) -> "Figure":
        """The picture that `save` writes as a matplotlib figure of its own."""
        need_matplotlib()
        return finished(self._figure())

    def _repr_html_(self) -> str:
        return framed(self._page(NOTEBOOK))

    @property
    def _titles(self) -> tuple[str, str, str]:
        return (*self.names, f"{self.names[0]}, less {self.names[1]}")

    def _page(self, limits: PageLimits) -> str:
        return comparison_page(self.first, self.second, self.difference, self.names, self.title, limits)

    def _panel(self) -> Panel:
        """One head of each, on one scale, and the difference on its own."""
        pair = [picture(matrix, FIGURE_SIDE, FIGURE_SIDE) for matrix in (self.first, self.second)]
        maps = [each for each in pair if isinstance(each, Grid)]
        scale = grids.limits([row for grid in maps for row in grid.values])
        named = [
            replace(grid, title=name, limits=(scale.low, scale.high))
            for grid, name in zip(maps, self.names, strict=True)
        ]
        if (difference := self.difference) is not None:
            signed = picture(difference, FIGURE_SIDE, FIGURE_SIDE, title="difference")
            assert isinstance(signed, Grid)
            named.append(signed)
        return Panel(named, self.title)

    def _figure(self) -> Any:
        heads = [math.prod(matrix.shape[:-2]) for matrix in (self.first, self.second)]
        if heads == [1, 1]:
            return draw(self._panel())
        if self.first.shape != self.second.shape:
            raise ValueError(
                f"a figure of two matrices of several heads needs one shape, got {self.first.shape} and "
                f"{self.second.shape}; choose a head of each, or save a page: html"
            )
        rows = [picture(matrix, _SMALL_SIDE, _SMALL_SIDE) for matrix in (self.first, self.second)]
        maps = [
            replace(part, title=f"{letter} {part.title}", limits=None)
            for row, letter in zip(rows, "AB", strict=True)
            if isinstance(row, Panel)
            for part in row.pictures
            if isinstance(part, Grid)
        ]
        title = f"{self.title}{'; ' if self.title else ''}A: {self.names[0]}; B: {self.names[1]}"
        return draw_heads(Panel(maps, title), heads[0] if heads[0] <= 16 else None)

    def _npz(self) -> bytes:
        """`first`, `second` and `difference`, and the tokens of each."""
        arrays: dict[str, Any] = {}
        for name, matrix in (("first", self.first), ("second", self.second)):
            arrays[name] = matrix.dense().detach().cpu().numpy()
            for side in ("query_tokens", "key_tokens"):
                if (tokens := getattr(matrix, side)) is not None:
                    arrays[f"{name}_{side}"] = np.array(tokens, dtype=np.str_)
        if self.difference is not None:
            arrays["difference"] = self.difference.dense().detach().cpu().numpy()
        content = io.BytesIO()
        np.savez(content, **arrays)
        return content.getvalue()


def compare(
    first: AttentionMatrix, second: AttentionMatrix, *, names: tuple[str, str] = ("first", "second"), title: str = ""
) -> Comparison:
    """Two matrices side by side: heads, layers, models or texts, of any shape. `A - B` subtracts those of one shape."""
    for name, matrix in (("first", first), ("second", second)):
        if not isinstance(matrix, AttentionMatrix):
            raise TypeError(f"compare takes two attention matrices, got {type(matrix).__name__} as the {name}")
        if not math.prod(matrix.shape):
            raise ValueError(f"the {name} matrix is empty: its shape is {matrix.shape}")
    return Comparison(first, second, names, title)
