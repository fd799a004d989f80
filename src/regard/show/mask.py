"""A mask in a terminal: which keys each query sees."""

import math
import shutil

from regard.show.color import SERIES, Depth
from regard.show.color import depth as chosen_depth
from regard.show.layout import TALLEST
from regard.show.span import Line, Span, paragraph, written
from regard.spec.masks.base import Mask
from regard.spec.plane import Plane

_CELLS = {"all": "██", "some": "▒▒", "none": "··"}
_PLAIN_CELLS = {"all": "##", "some": "::", "none": ".."}


def print_mask(mask: Mask, plane: Plane) -> None:
    """Print `mask_text` at the width of the terminal."""
    print(mask_text(mask, plane))


def mask_text(mask: Mask, plane: Plane, *, width: int | None = None, color: str = "auto") -> str:
    """The mask over the first batch row and head of the plane, in at most `width` columns.

    A block is a visible pair, a dot a hidden one; in a mask too large for that, a cell holds several pairs and is
    gray where it hides some. Rows are numbered by the absolute position of the query.
    """
    depth = chosen_depth(color)
    width = max(shutil.get_terminal_size().columns, 20) if width is None else width
    first = int(plane.starts[0])
    margin = max(len(str(first)), len(str(first + plane.queries))) + 1
    pool = max(math.ceil(plane.keys / max((width - margin) // 2, 1)), math.ceil(plane.queries / TALLEST), 1)
    cells = _PLAIN_CELLS if depth is Depth.PLAIN else _CELLS
    body: list[Line] = [
        [
            Span(f"{first + row:>{margin - 1}} "),
            *(Span(cells[kind], SERIES[0]) for kind in _kinds(mask, plane, row, pool)),
        ]
        for row in range(0, plane.queries, pool)
    ]
    remark = f"Each cell is {pool} queries by {pool} keys." if pool > 1 else ""
    lines = [*paragraph(repr(mask), width, depth), *body, *paragraph(remark, width, depth)]
    return written(lines, depth)


def _kinds(mask: Mask, plane: Plane, row: int, pool: int) -> list[str]:
    """Whether each cell of one line shows all, some or none of its pairs."""
    rows = slice(row, min(row + pool, plane.queries))
    shape = plane.batch, plane.kv_heads, plane.group, rows.stop - rows.start, plane.keys
    seen = mask.visible(plane.pairs(rows, slice(0, plane.keys))).expand(shape)[0, 0, 0]
    parts = seen.split(pool, dim=1) if plane.keys else ()
    return ["all" if part.all() else "some" if part.any() else "none" for part in parts]
