"""An AttentionMatrix as a file: a figure, a page, or its numbers. A file is replaced whole or not at all."""

import csv
import io
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.inspection.files import replace
from regard.inspection.matrix.handle import AttentionMatrix
from regard.inspection.records import Grid
from regard.plot.alignment import alignment
from regard.plot.attention import FIGURE_SIDE, picture, pooled
from regard.plot.figure import draw, need_matplotlib
from regard.plot.layout import are_positions
from regard.plot.links import links_of
from regard.plot.overview import stacked
from regard.plot.page import page
from regard.plot.save import FIGURES, figure_bytes
from regard.plot.tokens import font_label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (*FIGURES, "html", "npz", "csv")
KINDS = ("map", "lines", "alignment")
MOST_LINES = 1 << 22  # of a csv file
_MANY = 48  # heads with two axes: a mosaic, whose maps have no labels
_MOST_TOKENS = 60  # at one axis of a figure
_SMALL_SIDES = ((4, FIGURE_SIDE), (16, 128), (96, 64), (1 << 30, 32))  # cells of each of so many heads


def save_attention(
    matrix: AttentionMatrix, path: str | os.PathLike[str], *, how: str = "max", title: str = "", kind: str = "map"
) -> None:
    """Write the matrix in the format the suffix names: png, svg, pdf, html, npz or csv; `kind` is that of a figure."""
    path = Path(path)
    form = path.suffix.lower().removeprefix(".")
    if form not in FORMATS:
        raise ValueError(
            f"the suffix of a picture of attention names its format, one of {', '.join(FORMATS)}; got {path.name!r}"
        )
    if kind not in KINDS:
        raise ValueError(f"kind is one of {', '.join(KINDS)}; got {kind!r}")
    if kind != "map" and form not in FIGURES:
        raise ValueError(f"kind={kind!r} is a figure, saved as {', '.join(FIGURES)}; got {path.name!r}")
    if form == "html":
        content = page(matrix, how=how, title=title).encode()
    elif form == "npz":
        content = as_npz(matrix)
    elif form == "csv":
        content = as_csv(matrix)
    else:
        content = figure_bytes(figure_of(matrix, how=how, title=title, kind=kind), form)
    replace(path, content)


def figure_of(matrix: AttentionMatrix, *, how: str = "max", title: str = "", kind: str = "map") -> "Figure":
    """The matplotlib figure: a map of one head with its tokens, or small ones of all heads under one scale; lines
    between tokens; or an alignment of two texts."""
    need_matplotlib()
    if kind == "lines":
        from regard.plot.link_artists import draw_links

        return draw_links(links_of(matrix, title=title))
    if kind == "alignment":
        aligned = alignment(matrix, how=how, title=title)
        return draw(_spelled(aligned.grid), aligned.marks)
    heads = math.prod(matrix.shape[:-2])
    side = next(side for most, side in _SMALL_SIDES if heads <= most)
    varying = [size for size in matrix.shape[:-2] if size > 1]
    if heads > _MANY and len(varying) == 2 and all(matrix.shape[-2:]):
        from regard.plot.mosaic import draw_overview

        return draw_overview(stacked(pooled(matrix, side, side, how=how), (varying[0], varying[1]), how, title))
    found = picture(matrix, side, side, how=how, title=title)
    if isinstance(found, Grid):
        return draw(_spelled(found))
    found = replace_fields(found, pictures=[_spelled(part) for part in found.pictures if isinstance(part, Grid)])
    if not all(matrix.shape[-2:]):
        return draw(found)
    from regard.plot.heads import draw_heads

    return draw_heads(found, varying[-1] if len(varying) > 1 and varying[-1] <= 16 else None)


def _spelled(grid: Grid) -> Grid:
    rows, columns = (_figure_labels(labels) for labels in (grid.row_labels, grid.column_labels))
    return replace_fields(grid, row_labels=rows, column_labels=columns)


def _figure_labels(labels: Sequence[str]) -> list[str]:
    """Tokens as fonts have them; where only some could be written, numbers, of which a few tell the others."""
    if len(labels) > _MOST_TOKENS and not are_positions(labels):
        return [str(number) for number in range(len(labels))]
    return [font_label(label) for label in labels]


def as_npz(matrix: AttentionMatrix) -> bytes:
    """`weights`, and `query_tokens` and `key_tokens` where there are any; hidden pairs are 0, as in `dense`."""
    arrays: dict[str, Any] = {"weights": matrix.dense().detach().cpu().numpy()}
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


def as_csv(matrix: AttentionMatrix) -> bytes:
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


def _lines(matrix: AttentionMatrix) -> Iterator[list[object]]:
    *lead, queries, keys = matrix.shape
    yield [*(f"axis_{n}" for n in range(len(lead))), "query", "key", "query_token", "key_token", "weight"]
    if not math.prod(matrix.shape):
        return
    found = pooled(matrix, queries, keys)
    query_tokens, key_tokens = matrix.query_tokens or [""] * queries, matrix.key_tokens or [""] * keys
    for head, index in enumerate(np.ndindex(*lead)):
        for row, key in np.argwhere(found.visible[head]).tolist():
            yield [*index, row, key, query_tokens[row], key_tokens[key], found.max[head, row, key]]
