"""An AttentionMatrix in a terminal: as much of it as the window holds, in width and in height."""

import math
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from regard.inspection.matrix.handle import AttentionMatrix
from regard.inspection.records import Grid, Panel
from regard.plot import grids
from regard.plot.attention import picture
from regard.plot.color import Depth
from regard.plot.color import depth as chosen_depth
from regard.plot.grids import Limits
from regard.plot.heatmap import cell_line, color_scale, heatmap_in
from regard.plot.layout import TALLEST, Layout, are_positions, choose
from regard.plot.span import Block, Line, Span, beside, padded, paragraph, written
from regard.plot.terminal import NARROWEST

SHORTEST = 8  # lines
_GAP = 2
_SMALLEST_HEAD = (8, 4)  # columns and lines
_TALLEST_HEAD = 16


def print_attention(matrix: AttentionMatrix, *, how: str = "max", color: str = "auto", title: str = "") -> None:
    """Print `attention_text` at the size of the terminal; what is not a terminal has no height."""
    window = shutil.get_terminal_size()
    height = max(window.lines - 1, SHORTEST) if sys.stdout.isatty() else None  # the prompt comes below
    width = max(window.columns, NARROWEST)
    print(attention_text(matrix, width=width, height=height, how=how, color=color, title=title))


def attention_text(
    matrix: AttentionMatrix,
    *,
    width: int,
    height: int | None = None,
    how: str = "max",
    color: str = "auto",
    title: str = "",
) -> str:
    """One head with its tokens, or all heads side by side, in at most `width` columns and `height` lines."""
    if width < NARROWEST or (height is not None and height < SHORTEST):
        raise ValueError(
            f"a picture needs {NARROWEST} columns and {SHORTEST} lines at least, got {width} columns and {height} lines"
        )
    depth = chosen_depth(color)
    heads = math.prod(matrix.shape[:-2])
    draw = _one if heads == 1 else _many
    return written(draw(matrix, width, height, how, title, depth), depth)


def _one(matrix: AttentionMatrix, width: int, height: int | None, how: str, title: str, depth: Depth) -> Block:
    lines = TALLEST + 16 if height is None else height
    queries, keys = matrix.shape[-2:]
    if queries <= TALLEST and keys <= width:
        grid = _grid(picture(matrix, queries or 1, keys or 1, how=how, title=title))
        layout = choose(grid, grid.values, width, depth) if queries and keys else Layout(0, 1)
        if layout.rows == layout.columns == 1:
            block = heatmap_in(layout, grid, width, depth)
            if len(block) <= lines:
                return block
    cell, stacked = (1, 2) if depth.colored else (2, 1)
    around = 3
    while True:
        rows = max((min(lines, TALLEST) - around) * stacked, 1)
        margin = _margin(matrix, rows, width)
        grid = _grid(picture(matrix, rows, max((width - margin) // cell, 1), how=how, title=title))
        block = heatmap_in(Layout(margin, cell, stacked=stacked), _by_number(grid, keys, stacked), width, depth)
        if len(block) <= lines or rows == 1:
            return _cut(block, lines)
        around += len(block) - lines


def _by_number(grid: Grid, keys: int, stacked: int) -> Grid:
    """The same grid with numbers over its columns, which take one line, and so at its rows before their tokens."""
    columns = grids.shape(grid.values)[1]
    numbers = grid.column_labels if columns < keys else [str(column) for column in range(columns)]
    named = not are_positions(grid.row_labels) and stacked == 1  # two rows in a line have their number anyway
    rows = [f"{row} {label}" for row, label in enumerate(grid.row_labels)] if named else grid.row_labels
    return replace(grid, row_labels=rows, column_labels=numbers)


def _margin(matrix: AttentionMatrix, rows: int, width: int) -> int:
    """Columns for positions, and for tokens behind them where each row is one."""
    queries = matrix.shape[-2]
    number = len(str(queries)) + 1
    return min(number + 10, width // 4) if matrix.query_tokens and queries <= rows else number


def _grid(found: Grid | Panel) -> Grid:
    assert isinstance(found, Grid)
    return found


@dataclass(frozen=True)
class _Tiles:
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


def _many(matrix: AttentionMatrix, width: int, height: int | None, how: str, title: str, depth: Depth) -> Block:
    *lead, queries, keys = matrix.shape
    longest = len(",".join(str(size - 1) for size in lead))
    around = 3
    while True:
        lines = None if height is None else max(height - around, 2)
        tiles = _arranged(math.prod(lead), queries, keys, (width, lines), longest, depth)
        panel = picture(matrix, math.ceil(queries / tiles.pool) or 1, math.ceil(keys / tiles.pool) or 1, how=how)
        assert isinstance(panel, Panel)
        every = [part for part in panel.pictures if isinstance(part, Grid)]
        block = [
            *paragraph(title, width, depth),
            *_heads(every, tiles, tiles.layout(queries, keys, depth), width, depth),
        ]
        if height is None or len(block) <= height:
            return block
        if lines == 2:
            return _cut(block, height)
        around += len(block) - height


def _heads(every: Sequence[Grid], tiles: _Tiles, layout: Layout, width: int, depth: Depth) -> list[Line]:
    limits = shared_limits(every)
    blocks = [_small(grid, layout, limits, depth) for grid in every[: tiles.shown]]
    body: list[Line] = []
    for start in range(0, len(blocks), tiles.abreast):
        body += beside([padded(block, tiles.wide) for block in blocks[start : start + tiles.abreast]], _GAP)
    scale = color_scale([row for grid in every for row in grid.values], layout, limits, width, depth)
    some = f" These are {tiles.shown:,} of {len(every):,} heads: choose others by index, or save them all."
    note = f"{every[0].note}.{some if tiles.shown < len(every) else ''} A{every[0].title}.show() shows one with labels."
    return [*body, *scale, *paragraph(note, width, depth)]


def _cut(block: Block, lines: int) -> Block:
    """In a window too small for the note, what fits of it."""
    return block if len(block) <= lines else [*block[: lines - 1], [Span("…")]]


def shared_limits(every: Sequence[Grid]) -> Limits:
    """One scale for heads that stand side by side."""
    return grids.limits(Grid([]), [row for grid in every for row in grid.values])


def _small(grid: Grid, layout: Layout, limits: Limits, depth: Depth) -> Block:
    starts = range(0, len(grid.values), layout.stacked)
    rows = [cell_line(grid.values[start : start + layout.stacked], layout, limits, depth) for start in starts]
    return [[Span(grid.title.strip("[]").replace(" ", ""))], *rows]


def _arranged(
    heads: int, queries: int, keys: int, window: tuple[int, int | None], longest: int, depth: Depth
) -> _Tiles:
    """With the most heads, then the finest cells, then the fewest lines; a name has at most `longest` letters."""
    width, lines = window
    stacked = 2 if depth.colored else 1
    wide, high = max(_SMALLEST_HEAD[0], longest), _SMALLEST_HEAD[1]
    found: list[tuple[tuple[int, int, int], _Tiles]] = []
    for abreast in range(1, min(heads, max((width + _GAP) // (wide + _GAP), 1)) + 1):
        columns = (width - _GAP * (abreast - 1)) // abreast
        down = math.ceil(heads / abreast)
        if lines is not None:
            down = min(down, max(lines // (min(high, math.ceil(queries / stacked)) + 1), 1))
        each = _TALLEST_HEAD if lines is None else max(lines // down - 1, 1)
        shown = min(heads, down * abreast)
        pool = max(math.ceil(queries / (each * stacked)), math.ceil(keys / columns), 1)
        used = max(min(columns, 2 * math.ceil(keys / pool)), longest)
        found.append(((-shown, pool, down), _Tiles(shown, abreast, each, used, pool)))
    return min(found, key=lambda each: each[0])[1]
