"""Two heads of the map, one less the other: tiles, profiles and cells against `A - B`."""

import time
from typing import Any

import numpy as np
import pytest
import torch

from regard.inspection.matrix import AttentionMatrix, matrix
from regard.map.difference_view import DifferenceView
from regard.map.jobs import RequestError, Stop
from regard.map.levels import SIGNED_STEP, TILE, ZERO, Levels
from regard.map.viewer import Viewer
from regard.map.views import CaptureView, LayerView
from regard.spec import masks

from .test_tiles import decoded

LESS = [0, 0, 1]  # layer, batch row, head


def view_of(n: int, mask: Any = "causal", other: Any = None) -> CaptureView:
    """Two layers of two heads, the second with a mask of its own; in float64, since means of differences cancel."""
    draw = torch.Generator().manual_seed(1)
    query, key = torch.randn(2, 1, 2, n, 8, generator=draw, dtype=torch.float64) * 2
    layers = (matrix(query, key, mask=mask), matrix(key, query, mask=mask if other is None else other))
    return CaptureView(tuple(LayerView(f"layer {at}", own) for at, own in enumerate(layers)), "two layers")


def answer(viewer: Viewer, name: str, less: list[int] | None = None, **body: Any) -> Any:
    return viewer.answer(name, {"layer": 0, "head": 0, "less": less or LESS, **body}, Stop())


def level(viewer: Viewer, levels: Levels, z: int, less: list[int]) -> tuple[Any, Any, set[int]]:
    """Means and largest differences of a whole level as numbers, NaN where nothing is visible, and the flags."""
    down, right = levels.tiles(z)
    whole, flags = np.zeros((2, down * TILE, right * TILE), np.uint8), set()
    places = [[z, y, x] for y in range(down) for x in range(right)]
    for start in range(0, len(places), 64):
        for place, (flag, *planes) in decoded(answer(viewer, "tiles", less, tiles=places[start : start + 64])).items():
            flags.add(flag)
            for plane, own in zip(whole, planes, strict=True):
                if own is not None:
                    plane[place.y * TILE :, place.x * TILE :][:TILE, :TILE] = own
    high, wide = levels.cells(z)
    mean, largest = (numbers(plane[:high, :wide], levels) for plane in whole)
    return mean, largest, flags


def numbers(coded: Any, levels: Levels) -> Any:
    """Bytes of differences as numbers."""
    steps = coded.astype(np.int64) - ZERO
    size = np.where(steps == 0, 0.0, 2.0 ** (levels.top - (127 - np.abs(steps)) * SIGNED_STEP))
    return np.where(coded == 0, np.nan, np.sign(steps) * size)


def expected(first: AttentionMatrix, second: AttentionMatrix, seen: Any, side: int) -> tuple[Any, Any, Any]:
    """Mean and largest difference times visible keys of every cell, in float64, and where both signs are as large."""
    relative = (first - second).dense(None).double().numpy() * seen.sum(-1, keepdims=True)
    high, wide = relative.shape
    means, tops = (np.full((-(-high // side), -(-wide // side)), np.nan) for _ in range(2))
    ties = np.zeros(means.shape, bool)
    for y in range(means.shape[0]):
        for x in range(means.shape[1]):
            part = (slice(y * side, (y + 1) * side), slice(x * side, (x + 1) * side))
            own = relative[part][seen[part]]
            if own.size:
                above, below = max(0.0, own.max()), max(0.0, -own.min())
                even = abs(above - below) <= 1e-5 * above  # in a row of two keys both differ alike: 0 decides nothing
                means[y, x], tops[y, x] = own.mean(), above if even or above > below else -below
                ties[y, x] = even
    return means, tops, ties


def agree(found: Any, wanted: Any, levels: Levels, ties: Any = False) -> None:
    """Hidden at the same cells, and within half a step of a byte, or both too small for one."""
    assert (np.isnan(found) == np.isnan(wanted)).all()
    least = 2.0 ** (levels.top - 127 * SIGNED_STEP)
    small = np.abs(wanted) < 2 * least
    assert (np.abs(found[small]) <= 4 * least).all()
    steps = np.abs(np.log2(np.abs(found[~small])) - np.log2(np.abs(wanted[~small]))) / SIGNED_STEP
    both = ~np.isnan(wanted[~small])
    assert (steps[both] <= 0.5 + 1e-3).all()
    same = (np.sign(found) == np.sign(wanted)) | ties
    assert same[~small][both].all()


CASES = {
    "one mask": ("causal", None, [0, 0, 1]),
    "another layer": ("causal", None, [1, 0, 0]),
    "another mask": ("causal", masks.Causal() & masks.Window(40, 0), [1, 0, 1]),
    "masks that hardly meet": (masks.Window(9, -3), masks.Window(-2, 12), [1, 0, 0]),
    "no mask": (None, None, [0, 0, 1]),
}


@pytest.mark.parametrize("case", CASES)
def test_every_level_is_the_pool_of_the_differences(case: str) -> None:
    n = 600
    mask, other, less = CASES[case]
    view = view_of(n, mask, other)
    viewer, levels = Viewer(view), view.layers[0].levels
    first, second = view.layers[0].head(0, 0), view.layers[less[0]].head(less[1], less[2])
    seen = np.logical_or(*(own.dense().numpy() > 0 for own in (first, second)))  # no weight of these is 0
    for z in range(levels.count):
        mean, largest, flags = level(viewer, levels, z, less)
        means, tops, ties = expected(first, second, seen, levels.side(z))
        assert flags <= {0, 1}
        agree(mean, means, levels)
        agree(largest, tops, levels, ties)
    viewer.close()


def test_a_long_difference_is_estimated_and_then_exact() -> None:
    n = 9_000
    view = view_of(n)
    viewer, levels = Viewer(view), view.layers[0].levels
    assert levels.exact_from > 0
    _, largest, flags = level(viewer, levels, 0, LESS)
    assert flags == {2}
    until = time.monotonic() + 300
    while answer(viewer, "progress")["state"] != "exact":
        assert time.monotonic() < until
        time.sleep(0.05)
    exact_mean, exact, flags = level(viewer, levels, 0, LESS)
    assert flags == {0}
    seen = np.tri(n, dtype=bool)
    means, tops, ties = expected(view.layers[0].head(0, 0), view.layers[0].head(0, 1), seen, levels.side(0))
    agree(exact_mean, means, levels)
    agree(exact, tops, levels, ties)
    visible = ~np.isnan(largest)
    assert (visible == ~np.isnan(exact)).all()
    assert (np.abs(largest[visible]) <= np.abs(exact[visible])).all()  # it can miss one, and never makes one up
    swapped = viewer.answer("tiles", {"layer": 0, "head": 1, "less": [0, 0, 0], "tiles": [[0, 0, 0]]}, Stop())
    assert {flag for flag, *_ in decoded(swapped).values()} == {2}  # a pyramid of its own
    assert answer(viewer, "strongest", count=3)["exact"]
    viewer.close()


def test_pooled_cells_are_those_of_the_matrix_difference() -> None:
    """Without a mask every row sees all keys: the map's cells are those of `(A - B).pool` times their number."""
    view = view_of(512, None)
    pair = [view.layers[0].head(0, number) for number in (0, 1)]
    viewer = Viewer(view)
    shown = viewer.head_and_levels((0, 0, 0, 0, 0, 1))[0]
    assert isinstance(shown, DifferenceView)
    everything = slice(0, 512)
    for side in (1, 8, 64):
        grid = shown.grid(everything, everything, side)
        for how in ("mean", "max"):
            pool = (pair[0] - pair[1]).pool(512 // side, 512 // side, how).double() * 512
            own = grid.mean if how == "mean" else grid.max
            torch.testing.assert_close(own.double(), pool, rtol=1e-5, atol=1e-6)
    viewer.close()


def test_halving_keeps_the_sign_of_the_larger() -> None:
    view = view_of(64)
    shown = Viewer(view).head_and_levels((0, 0, 0, 0, 0, 1))[0]
    fine = shown.grid(slice(0, 64), slice(0, 64), 4)
    halved, coarse = fine.halved(), shown.grid(slice(0, 64), slice(0, 64), 8)
    assert torch.equal(halved.max.double(), coarse.max.double())
    assert bool((halved.max < 0).any())
    assert bool((halved.max > 0).any())
    torch.testing.assert_close(halved.sum.double(), coarse.sum.double(), rtol=1e-6, atol=1e-6)


def test_a_cell_a_row_and_a_column() -> None:
    view = view_of(300, "causal", masks.Window(40, 0))
    viewer, less = Viewer(view), [1, 0, 1]
    first, second = view.layers[0].head(0, 0), view.layers[1].head(0, 1)
    difference, q, k = (first - second).dense().double(), 200, 190
    cell = answer(viewer, "cell", less, q=q, k=k)
    assert cell["weight"] == pytest.approx(float(difference[q, k]), rel=1e-5, abs=1e-9)
    assert cell["first"] == pytest.approx(float(first[q, k]), rel=1e-5)
    assert cell["second"] == pytest.approx(float(second[q, k]), rel=1e-5)
    assert (cell["visible"], cell["hidden"]) == (201, False)
    assert cell["rank"] == int((difference[q].abs() > abs(cell["weight"])).sum()) + 1
    far = answer(viewer, "cell", less, q=q, k=20)
    assert (far["second"], far["hidden"]) == (None, False)
    assert answer(viewer, "cell", less, q=q, k=250)["hidden"]
    row = answer(viewer, "row", less, q=q)
    assert row["variation"] == pytest.approx(float((first - second).variation()[q]), rel=1e-5)
    assert [value is None for value in row["max"]] == [at > q for at in range(300)]
    assert row["max"][k] == pytest.approx(float(difference[q, k]) * 201, rel=1e-4)
    assert row["top"][0]["k"] == int(difference[q].abs().argmax())
    few = answer(viewer, "row", less, q=q, bins=30)
    own = difference[q, :10] * 201
    assert few["mean"][0] == pytest.approx(float(own.mean()), rel=1e-4)
    assert few["max"][0] == pytest.approx(float(own[own.abs().argmax()]), rel=1e-4)
    column = answer(viewer, "column", less, k=k)
    assert column["sum"] == pytest.approx(float((first - second).received()[k]), rel=1e-5)
    assert column["max"][q] == pytest.approx(float(difference[q, k]) * 201, rel=1e-4)
    cells = answer(viewer, "strongest", less, count=1)["cells"]
    relative = difference * torch.arange(1, 301, dtype=torch.float64).view(-1, 1)
    assert divmod(int(relative.abs().argmax()), 300) == (cells[0]["q"], cells[0]["k"])
    assert cells[0]["weight"] == pytest.approx(float(difference[cells[0]["q"], cells[0]["k"]]), rel=1e-4)
    viewer.close()


@pytest.mark.parametrize(
    "less, text",
    [
        ([0, 0], "less must be"),
        ([0, 0, True], "less must be"),
        ([0, 0, -1], "less must be"),
        ("head 1", "less must be"),
        ([7, 0, 0], "a layer that is there"),
        ([0, 1, 0], "a batch row and a head"),
        ([0, 0, 2], "a batch row and a head"),
        ([1, 0, 0], "two heads of one size"),
    ],
)
def test_what_cannot_be_subtracted_is_refused(viewer: Viewer, less: Any, text: str) -> None:
    for name, body in (("tiles", {"tiles": [[0, 0, 0]]}), ("progress", {}), ("cell", {"q": 0, "k": 0})):
        with pytest.raises(RequestError, match=text):
            viewer.answer(name, {"layer": 0, "head": 0, "less": less, **body}, Stop())
