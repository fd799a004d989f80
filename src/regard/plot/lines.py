"""An AttentionMatrix as lines from token to token: queries at the left, keys at the right, the strong weights between.

Weak weights are left out, and the note says which and how much of the whole they are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from regard.inspection.matrix.handle import AttentionMatrix
from regard.inspection.number import short
from regard.inspection.text import display_width, fit, visible, wrap
from regard.plot.captions import index_of_head
from regard.plot.figure import DOTS_PER_INCH, finish_texts
from regard.plot.pooling import pool
from regard.plot.theme import SERIES, hex_color, series_color

if TYPE_CHECKING:
    from matplotlib.collections import PatchCollection
    from matplotlib.figure import Figure

MOST_TOKENS = 160  # at a side
MOST_HEADS = len(SERIES)
_FEW, _LEAST = 0.1, 0.02  # the threshold for few keys, and the lowest for many
_ROWS = (
    (30, 0.24, 9.0),
    (60, 0.17, 7.5),
    (100, 0.13, 6.5),
    (MOST_TOKENS, 0.1, 5.5),
)  # up to so many tokens: inches of a row, points of a letter
_BETWEEN = 2.6, 4.4  # width of the lines, of few tokens and of many
_APART = 0.035  # inches between the lines of two heads
_LETTER = 0.0098  # inches for each point of its height
_LONGEST_LABEL = 18
_THICKEST, _THINNEST = 3.4, 0.5  # points


@dataclass(frozen=True)
class TokenLink:
    """One line: from query `query` to key `key`, of head number `head` among those drawn."""

    head: int
    query: int
    key: int
    weight: float


@dataclass(frozen=True)
class Links:
    """Lines between two columns of tokens, weak ones first so that strong ones lie on top."""

    links: Sequence[TokenLink]
    queries: Sequence[str]
    keys: Sequence[str]
    heads: Sequence[str]
    threshold: float
    title: str = ""
    note: str = ""


def links_of(matrix: AttentionMatrix, *, threshold: float | None = None, title: str = "") -> Links:
    """The weights of at least `threshold`; by default that is an even share, 1 / keys, within 0.02 and 0.1."""
    *lead, queries, keys = matrix.shape
    heads = math.prod(lead)
    if max(queries, keys) > MOST_TOKENS:
        raise ValueError(
            f"lines are drawn between up to {MOST_TOKENS} tokens at a side, and there are {queries:,} queries and "
            f'{keys:,} keys; take kind="heatmap" (--kind heatmap), or a part: tokens=slice(0, {MOST_TOKENS}) '
            f"(--tokens 0:{MOST_TOKENS})"
        )
    if heads > MOST_HEADS:
        raise ValueError(
            f"lines have a color for each of up to {MOST_HEADS} heads, and there are {heads:,}; choose one: "
            f"{index_of_head(matrix)}"
        )
    pooled = pool(matrix, max(queries, 1), max(keys, 1))
    threshold = min(max(1 / max(keys, 1), _LEAST), _FEW) if threshold is None else threshold
    drawn = pooled.visible & (pooled.max >= threshold) & (pooled.max > 0)
    links = [
        TokenLink(head, query, key, float(pooled.max[head, query, key]))
        for head, query, key in np.argwhere(drawn).tolist()
    ]
    names = [name if name != "[]" else "" for name in pooled.names]
    total, total_drawn = float(pooled.max[pooled.visible].sum()), float(pooled.max[drawn].sum())
    share = f", {100 * total_drawn / total:.0f}% of the weight" if total > 0 else ""
    note = (
        f"{int(drawn.sum()):,} of {int(pooled.visible.sum()):,} visible pairs{share}; weights below {short(threshold)} "
        f"are left out{'; ' * bool(pooled.remark)}{pooled.remark}. Thicker and darker: more weight"
    )
    return Links(
        sorted(links, key=lambda link: link.weight),
        *pooled.labels(matrix),
        names,
        threshold,
        title,
        note,
    )


def draw_links(links: Links) -> "Figure":
    """Two columns of tokens and curves between them; a color for each head."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    left, right = ([fit(visible(label), _LONGEST_LABEL) for label in side] for side in (links.queries, links.keys))
    named = len(links.heads) > 1
    rows = max(len(left), len(right), 1)
    row, font = next((row, font) for most, row, font in _ROWS if rows <= most)
    beside = [max((display_width(each) for each in side), default=1) * _LETTER * font + 0.25 for side in (left, right)]
    between = min(max(_BETWEEN[0], rows * row * 0.5), _BETWEEN[1])
    width = max(beside[0] + between + beside[1], 4.2)
    title, note = wrap(visible(links.title), int(width / 0.1)), wrap(visible(links.note), int(width / 0.072))
    legend = [visible(name) for name in links.heads] if named else []
    per_line = max(int((width - 0.2) / 0.75), 1)
    above = 0.22 * len(title) + 0.34 + 0.24 * -(-len(legend) // per_line)
    height = above + rows * row + 0.17 * len(note) + 0.25
    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    start = (width - beside[0] - between - beside[1]) / 2 + beside[0]
    stop = start + between
    for count, place, side, labels in ((len(left), start, "right", left), (len(right), stop, "left", right)):
        offset = 0.06 if side == "left" else -0.06
        for number, label in enumerate(labels):
            middle = above + (number + 0.5) * rows * row / count
            axes.text(place + offset, middle, label, ha=side, va="center", fontsize=font)
    axes.text(start - 0.06, above - 0.14, "queries", ha="right", va="center", fontsize=8, color="#666666")
    axes.text(stop + 0.06, above - 0.14, "keys", ha="left", va="center", fontsize=8, color="#666666")
    axes.add_collection(_curves(links, above, (start, stop), rows * row))
    for line, text in enumerate(title):
        axes.text(width / 2, 0.14 + 0.22 * line, text, ha="center", va="center", fontsize=11)
    for number, name in enumerate(legend):
        line, place = divmod(number, per_line)
        x, y = 0.12 + 0.75 * place, 0.22 * len(title) + 0.14 + 0.24 * line
        axes.add_line(Line2D((x, x + 0.2), (y, y), color=hex_color(series_color(number)), linewidth=3))
        axes.text(x + 0.25, y, name, va="center", fontsize=8)
    for line, text in enumerate(note):
        y = above + rows * row + 0.2 + 0.17 * line
        axes.text(width / 2, y, text, ha="center", va="center", fontsize=8, color="#333333")
    finish_texts(figure)
    return figure


def _curves(links: Links, above: float, ends: tuple[float, float], high: float) -> "PatchCollection":
    """The shorter column is spread over the longer; lines of different heads run side by side."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    bend = (ends[1] - ends[0]) * 0.4
    patches = []
    for link in links.links:
        aside = above + (link.head - (len(links.heads) - 1) / 2) * _APART
        y0 = aside + (link.query + 0.5) * high / len(links.queries)
        y1 = aside + (link.key + 0.5) * high / len(links.keys)
        points = [(ends[0], y0), (ends[0] + bend, y0), (ends[1] - bend, y1), (ends[1], y1)]
        path = Path(points, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
        weight = min(link.weight, 1.0)
        color = *(part / 255 for part in series_color(link.head)), min(0.15 + 0.8 * weight, 0.95)
        width = _THINNEST + (_THICKEST - _THINNEST) * weight
        patches.append(PathPatch(path, fill=False, edgecolor=color, linewidth=width))
    return PatchCollection(patches, match_original=True)
