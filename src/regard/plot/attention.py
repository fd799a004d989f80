"""An AttentionMatrix in a terminal, as a figure, or as a file (png, svg, pdf, html, npz, csv)."""

import csv
import io
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.inspection.files import form_of, replace
from regard.inspection.matrix.difference import MatrixDifference
from regard.inspection.records import Grid, Panel, SignedGrid
from regard.plot import grids
from regard.plot.alignment import alignment
from regard.plot.figure import FIGURES, figure_bytes, need_matplotlib
from regard.plot.grids import are_positions
from regard.plot.heatmap import TALLEST, Layout, cell_line, choose, color_scale, heatmap_in
from regard.plot.heatmap_figure import draw_heads
from regard.plot.lines import draw_links, links_of
from regard.plot.overview import draw_overview, stacked
from regard.plot.page import page
from regard.plot.pooling import FIGURE_SIDE, Matrix, picture, pool
from regard.plot.render import draw
from regard.plot.terminal import Block, Line, Span, beside, check_window, padded, paragraph, window, written
from regard.plot.theme import Depth, color_depth

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (*FIGURES, "html", "npz", "csv")
KINDS = ("map", "lines", "alignment")
MOST_LINES = 1 << 22  # of a csv file
_MANY = 48  # heads with two axes: a mosaic, whose maps have no labels
_MOST_TOKENS = 60  # at one axis of a figure
_SMALL_SIDES = ((4, FIGURE_SIDE), (16, 128), (96, 64), (1 << 30, 32))  # cells of each of so many heads
_GAP = 2
_SMALLEST_HEAD = (8, 4)  # columns and lines
_TALLEST_HEAD = 16


def print_attention(matrix: Matrix, *, how: str = "max", color: str = "auto", title: str = "") -> None:
    """Print `attention_text` at the size of the terminal."""
    width, height = window()
    print(attention_text(matrix, width=width, height=height, how=how, color=color, title=title))


def attention_text(
    matrix: Matrix,
    *,
    width: int,
    height: int | None = None,
    how: str = "max",
    color: str = "auto",
    title: str = "",
) -> str:
    """One head with its tokens, or all heads side by side, in at most `width` columns and `height` lines."""
    check_window(width, height)
    depth = color_depth(color)
    text = _one_head if math.prod(matrix.shape[:-2]) == 1 else _many_heads
    return written(text(matrix, width, height, how, title, depth), depth)


def _one_head(matrix: Matrix, width: int, height: int | None, how: str, title: str, depth: Depth) -> Block:
    lines = TALLEST + 16 if height is None else height
    queries, keys = matrix.shape[-2:]
    if queries <= TALLEST and keys <= width:
        grid = picture(matrix, queries or 1, keys or 1, how=how, title=title)
        assert isinstance(grid, Grid)
        layout = choose(grid, grid.values, width, depth) if queries and keys else Layout(0, 1)
        if layout.rows == layout.columns == 1:
            block = heatmap_in(layout, grid, width, depth)
            if len(block) <= lines:
                return block
    cell, stacked = (1, 2) if depth.colored else (2, 1)
    around = 3
    while True:
        rows = max((min(lines, TALLEST) - around) * stacked, 1)
        margin = len(str(queries)) + 1
        if matrix.query_tokens and queries <= rows:  # tokens behind the positions
            margin = min(margin + 10, width // 4)
        grid = picture(matrix, rows, max((width - margin) // cell, 1), how=how, title=title)
        assert isinstance(grid, Grid)
        # numbers over the columns, which take one line, and so at the rows before their tokens
        columns = grids.shape(grid.values)[1]
        numbers = grid.column_labels if columns < keys else [str(column) for column in range(columns)]
        named = not are_positions(grid.row_labels) and stacked == 1  # two rows in a line have their number anyway
        labels = [f"{row} {label}" for row, label in enumerate(grid.row_labels)] if named else grid.row_labels
        grid = replace_fields(grid, row_labels=labels, column_labels=numbers)
        block = heatmap_in(Layout(margin, cell, stacked=stacked), grid, width, depth)
        if len(block) <= lines or rows == 1:
            return _shortened(block, lines)
        around += len(block) - lines


@dataclass(frozen=True)
class _HeadTiles:
    """How many heads are shown, how many abreast, lines and columns of each, and the pairs in a cell, both ways."""

    shown: int
    abreast: int
    high: int
    wide: int
    pool: int

    def layout(self, queries: int, keys: int, depth: Depth) -> Layout:
        """Cells about as high as wide: half blocks where there is color, else two letters if they fit."""
        rows, columns = math.ceil(queries / self.pool), math.ceil(keys / self.pool)
        if 2 * columns <= self.wide and rows <= self.high:
            return Layout(0, 2)
        return Layout(0, 1, stacked=2 if depth.colored else 1)


def _many_heads(matrix: Matrix, width: int, height: int | None, how: str, title: str, depth: Depth) -> Block:
    *lead, queries, keys = matrix.shape
    longest = len(",".join(str(size - 1) for size in lead))
    around = 3
    while True:
        lines = None if height is None else max(height - around, 2)
        tiles = _arranged(math.prod(lead), queries, keys, (width, lines), longest, depth)
        panel = picture(matrix, math.ceil(queries / tiles.pool) or 1, math.ceil(keys / tiles.pool) or 1, how=how)
        assert isinstance(panel, Panel)
        heads = [part for part in panel.pictures if isinstance(part, Grid)]
        block = [
            *paragraph(title, width, depth),
            *_heads(heads, tiles, tiles.layout(queries, keys, depth), width, depth),
        ]
        if height is None or len(block) <= height:
            return block
        if lines == 2:
            return _shortened(block, height)
        around += len(block) - height


def _heads(heads: Sequence[Grid], tiles: _HeadTiles, layout: Layout, width: int, depth: Depth) -> list[Line]:
    values = [row for grid in heads for row in grid.values]
    limits = grids.limits(values, signed=isinstance(heads[0], SignedGrid))
    blocks: list[Block] = []
    for grid in heads[: tiles.shown]:
        starts = range(0, len(grid.values), layout.stacked)
        rows = [cell_line(grid.values[start : start + layout.stacked], layout, limits, depth) for start in starts]
        blocks.append([[Span(grid.title.strip("[]").replace(" ", ""))], *rows])
    body: list[Line] = []
    for start in range(0, len(blocks), tiles.abreast):
        body += beside([padded(block, tiles.wide) for block in blocks[start : start + tiles.abreast]], _GAP)
    scale = color_scale(values, layout, limits, width, depth)
    some = f" These are {tiles.shown:,} of {len(heads):,} heads: choose others by index, or save them all."
    note = f"{heads[0].note}.{some if tiles.shown < len(heads) else ''} A{heads[0].title}.show() shows one with labels."
    return [*body, *scale, *paragraph(note, width, depth)]


def _shortened(block: Block, lines: int) -> Block:
    """In a window too small for the note, what fits of it."""
    return block if len(block) <= lines else [*block[: lines - 1], [Span("…")]]


def _arranged(
    heads: int, queries: int, keys: int, window: tuple[int, int | None], longest: int, depth: Depth
) -> _HeadTiles:
    """With the most heads, then the finest cells, then the fewest lines; a name has at most `longest` letters."""
    width, lines = window
    stacked = 2 if depth.colored else 1
    wide, high = max(_SMALLEST_HEAD[0], longest), _SMALLEST_HEAD[1]
    candidates: list[tuple[tuple[int, int, int], _HeadTiles]] = []
    for abreast in range(1, min(heads, max((width + _GAP) // (wide + _GAP), 1)) + 1):
        columns = (width - _GAP * (abreast - 1)) // abreast
        down = math.ceil(heads / abreast)
        if lines is not None:
            down = min(down, max(lines // (min(high, math.ceil(queries / stacked)) + 1), 1))
        each = _TALLEST_HEAD if lines is None else max(lines // down - 1, 1)
        shown = min(heads, down * abreast)
        pool = max(math.ceil(queries / (each * stacked)), math.ceil(keys / columns), 1)
        used = max(min(columns, 2 * math.ceil(keys / pool)), longest)
        candidates.append(((-shown, pool, down), _HeadTiles(shown, abreast, each, used, pool)))
    return min(candidates, key=lambda each: each[0])[1]


def save_attention(
    matrix: Matrix, path: str | os.PathLike[str], *, how: str = "max", title: str = "", kind: str = "map"
) -> None:
    """Write the matrix in the format the suffix names: png, svg, pdf, html, npz or csv; `kind` is that of a figure."""
    form = form_of(path, FORMATS)
    if kind not in KINDS:
        raise _wrong_kind(kind)
    if kind != "map" and form not in FIGURES:
        raise ValueError(f"kind={kind!r} is a figure, saved as {', '.join(FIGURES)}; got {Path(path).name!r}")
    if form == "html":
        content = page(matrix, how=how, title=title).encode()
    elif form == "npz":
        content = as_npz(matrix)
    elif form == "csv":
        content = as_csv(matrix)
    else:
        content = figure_bytes(figure_of(matrix, how=how, title=title, kind=kind), form)
    replace(path, content)


def _wrong_kind(kind: str) -> ValueError:
    return ValueError(f"kind is one of {', '.join(KINDS)}; got {kind!r}")


def figure_of(matrix: Matrix, *, how: str = "max", title: str = "", kind: str = "map") -> "Figure":
    """The matplotlib figure: a map of one head with its tokens, or small ones of all heads under one scale; lines
    between tokens; or an alignment of two texts."""
    need_matplotlib()
    if kind not in KINDS:
        raise _wrong_kind(kind)
    if isinstance(matrix, MatrixDifference):
        if kind != "map":
            raise ValueError(f"kind={kind!r} is drawn of weights; a difference is drawn as a map")
    elif kind == "lines":
        return draw_links(links_of(matrix, title=title))
    elif kind == "alignment":
        two_texts = alignment(matrix, how=how, title=title)
        return draw(_spelled(two_texts.grid), two_texts.marks)
    heads = math.prod(matrix.shape[:-2])
    side = next(side for most, side in _SMALL_SIDES if heads <= most)
    varying = [size for size in matrix.shape[:-2] if size > 1]
    if heads > _MANY and len(varying) == 2 and all(matrix.shape[-2:]):
        return draw_overview(stacked(pool(matrix, side, side, how=how), (varying[0], varying[1]), how, title))
    record = picture(matrix, side, side, how=how, title=title)
    if isinstance(record, Grid):
        return draw(_spelled(record))
    record = replace_fields(record, pictures=[_spelled(part) for part in record.pictures if isinstance(part, Grid)])
    if not all(matrix.shape[-2:]):
        return draw(record)
    return draw_heads(record, varying[-1] if len(varying) > 1 and varying[-1] <= 16 else None)


def _spelled(grid: Grid) -> Grid:
    """The grid with numbers for labels where only some could be written."""
    sides = []
    for labels in (grid.row_labels, grid.column_labels):
        too_many = len(labels) > _MOST_TOKENS and not are_positions(labels)
        sides.append([str(number) if too_many else label for number, label in enumerate(labels)])
    return replace_fields(grid, row_labels=sides[0], column_labels=sides[1])


def _number_name(matrix: Matrix, ending: str = "") -> str:
    return f"{'difference' if isinstance(matrix, MatrixDifference) else 'weight'}{ending}"


def as_npz(matrix: Matrix) -> bytes:
    """`weights` or `differences`, and `query_tokens` and `key_tokens`, if any; hidden pairs are 0, as in `dense`."""
    arrays: dict[str, Any] = {_number_name(matrix, "s"): matrix.dense().detach().cpu().numpy()}
    for name in ("query_tokens", "key_tokens"):
        tokens = getattr(matrix, name)
        if tokens is None:
            continue
        arrays[name] = np.array(tokens, dtype=np.str_)
        if tuple(arrays[name].tolist()) != tokens:
            raise ValueError(f"npz cannot hold a token that ends in a NUL character, as one of {name} does; use csv")
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def as_csv(matrix: Matrix) -> bytes:
    """One line for each visible pair: its leading indices, query, key, their tokens, weight."""
    count = math.prod(matrix.shape)
    if count > MOST_LINES:
        raise ValueError(
            f"csv takes a line for each pair, and {count:,} are more than {MOST_LINES:,}; save one head, as in "
            "A[0, 3].save(...), or save as npz"
        )
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(_lines(matrix))
    return text.getvalue().encode("utf-8", "backslashreplace")


def _lines(matrix: Matrix) -> Iterator[list[object]]:
    *lead, queries, keys = matrix.shape
    yield [*(f"axis_{n}" for n in range(len(lead))), "query", "key", "query_token", "key_token", _number_name(matrix)]
    if not math.prod(matrix.shape):
        return
    pooled = pool(matrix, queries, keys)
    query_tokens, key_tokens = matrix.query_tokens or [""] * queries, matrix.key_tokens or [""] * keys
    for head, index in enumerate(np.ndindex(*lead)):
        for row, key in np.argwhere(pooled.visible[head]).tolist():
            yield [*index, row, key, query_tokens[row], key_tokens[key], pooled.max[head, row, key]]
