"""All heads of a capture at once: a small map for each, in a row for each layer."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from regard.inspection.matrix.handle import AttentionMatrix
from regard.inspection.text import display_width, fit, visible, wrap
from regard.plot import grids
from regard.plot.figure import DOTS_PER_INCH, LARGE_LINE, finish_texts, title_lines
from regard.plot.heatmap_figure import HIDDEN, value_label
from regard.plot.pooling import NAMES, PooledHeads, pool
from regard.plot.selection import TokenSelection
from regard.plot.theme import colormap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

MOST_MAPS = 4096
SCALES = ("shared", "own")
_SIDES = ((150, 128), (600, 64), (MOST_MAPS, 16))  # cells of each of so many maps
_PAGE = 10.5  # inches across
_LARGEST, _SMALLEST = 1.25, 0.2  # side of a map
_GAP = 0.07  # share of a side between maps
_BAND_GAP = 0.3
_WANTED = 1.3  # width over height
_LETTER = 0.075
_LONGEST_NAME = 30


class Layers(Protocol):
    """The part of a capture that is drawn."""

    @property
    def layers(self) -> tuple[str, ...]:
        """Names."""

    @property
    def refused(self) -> dict[str, str]:
        """Names and reasons."""

    def __getitem__(self, layer: int, /) -> AttentionMatrix:
        """The weights of a layer, (batch, head, query, key)."""

    def numbers(self, layer: int, /) -> tuple[int, ...]:
        """The numbers that the heads of a layer have in the model."""


class SelectedLayers:
    """The layers of one batch row of a capture, with chosen tokens."""

    def __init__(self, capture: Layers, batch: int, selection: TokenSelection) -> None:
        self._capture, self._batch, self._selection = capture, batch, selection
        self.layers, self.refused = capture.layers, capture.refused
        self.name, self.model = (getattr(capture, name, "") for name in ("name", "model"))

    @property
    def shown(self) -> list[int]:
        """The numbers of the layers that have weights."""
        return [number for number, name in enumerate(self.layers) if name not in self.refused]

    def numbers(self, layer: int) -> tuple[int, ...]:
        """The numbers of the heads of a layer."""
        return self._capture.numbers(layer)

    def __getitem__(self, layer: int) -> AttentionMatrix:
        return self._selection.of(_row(self._capture[layer], self._batch))


@dataclass(frozen=True, eq=False)
class LayerMaps:
    """One layer: its number, its name, its heads in small maps and their numbers, or why it has none."""

    number: int
    name: str
    pooled: PooledHeads | None
    heads: Sequence[int] = ()
    reason: str = ""
    kind: str = ""


@dataclass(frozen=True, eq=False)
class Overview:
    """Layers with a map for each head."""

    layers: Sequence[LayerMaps]
    how: str
    title: str = ""
    note: str = ""
    axes: tuple[str, str] = ("layers", "heads")

    @property
    def signed(self) -> bool:
        """Whether cells are differences."""
        return any(layer.pooled is not None and layer.pooled.signed for layer in self.layers)

    @property
    def heads(self) -> list[int]:
        """The numbers of all heads that some layer has: the columns."""
        return sorted({head for layer in self.layers for head in layer.heads})


def matrices(capture: Layers, batch: int = 0) -> Iterator[tuple[int, str, AttentionMatrix | None, str]]:
    """Number, name and weights (head, query, key) of each layer for one row of the batch, or why there are none."""
    refused = capture.refused
    for number, name in enumerate(capture.layers):
        if name in refused:
            yield number, name, None, refused[name]
            continue
        yield number, name, _row(capture[number], batch), ""


def _row(matrix: AttentionMatrix, batch: int) -> AttentionMatrix:
    """The weights of one row of the batch, (head, query, key)."""
    while matrix.ndim > 4:  # more axes than (batch, head): the first of each
        matrix = matrix[0]
    if matrix.ndim == 4:
        rows = matrix.shape[0]
        if not -rows <= batch < rows:
            raise ValueError(f"batch is a row of the batch, one of 0 to {rows - 1}; got {batch}")
        matrix = matrix[batch]
    return matrix


def overview(
    capture: Layers, *, how: str = "max", title: str = "", batch: int = 0, side: int | None = None
) -> Overview:
    """Every head of every layer in at most `side` × `side` cells, one layer after the other; hidden cells are blank."""
    captured = list(matrices(capture, batch))
    count = sum(math.prod(matrix.shape[:-2]) for _, _, matrix, _ in captured if matrix is not None)
    if count > MOST_MAPS:
        raise ValueError(
            f"an overview holds at most {MOST_MAPS:,} heads, and this capture has {count:,}; save its layers one by "
            "one, as in c[0].save(...)"
        )
    side = side or next(side for most, side in _SIDES if count <= most)
    layers = [
        LayerMaps(number, name, None, reason=reason)
        if matrix is None or not all(matrix.shape)
        else LayerMaps(
            number if matrix.origin.number is None else matrix.origin.number,
            name,
            pool(matrix, side, side, how=how),
            capture.numbers(number),
            kind=matrix.origin.kind,
        )
        for number, name, matrix, reason in captured
    ]
    return Overview(layers, how, title, _note(layers, how))


def stacked(pooled: PooledHeads, shape: tuple[int, int], how: str, title: str = "") -> Overview:
    """The heads of a matrix whose leading axes are `shape`, as if the first were layers."""
    rows, columns = shape
    layers = []
    for row in range(rows):
        part = slice(row * columns, (row + 1) * columns)
        some = replace(
            pooled, names=pooled.names[part], max=pooled.max[part], mean=pooled.mean[part], visible=pooled.visible[part]
        )
        layers.append(LayerMaps(row, "", some, range(columns)))
    return Overview(layers, how, title, _note(layers, how), ("first index", "second index"))


def _note(layers: Sequence[LayerMaps], how: str) -> str:
    """The sizes of the maps and what a cell means."""
    shown = [layer.pooled for layer in layers if layer.pooled is not None]
    sizes = sorted({each.sizes for each in shown})
    text = ", ".join(f"{queries:,} × {keys:,}" for queries, keys in sizes[:3]) + (", …" if len(sizes) > 3 else "")
    parts = [f"each map: queries (rows) × keys (columns), {text}"]
    parts += list(dict.fromkeys(each.remark for each in shown if each.remark))[:2]
    if any(not each.exact for each in shown):
        most = max(max(each.down, each.right) for each in shown)
        parts.append(f"each cell: the {'largest' if how == 'max' else 'mean'} of up to {most:,} × {most:,} weights")
    refused = sum(bool(layer.reason) for layer in layers)
    if refused:
        parts.append(f"{refused} {'layer' if refused == 1 else 'layers'} refused: left blank")
    return "; ".join(parts)


def values_of(layer: LayerMaps, how: str) -> "list[np.ndarray[Any, Any]]":
    """The maps of a layer, NaN where pairs are hidden."""
    if layer.pooled is None:
        return []
    return list(np.where(layer.pooled.visible, layer.pooled.by(how), np.nan))


@dataclass(frozen=True)
class _Places:
    """Layers in `bands` of `rows` each, side by side; all in inches from the top left."""

    bands: int
    rows: int
    columns: int
    side: float
    left: float
    above: float

    @property
    def step(self) -> float:
        return self.side * (1 + _GAP)

    @property
    def band(self) -> float:
        return self.left + self.columns * self.step + (_BAND_GAP if self.bands > 1 else 0.0)

    @property
    def size(self) -> tuple[float, float]:
        return self.bands * self.band, self.above + self.rows * self.step

    def corner(self, layer: int, head: int) -> tuple[float, float]:
        """The top left of a map; head −1 is the place of the layer's name."""
        band, row = divmod(layer, self.rows)
        return band * self.band + self.left + head * self.step, self.above + row * self.step


def bands_of(layers: int, heads: int) -> int:
    """Into how many bands side by side the layers are split, for a figure in the shape of a page."""
    return min(
        range(1, layers + 1), key=lambda bands: abs(math.log(bands * heads / math.ceil(layers / bands) / _WANTED))
    )


def draw_overview(maps: Overview, scale: str = "shared") -> "Figure":
    """All maps; their colors on one scale for all ("shared") or on one for each ("own")."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    names = layer_names(maps.layers)
    heads = max(len(maps.heads), 1)
    bands = bands_of(len(maps.layers), heads)
    left = max(max(map(display_width, names)) * _LETTER + 0.2, display_width(maps.axes[0]) * _LETTER + 0.15)
    side = (_PAGE - bands * (left + _BAND_GAP)) / (bands * heads * (1 + _GAP))
    side = min(max(side, _SMALLEST), _LARGEST)
    across = bands * (left + heads * side * (1 + _GAP) + (_BAND_GAP if bands > 1 else 0.0))
    width = max(across + (0.8 if scale == "shared" else 0.1), 4.0)
    title = title_lines(maps.title, width)
    above = 0.5 + (LARGE_LINE * len(title) + 0.08 if title else 0.0)
    places = _Places(bands, math.ceil(len(maps.layers) / bands), heads, side, left, above)
    shown = [layer.pooled for layer in maps.layers if layer.pooled is not None]
    hidden = "; gray: hidden" if any(not pooled.visible.all() for pooled in shown) else ""
    said = "one scale for all maps" if scale == "shared" else "each map has a scale of its own, from 0 to its largest"
    note = wrap(visible(f"{maps.note}; {said}{hidden}"), int((width - 0.2) / 0.068))
    height = places.size[1] + 0.16 * len(note) + 0.2
    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    limits = grids.array_limits((pooled.by(maps.how)[pooled.visible] for pooled in shown), signed=maps.signed)
    norm = PowerNorm(limits.power, limits.low, limits.high)
    for layer in range(len(maps.layers)):
        _draw_layer(axes, maps, layer, places, norm if scale == "shared" else None)
    axes.set(xlim=(0, width), ylim=(height, 0))  # images change them
    _write_edges(axes, places, names, maps)
    for line, text in enumerate(title):
        axes.text(width / 2, 0.18 + LARGE_LINE * line, text, ha="center", va="center", fontsize=12)
    for line, text in enumerate(note):
        axes.text(0.12, places.size[1] + 0.16 + 0.16 * line, text, va="center", fontsize=8, color="#333333")
    if scale == "shared":
        high = min(places.rows * places.step, 2.6)
        left, bottom = places.size[0] + 0.05, height - places.above - high
        beside = figure.add_axes((left / width, bottom / height, 0.12 / width, high / height))
        bar = figure.colorbar(ScalarMappable(norm, colormap(maps.signed)), cax=beside)
        bar.outline.set_visible(False)
        bar.set_label(value_label(NAMES[2], limits), fontsize=7)
        beside.tick_params(labelsize=7, length=2)
    finish_texts(figure)
    return figure


def layer_names(layers: Sequence[LayerMaps]) -> list[str]:
    """What stands beside each layer: its number, with its kind or its name where these differ in more than a number."""
    if any(layer.kind for layer in layers):
        return [f"{layer.number} {layer.kind}".rstrip() for layer in layers]
    if len({re.sub(r"\d+", "\0", layer.name) for layer in layers}) == 1:
        return [str(layer.number) for layer in layers]
    names = [visible(layer.name) for layer in layers]  # of a long one its end, which tells it from others
    names = [name if len(name) <= _LONGEST_NAME else "…" + name[1 - _LONGEST_NAME :] for name in names]
    return [f"{layer.number} {name}" for layer, name in zip(layers, names, strict=True)]


def _draw_layer(axes: "Axes", maps: Overview, number: int, places: _Places, norm: "PowerNorm | None") -> None:
    from matplotlib.colors import PowerNorm
    from matplotlib.patches import Rectangle

    layer = maps.layers[number]
    x, y = places.corner(number, 0)
    if layer.pooled is None:
        across = places.columns * places.step - places.side * _GAP
        axes.add_patch(Rectangle((x, y), across, places.side, facecolor="none", edgecolor="#bbbbbb", linewidth=0.6))
        text = f"refused: {layer.reason}" if layer.reason else "empty"
        text = fit(visible(text), int(across / 0.05))
        axes.text(x + 0.06, y + places.side / 2, text, va="center", fontsize=6.5, color="#666666")
        return
    # as the text is long, but no side thinner than a fourth
    longest = max(layer.pooled.sizes)
    high, wide = (places.side * max(size / longest, 0.25) for size in layer.pooled.sizes)
    for head, values in zip(layer.heads, values_of(layer, maps.how), strict=True):
        x, y = places.corner(number, maps.heads.index(head))
        x, y = x + (places.side - wide) / 2, y + (places.side - high) / 2
        axes.add_patch(Rectangle((x, y), wide, high, facecolor=HIDDEN, linewidth=0))
        if norm is None:
            limits = grids.array_limits([values], signed=maps.signed)
        own = norm or PowerNorm(limits.power, limits.low, limits.high)
        axes.imshow(
            np.ma.masked_invalid(values),
            cmap=colormap(maps.signed),
            norm=own,
            extent=(x, x + wide, y + high, y),
            aspect="auto",
            interpolation="nearest",
            origin="upper",
            zorder=2,  # images lie below patches otherwise
        )


def _write_edges(axes: "Axes", places: _Places, names: Sequence[str], maps: Overview) -> None:
    """Numbers of heads over each band, of layers beside it."""
    font = min(max(places.side * 20, 5.0), 8.5)
    soft = "#666666"
    step = 1 if places.side >= 0.28 else 4
    for band in range(places.bands):
        layer = band * places.rows
        if layer >= len(names):
            continue
        for column, head in list(enumerate(maps.heads))[::step]:
            x, y = places.corner(layer, column)
            axes.text(x + places.side / 2, places.above - 0.07, str(head), ha="center", va="center", fontsize=font)
        x, y = places.corner(layer, 0)
        middle = x + (places.columns * places.step - places.side * _GAP) / 2
        axes.text(middle, places.above - 0.25, maps.axes[1], ha="center", va="center", fontsize=8, color=soft)
        axes.text(x - 0.08, places.above - 0.25, maps.axes[0], ha="right", va="center", fontsize=8, color=soft)
    for layer, name in enumerate(names):
        x, y = places.corner(layer, 0)
        axes.text(x - 0.08, y + places.side / 2, name, ha="right", va="center", fontsize=font)
