"""Links on a matplotlib figure. Only `matrix_file` imports this, when a figure is drawn."""

from collections.abc import Sequence

from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from regard.inspection.text import display_width, fit, visible, wrap
from regard.plot.figure import settle_texts
from regard.plot.links import Link, Links
from regard.plot.series import series_color
from regard.plot.tokens import font_label

_ROWS = ((30, 0.24, 9.0), (60, 0.17, 7.5))  # up to so many tokens: inches of a row, points of a letter
_BETWEEN = 2.6, 4.4  # width of the lines, of few tokens and of many
_APART = 0.035  # inches between the lines of two heads
_LETTER = 0.0098  # inches for each point of its height
_LONGEST_LABEL = 18
_THICKEST, _THINNEST = 3.4, 0.5  # points


def draw_links(links: Links) -> Figure:
    """Two columns of tokens and curves between them; a color for each head."""
    left, right = ([fit(visible(font_label(label)), _LONGEST_LABEL) for label in side] for side in _sides(links))
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
    figure = Figure(figsize=(width, height))
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
        axes.add_line(Line2D((x, x + 0.2), (y, y), color=_web(number), linewidth=3))
        axes.text(x + 0.25, y, name, va="center", fontsize=8)
    for line, text in enumerate(note):
        y = above + rows * row + 0.2 + 0.17 * line
        axes.text(width / 2, y, text, ha="center", va="center", fontsize=8, color="#333333")
    settle_texts(figure)
    return figure


def _sides(links: Links) -> tuple[Sequence[str], Sequence[str]]:
    return links.queries, links.keys


def _curves(links: Links, above: float, ends: tuple[float, float], high: float) -> PatchCollection:
    """The shorter column is spread over the longer; lines of different heads run side by side."""
    bend = (ends[1] - ends[0]) * 0.4
    patches = []
    for link in links.links:
        aside = above + (link.head - (len(links.heads) - 1) / 2) * _APART
        y0 = aside + (link.query + 0.5) * high / len(links.queries)
        y1 = aside + (link.key + 0.5) * high / len(links.keys)
        points = [(ends[0], y0), (ends[0] + bend, y0), (ends[1] - bend, y1), (ends[1], y1)]
        path = Path(points, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
        patches.append(PathPatch(path, fill=False, edgecolor=(*_share(link.head), _alpha(link)), linewidth=_wide(link)))
    return PatchCollection(patches, match_original=True)


def _alpha(link: Link) -> float:
    return min(0.15 + 0.8 * min(link.weight, 1.0), 0.95)


def _wide(link: Link) -> float:
    return _THINNEST + (_THICKEST - _THINNEST) * min(link.weight, 1.0)


def _share(head: int) -> tuple[float, float, float]:
    red, green, blue = series_color(head)
    return red / 255, green / 255, blue / 255


def _web(head: int) -> str:
    return "#{:02x}{:02x}{:02x}".format(*series_color(head))
