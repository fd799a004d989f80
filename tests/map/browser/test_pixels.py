"""Every dot on the canvas has the color of the weights that it stands for."""

import math
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest
import torch

from regard.inspection.matrix import AttentionMatrix
from regard.map import demo
from regard.plot.theme import RAMP

if TYPE_CHECKING:
    from tests.map.browser.conftest import Opener, Seen, Served

N = 100_000
STRIPES, DOCUMENTS = (demo.HEADS.index(name) for name in ("stripes", "documents"))
ZOOMS = [
    (80_000.5, 65_716.5, 24),
    (70_000, 60_000, 1),
    (60_000, 45_714, 0.3),
    (50_000, 40_000, 0.14),
    (50_000, 40_000, 0.07),
    (N - 300, N - 300, 1.5),
]
STEP = 1 / 8  # of a byte, in powers of two


class Slab:
    """weight × visible keys of a few rows of a causal head around a query, pooled into dots."""

    def __init__(self, head: AttentionMatrix, q: int, side: int) -> None:
        n, first = head.shape[-1], q // side * side
        self.side, self.start = side, max(first - side, 0)
        rows = torch.arange(self.start, min(first + 2 * side, n)).view(-1, 1)
        relative = head[self.start : self.start + len(rows), :].double() * (rows + 1)
        self.relative = relative.masked_fill(torch.arange(n) > rows, -1.0)

    def pooled(self, q: int, k: int, how: str) -> float | None:
        """Of the dot that holds (q, k); None where all is hidden."""
        top, left = q // self.side * self.side - self.start, k // self.side * self.side
        part = self.relative[top : top + self.side, left : left + self.side]
        seen = part[part >= 0]
        if not len(seen):
            return None
        return float(seen.max() if how == "max" else seen.mean())


def bytes_of(relative: float | None, keys: int) -> set[int]:
    """The byte of a value: two of them if it lies on the edge between both, where rounding may go either way."""
    if relative is None:
        return {0}
    if relative <= 0:
        return {1}
    exact = 255 + (math.log2(relative) - math.ceil(math.log2(keys))) / STEP
    return {min(max(round(exact + shift), 1), 255) for shift in (-0.01, 0, 0.01)}


def color_of(byte: int, keys: int, view: Mapping[str, Any]) -> tuple[int, ...]:
    """The color of a byte on the page's logarithmic scale; a hidden pair is the page's own."""
    if byte == 0:
        text = str(view["theme"]["hidden"])
        return tuple(int(text[at : at + 2], 16) for at in (1, 3, 5))
    value = math.ceil(math.log2(keys)) - (255 - byte) * STEP
    part = min(max((value - view["low"]) / (view["high"] - view["low"]), 0), 1)
    return ramp(view["colors"], part)


def ramp(stops: Sequence[Sequence[int]], part: float) -> tuple[int, ...]:
    """As regard.plot.theme.ramp, for any stops."""
    place = part * (len(stops) - 1)
    step = min(int(place), len(stops) - 2)
    pairs = zip(stops[step], stops[step + 1], strict=True)
    return tuple(math.floor(low + (high - low) * (place - step) + 0.5) for low, high in pairs)


def dot(view: dict[str, Any], x: int, y: int) -> tuple[int, int]:
    """Query and key under a device pixel of the canvas."""
    scale, offset, ratio = view["scale"], view["offset"], view["ratio"]
    q, k = (math.floor(((at + 0.5) / ratio - offset[axis]) / scale) for at, axis in ((y, "y"), (x, "x")))
    return q, k


def inner(view: dict[str, Any], side: int, x: int, y: int) -> bool:
    """Whether a pixel lies well within its dot, and not at a border that may fall on either side of it."""
    return len({tuple(at // side for at in dot(view, x + a, y + b)) for a in (-1, 0, 1) for b in (-1, 0, 1)}) == 1


def compare(seen: "Seen", served: "Served", head: int, how: str = "max", bands: int = 3, count: int = 12) -> set[int]:
    """Compare dots all over the canvas, a few in each of a few rows; returns the bytes that were met."""
    view, layer, draw = seen.state("view()"), served.capture_view.layers[0], random.Random(1)
    side, n = layer.levels.side(view["level"]), layer.keys
    wide, high = seen.page.evaluate("(({ width, height }) => [width, height])(document.querySelector('canvas.plot'))")
    met = set()
    for _ in range(bands):
        y = draw.choice([y for y in range(1, high - 1) if 0 <= dot(view, 0, y)[0] < n])
        row = dot(view, 0, y)[0]
        places = [x for x in range(1, wide - 1) if 0 <= dot(view, x, y)[1] < min(n, row + 30 * side)]
        points = [(x, y) for x in draw.sample(places, min(count, len(places)))]
        slab = Slab(served.head(head), row, side)
        for (x, _), (*color, _) in zip(points, seen.pixels(points), strict=True):
            near = [0] if inner(view, side, x, y) else [-1, 0, 1]
            allowed: dict[tuple[int, ...], int] = {}
            for q, k in {dot(view, x + a, y + b) for a in near for b in near}:
                if 0 <= q < n and 0 <= k < n:
                    found = bytes_of(slab.pooled(q, k, how), n)
                    allowed |= {color_of(byte, n, view): byte for byte in found}
            assert tuple(color) in allowed, f"at {x}, {y}: {color}, not one of {allowed}"
            met.add(allowed[tuple(color)])
    return met


def test_dots_are_the_weights_at_100000(open_map: "Opener", large: "Served") -> None:
    seen = open_map(large, f"head={STRIPES}")
    sides = []
    for q, k, scale in ZOOMS:
        seen.goto(q=q, k=k, scale=scale)
        view = seen.state("view()")
        assert (view["estimate"], view["head"], view["scale"]) == (False, STRIPES, pytest.approx(scale))
        assert [tuple(stop) for stop in view["colors"]] == list(RAMP)
        sides.append(large.capture_view.layers[0].levels.side(view["level"]))
        assert len(compare(seen, large, STRIPES)) > 2  # dots that differ, not one color that fits all
    assert sides == [1, 1, 4, 8, 16, 1]


def test_the_far_corner_is_the_last_weight(open_map: "Opener", large: "Served") -> None:
    seen = open_map(large, f"head={STRIPES}&at={N - 0.5},{N - 0.5},40")
    view = seen.state("view()")
    x, y = (round((N - 0.5) * view["scale"] + view["offset"][axis]) for axis in "xy")
    last, past = seen.pixels([(x, y), (x + 40, y)])
    exact = Slab(large.head(STRIPES), N - 1, 1).pooled(N - 1, N - 1, "max")
    allowed = {color_of(byte, N, view) for byte in bytes_of(exact, N)}
    assert tuple(last[:3]) in allowed
    assert past[:3] == [255, 255, 255]  # nothing behind the last key


@pytest.mark.parametrize("how", ["max", "mean"])
def test_the_overview_is_exact_once_it_says_so(open_map: "Opener", small: "Served", how: str) -> None:
    seen = open_map(small, f"head={DOCUMENTS}&statistic={how}", wait="exact")
    seen.settle()
    view = seen.state("view()")
    assert not view["estimate"]
    assert small.capture_view.layers[0].levels.side(view["level"]) >= 32
    compare(seen, small, DOCUMENTS, how)


def test_sharp_screens_get_their_own_dots(open_map: "Opener", large: "Served") -> None:
    seen = open_map(large, f"head={STRIPES}&at=70000,60000,1", device_scale_factor=2)
    view = seen.state("view()")
    assert view["ratio"] == 2
    compare(seen, large, STRIPES, bands=2)


def test_the_map_is_never_one_color(open_map: "Opener", large: "Served") -> None:
    seen = open_map(large, f"head={STRIPES}")
    assert seen.colors() > 8
    for scale in (0.08, 0.7, 5, 30):
        seen.goto(q=60_000, k=45_716, scale=scale)
        assert seen.colors() > 8, scale
