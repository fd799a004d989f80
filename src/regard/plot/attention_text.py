"""An AttentionMatrix as text for a terminal: one head with its tokens, heads side by side, or strong weights listed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields

from regard.inspection.matrix.difference import MatrixDifference
from regard.inspection.matrix.handle import AttentionMatrix
from regard.inspection.number import short
from regard.inspection.records import Grid, Panel, SignedGrid
from regard.inspection.text import display_width, left
from regard.inspection.tokens import ascii_label
from regard.plot import grids
from regard.plot.alignment import alignment
from regard.plot.captions import head_hint
from regard.plot.grids import are_positions
from regard.plot.heatmap import TALLEST, Layout, cell_line, choose, color_scale, heatmap, heatmap_in
from regard.plot.lines import Links, links_of
from regard.plot.pooling import Matrix, picture
from regard.plot.terminal import Block, Line, Span, beside, check_window, padded, paragraph, written
from regard.plot.theme import Depth, color_depth, series_color

_GAP = 2
_SMALLEST_HEAD = (8, 4)  # columns and lines
_TALLEST_HEAD = 16
_WIDEST_TOKEN = 16


def attention_text(
    matrix: Matrix,
    *,
    width: int,
    height: int | None = None,
    how: str = "max",
    color: str = "auto",
    title: str = "",
    kind: str = "heatmap",
    command: bool = False,
) -> str:
    """One head with its tokens, or all heads side by side, in at most `width` columns and `height` lines; or, as long
    as it is, a list of strong weights (`kind` "lines"), or an alignment. `command`: hints are of the command line."""
    check_window(width, height)
    depth = color_depth(color)
    if kind != "heatmap" and isinstance(matrix, MatrixDifference):
        raise ValueError(f"kind={kind!r} is drawn of weights; a difference is drawn as a heatmap")
    if kind == "lines":
        assert isinstance(matrix, AttentionMatrix)
        return written(_list_of_links(links_of(matrix, title=title), width, depth), depth)
    if kind == "alignment":
        assert isinstance(matrix, AttentionMatrix)
        return written(_aligned(matrix, width, how, title, depth), depth)
    if math.prod(matrix.shape[:-2]) == 1:
        return written(_one_head(matrix, width, height, how, title, depth), depth)
    return written(_many_heads(matrix, width, height, how, title, depth, command), depth)


def _list_of_links(links: Links, width: int, depth: Depth) -> Block:
    """A line for each query: the keys that it reads most, strongest first, and their weights."""
    queries, keys = (
        [ascii_label(label) if depth is Depth.PLAIN else label for label in side]
        for side in (links.queries, links.keys)
    )
    margin = min(max((display_width(query) for query in queries), default=0), _WIDEST_TOKEN, width // 3)
    arrow = " -> " if depth is Depth.PLAIN else " → "
    lines: list[Line] = list(paragraph(links.title, width, depth))
    for number, query in enumerate(queries):
        strongest = sorted((link for link in links.links if link.query == number), key=lambda link: -link.weight)
        line, room = [Span(left(query, margin) + arrow)], width - margin - len(arrow)
        for place, link in enumerate(strongest):
            name = f" [{links.heads[link.head].strip('[]')}]" if len(links.heads) > 1 else ""
            text = f"{', ' if place else ''}{keys[link.key]} {short(link.weight)}{name}"
            if display_width(text) > room:
                break
            room -= display_width(text)
            line.append(Span(text, series_color(link.head) if len(links.heads) > 1 and depth.colored else None))
        lines.append(line)
    note = links.note.replace(". Thicker and darker: more weight", "")
    return [*lines, *paragraph(f"queries{arrow}the keys that they read most; {note}", width, depth)]


def _aligned(matrix: AttentionMatrix, width: int, how: str, title: str, depth: Depth) -> Block:
    """The map, and the strongest key of each row."""
    found = alignment(matrix, min(TALLEST, width // 2), how=how, title=title)
    grid = replace_fields(found.grid, note=found.grid.note.replace("; marked: the strongest key of each row", ""))
    arrow = "->" if depth is Depth.PLAIN else "→"
    labels = [
        (grid.row_labels[round(row)], grid.column_labels[round(column)]) for row, column in found.marks if row >= 0
    ]
    block = heatmap(grid, width, depth)
    if grids.shape(grid.values) != tuple(matrix.shape[-2:]):
        return block
    pairs = ", ".join(f"{query}{arrow}{key}" for query, key in labels)
    return [*block, *paragraph(f"the strongest key of each row: {pairs}", width, depth)]


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


def _many_heads(
    matrix: Matrix, width: int, height: int | None, how: str, title: str, depth: Depth, command: bool
) -> Block:
    hint = head_hint(matrix, command)
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
            *_heads(heads, tiles, tiles.layout(queries, keys, depth), width, depth, hint),
        ]
        if height is None or len(block) <= height:
            return block
        if lines == 2:
            return _shortened(block, height)
        around += len(block) - height


def _heads(heads: Sequence[Grid], tiles: _HeadTiles, layout: Layout, width: int, depth: Depth, hint: str) -> list[Line]:
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
    some = f" These are {tiles.shown:,} of {len(heads):,} heads." if tiles.shown < len(heads) else ""
    note = f"{heads[0].note}.{some} {hint}"
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
