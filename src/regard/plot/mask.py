"""A mask in a terminal or a file: which keys each query sees, and how many pairs that makes."""

import math
import os
import shutil
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from regard.inspection.records import Grid
from regard.plot.heatmap import TALLEST, Layout, heatmap_in
from regard.plot.render import draw
from regard.plot.save import save
from regard.plot.terminal import written
from regard.plot.theme import color_depth
from regard.spec.masks.base import Mask
from regard.spec.masks.count import count_cells
from regard.spec.masks.extent import picture_plane
from regard.spec.plane import Plane

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CELL = 2  # columns: about square
_FIGURE = 128  # cells at a side of a figure


def print_mask(mask: Mask, plane: Plane, *, batch_row: int = 0, head: int = 0) -> None:
    """Print `mask_text` at the width of the terminal."""
    print(mask_text(mask, plane, batch_row=batch_row, head=head))


def save_mask(
    mask: Mask,
    path: str | os.PathLike[str],
    queries: int | None = None,
    keys: int | None = None,
    *,
    query_start: int | Tensor | None = None,
    batch_row: int = 0,
    head: int = 0,
) -> Path:
    """Write the picture in the format the suffix names (png svg pdf txt json csv); sizes as in `mask.show`."""
    return save(_figure_grid(mask, picture_plane(mask, queries, keys, query_start), batch_row, head), path)


def figure_of(mask: Mask, plane: Plane, *, batch_row: int = 0, head: int = 0) -> "Figure":
    """The matplotlib figure."""
    return draw(_figure_grid(mask, plane, batch_row, head))


def _figure_grid(mask: Mask, plane: Plane, batch_row: int, head: int) -> Grid:
    return mask_grid(mask, plane, batch_row=batch_row, head=head, across=_FIGURE, down=_FIGURE)


def mask_text(
    mask: Mask, plane: Plane, *, batch_row: int = 0, head: int = 0, width: int | None = None, color: str = "auto"
) -> str:
    """The mask for one batch row and head, in at most `width` columns, with its name and its exact number of pairs.

    A block is a visible pair, a blank a hidden one; in a mask too large for that, a cell holds several pairs and its
    shade is the share that is visible. Rows are labeled with the positions of queries, columns with those of keys.
    """
    depth = color_depth(color)
    width = max(shutil.get_terminal_size().columns, 20) if width is None else width
    start = _start(plane, batch_row)
    margin = max(len(str(start)), len(str(start + plane.queries))) + 1
    across = max((width - margin) // _CELL, 1)
    grid = mask_grid(mask, plane, batch_row=batch_row, head=head, across=across, down=TALLEST)
    return written(heatmap_in(Layout(margin, _CELL), grid, width, depth), depth)


def mask_grid(mask: Mask, plane: Plane, *, batch_row: int = 0, head: int = 0, across: int = 64, down: int = 64) -> Grid:
    """The share of visible pairs in each cell, None where it is 0, in at most `down` rows and `across` columns.

    Shares are exact. A cell is one pair if there is room, else a square of several.
    """
    for name, index, count in (("batch_row", batch_row, plane.batch), ("head", head, plane.heads)):
        if not 0 <= index < max(count, 1):
            raise ValueError(f"{name} must be one of 0 to {count - 1}, got {index}")
    pool = max(math.ceil(plane.keys / across), math.ceil(plane.queries / down), 1)
    step = 5 * 10 ** (len(str(pool)) - 2) if pool >= 10 else 1
    pool = -(-pool // step) * step  # for round labels: 9 stays, 22 becomes 25, 21,740 becomes 25,000
    rows, columns = ([*range(0, length, pool), length] for length in (plane.queries, plane.keys))
    counts = count_cells(mask, plane, rows, columns)
    of_head = counts[batch_row, head] if counts.numel() else counts.sum((0, 1))
    sizes = [[(bottom - top) * (right - left) for left, right in pairwise(columns)] for top, bottom in pairwise(rows)]
    start = _start(plane, batch_row)
    return Grid(
        values=[
            [seen / size if seen else None for seen, size in zip(line, row, strict=True)]
            for line, row in zip(of_head.tolist(), sizes, strict=True)
        ],
        row_labels=[str(start + row) for row in rows[:-1]],
        column_labels=[str(plane.key_start + column) for column in columns[:-1]],
        title=repr(mask),
        note=_note(plane, int(of_head.sum()), int(counts.sum()), pool, batch_row, head),
        limits=(0.0, 1.0),
    )


def _note(plane: Plane, visible: int, total: int, pool: int, batch_row: int, head: int) -> str:
    pairs, batch_heads = plane.queries * plane.keys, plane.batch * plane.heads
    queries, keys = _many(plane.queries, "query", "queries"), _many(plane.keys, "key", "keys")
    parts = [f"{queries} (rows) × {keys} (columns): {_visible(visible, pairs)}"]
    if batch_heads > 1:
        which = [(plane.batch, f"batch row {batch_row}"), (plane.heads, f"head {head}")]
        where = ", ".join(f"{text} (of 0 to {count - 1})" for count, text in which if count > 1)
        parts += [f"shown: {where}", f"over all batch rows and heads: {_visible(total, pairs * batch_heads)}"]
    if pool > 1:
        parts.append(f"each cell: {pool:,} × {pool:,} pairs")
    return "; ".join(parts)


def _many(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"


def _visible(seen: int, pairs: int) -> str:
    """The share has three digits; 0% and 100% only where they are exact."""
    text = f"{seen:,} of {_many(pairs, 'pair', 'pairs')} visible"
    if not pairs:
        return text
    percent = f"{100 * seen / pairs:.3g}%"
    if percent in ("0%", "100%") and 0 < seen < pairs:
        percent = "less than 100%" if seen > pairs / 2 else "more than 0%"
    return f"{text} ({percent})"


def _start(plane: Plane, batch_row: int) -> int:
    if plane.starts.numel() == 0:
        return 0
    return int(plane.starts[batch_row if plane.starts.numel() > 1 else 0])
