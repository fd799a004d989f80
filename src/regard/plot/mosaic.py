"""An Overview on a matplotlib figure: small maps in rows and columns. Imported when a figure is drawn."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from regard.inspection.records import Grid
from regard.inspection.text import display_width, fit, visible, wrap
from regard.plot import grids
from regard.plot.color import RAMP
from regard.plot.figure import settle_texts
from regard.plot.grids import Limits
from regard.plot.overview import LayerMaps, Overview, values_of

_PAGE = 10.5  # inches across
_LARGEST, _SMALLEST = 1.25, 0.2  # side of a map
_GAP = 0.07  # share of a side between maps
_BAND_GAP = 0.3
_WANTED = 1.3  # width over height
_LETTER = 0.075
_LONGEST_NAME = 30
_HIDDEN = "#e6e6e6"


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
    """Into how many bands side by side the layers are cut, for a figure in the shape of a page."""
    return min(
        range(1, layers + 1), key=lambda bands: abs(math.log(bands * heads / math.ceil(layers / bands) / _WANTED))
    )


def draw_overview(found: Overview, scale: str = "shared") -> Figure:
    """All maps; their colors on one scale for all ("shared") or on one for each ("own")."""
    names, naming = layer_names(found.layers)
    heads = max(len(found.heads), 1)
    bands = bands_of(len(found.layers), heads)
    left = max(max(map(display_width, names)) * _LETTER + 0.2, display_width(found.axes[0]) * _LETTER + 0.15)
    side = (_PAGE - bands * (left + _BAND_GAP)) / (bands * heads * (1 + _GAP))
    places = _Places(
        bands, math.ceil(len(found.layers) / bands), heads, min(max(side, _SMALLEST), _LARGEST), left, _above(found)
    )
    width = max(places.size[0] + (0.8 if scale == "shared" else 0.1), 4.0)
    said = "one scale for all maps" if scale == "shared" else "each map has a scale of its own, from 0 to its largest"
    note = wrap(visible(f"{found.note}; {said}{_gray(found)}{naming}"), int((width - 0.2) / 0.068))
    height = places.size[1] + 0.16 * len(note) + 0.2
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    limits = _limits(found)
    norm = PowerNorm(limits.power, limits.low, limits.high)
    colors = LinearSegmentedColormap.from_list("regard", ["#{:02x}{:02x}{:02x}".format(*color) for color in RAMP])
    for layer in range(len(found.layers)):
        _draw_layer(axes, found, layer, places, colors, norm if scale == "shared" else None)
    axes.set(xlim=(0, width), ylim=(height, 0))  # images change them
    _write_edges(axes, places, names, found)
    if found.title:
        axes.text(places.size[0] / 2, 0.18, visible(found.title), ha="center", va="center", fontsize=12)
    for line, text in enumerate(note):
        axes.text(0.12, places.size[1] + 0.16 + 0.16 * line, text, va="center", fontsize=8, color="#333333")
    if scale == "shared":
        _write_scale(figure, ScalarMappable(norm, colors), places, (width, height), limits)
    settle_texts(figure)
    return figure


def _gray(found: Overview) -> str:
    hidden = any(not layer.found.visible.all() for layer in found.layers if layer.found is not None)
    return "; gray: hidden" if hidden else ""


def _above(found: Overview) -> float:
    return (0.4 if found.title else 0.1) + 0.4


def layer_names(layers: Sequence[LayerMaps]) -> tuple[list[str], str]:
    """What stands beside each layer, and what the note adds: numbers where names differ in a number only."""
    patterns = {re.sub(r"\d+", "\0", layer.name) for layer in layers}
    if patterns == {""}:
        return [str(layer.number) for layer in layers], ""
    if len(patterns) == 1:
        first, last = layers[0].name, layers[-1].name
        return [str(layer.number) for layer in layers], f"; layers: {first}" + (
            f" to {last}" if len(layers) > 1 else ""
        )
    return [f"{layer.number} {_tail(visible(layer.name))}" for layer in layers], ""


def _tail(name: str) -> str:
    """The end of a name, which tells it from others."""
    return name if len(name) <= _LONGEST_NAME else "…" + name[1 - _LONGEST_NAME :]


def _limits(found: Overview) -> grids.Limits:
    seen = [
        layer.found.by(found.how)[layer.found.visible].tolist() for layer in found.layers if layer.found is not None
    ]
    return grids.limits(Grid([]), seen)


def _draw_layer(
    axes: Axes, found: Overview, number: int, places: _Places, colors: LinearSegmentedColormap, norm: PowerNorm | None
) -> None:
    layer = found.layers[number]
    x, y = places.corner(number, 0)
    if layer.found is None:
        across = places.columns * places.step - places.side * _GAP
        axes.add_patch(Rectangle((x, y), across, places.side, facecolor="none", edgecolor="#bbbbbb", linewidth=0.6))
        text = f"refused: {layer.reason}" if layer.reason else "empty"
        text = fit(visible(text), int(across / 0.05))
        axes.text(x + 0.06, y + places.side / 2, text, va="center", fontsize=6.5, color="#666666")
        return
    for head, (values, wide, high) in zip(layer.heads, _tiles(layer, found.how, places.side), strict=True):
        x, y = places.corner(number, found.heads.index(head))
        x, y = x + (places.side - wide) / 2, y + (places.side - high) / 2
        axes.add_patch(Rectangle((x, y), wide, high, facecolor=_HIDDEN, linewidth=0))
        own = norm or _own(values)
        axes.imshow(
            np.ma.masked_invalid(values),
            cmap=colors,
            norm=own,
            extent=(x, x + wide, y + high, y),
            aspect="auto",
            interpolation="nearest",
            origin="upper",
            zorder=2,  # images lie below patches otherwise
        )


def _tiles(layer: LayerMaps, how: str, side: float) -> Iterator[tuple["np.ndarray[Any, Any]", float, float]]:
    """Each map with its width and height: as the text is long, but no side thinner than a fourth."""
    assert layer.found is not None
    queries, keys = layer.found.sizes
    longest = max(queries, keys)
    for values in values_of(layer, how):
        yield values, side * max(keys / longest, 0.25), side * max(queries / longest, 0.25)


def _own(values: "np.ndarray[Any, Any]") -> PowerNorm:
    limits = grids.limits(Grid([]), [values[~np.isnan(values)].tolist()])
    return PowerNorm(limits.power, limits.low, limits.high)


def _write_edges(axes: Axes, places: _Places, names: Sequence[str], found: Overview) -> None:
    """Numbers of heads over each band, of layers beside it."""
    font = min(max(places.side * 20, 5.0), 8.5)
    soft = "#666666"
    step = 1 if places.side >= 0.28 else 4
    for band in range(places.bands):
        layer = band * places.rows
        if layer >= len(names):
            continue
        for column, head in list(enumerate(found.heads))[::step]:
            x, y = places.corner(layer, column)
            axes.text(x + places.side / 2, places.above - 0.07, str(head), ha="center", va="center", fontsize=font)
        x, y = places.corner(layer, 0)
        middle = x + (places.columns * places.step - places.side * _GAP) / 2
        axes.text(middle, places.above - 0.25, found.axes[1], ha="center", va="center", fontsize=8, color=soft)
        axes.text(x - 0.08, places.above - 0.25, found.axes[0], ha="right", va="center", fontsize=8, color=soft)
    for layer, name in enumerate(names):
        x, y = places.corner(layer, 0)
        axes.text(x - 0.08, y + places.side / 2, name, ha="right", va="center", fontsize=font)


def _write_scale(
    figure: Figure, colors: ScalarMappable, places: _Places, size: tuple[float, float], limits: Limits
) -> None:
    high = min(places.rows * places.step, 2.6)
    left, bottom = places.size[0] + 0.05, size[1] - places.above - high
    axes = figure.add_axes((left / size[0], bottom / size[1], 0.12 / size[0], high / size[1]))
    scale = figure.colorbar(colors, cax=axes)
    scale.outline.set_visible(False)
    scale.set_label(grids.scale_label(limits), fontsize=7)
    axes.tick_params(labelsize=7, length=2)
