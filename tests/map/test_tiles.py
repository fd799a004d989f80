"""Tiles of every level equal the pools of dense weights in float64, up to one step of a byte."""

import struct
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.inspection.matrix import AttentionMatrix, matrix
from regard.map import pyramid
from regard.map.jobs import Stop, Stopped
from regard.map.levels import STEP, TILE, Levels, Place
from regard.map.tiles import EMPTY, ESTIMATE, TileRow, bands, preview_grid, sampled
from regard.map.viewer import Viewer
from regard.map.views import CaptureView, LayerView
from regard.spec import biases, masks, normalizers, scores

BATCH, HEADS, GROUPS = 2, 4, 2


def dense(found: AttentionMatrix, keep: Tensor) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Weights times visible keys in float64, and which pairs are visible."""
    weights, seen = found.dense(None).double().numpy(), keep.numpy()
    return weights * seen.sum(-1, keepdims=True), seen


def pooled(relative: np.ndarray[Any, Any], seen: np.ndarray[Any, Any], levels: Levels, z: int) -> Any:
    """Mean and max of every cell of a level as steps of a byte; −1 where nothing is visible."""
    side = levels.side(z)
    down, right = (np.arange(0, size, side) for size in relative.shape)
    count = np.add.reduceat(np.add.reduceat(seen.astype(np.int64), down, 0), right, 1)
    total = np.add.reduceat(np.add.reduceat(np.where(seen, relative, 0.0), down, 0), right, 1)
    largest = np.maximum.reduceat(np.maximum.reduceat(np.where(seen, relative, 0.0), down, 0), right, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = [np.log2(part) for part in (total / np.maximum(count, 1), largest)]
    return [np.where(count == 0, -1.0, np.clip(255 - (levels.top - value) / STEP, 1, 255)) for value in values]


def decoded(answer: Any) -> dict[Place, tuple[int, Any, Any]]:
    """The tiles of an answer."""
    assert isinstance(answer, bytes)
    assert answer[:4] == b"RGT1"
    (count,), at, found = struct.unpack_from("<I", answer, 4), 8, {}
    for _ in range(count):
        z, flags, zero, y, x = struct.unpack_from("<BBHII", answer, at)
        assert zero == 0
        at += 12
        planes: list[Any] = [None, None]
        if not flags & EMPTY:
            planes = [np.frombuffer(answer, np.uint8, TILE * TILE, at + n * TILE * TILE) for n in range(2)]
            planes = [plane.reshape(TILE, TILE) for plane in planes]
            at += 2 * TILE * TILE
        found[Place(z, y, x)] = (flags, *planes)
    assert at == len(answer)
    return found


def level(viewer: Viewer, levels: Levels, z: int, batch: int = 0, head: int = 0) -> tuple[Any, Any, set[int]]:
    """All cells of a level, put together from its tiles, and the flags that occurred."""
    down, right = levels.tiles(z)
    places = [[z, y, x] for y in range(down) for x in range(right)]
    whole = np.zeros((2, down * TILE, right * TILE), np.uint8)
    flags = set()
    for start in range(0, len(places), 64):
        body = {"layer": 0, "batch": batch, "head": head, "tiles": places[start : start + 64]}
        for place, (flag, *planes) in decoded(viewer.answer("tiles", body, Stop())).items():
            flags.add(flag)
            for plane, own in enumerate(planes):
                if own is not None:
                    whole[plane, place.y * TILE :, place.x * TILE :][:TILE, :TILE] = own
    high, wide = levels.cells(z)
    assert not whole[:, high:].any()
    assert not whole[:, :, wide:].any()
    return whole[0, :high, :wide], whole[1, :high, :wide], flags


def finished(viewer: Viewer, batch: int = 0, head: int = 0) -> None:
    body = {"layer": 0, "batch": batch, "head": head}
    until = time.monotonic() + 300
    while (told := viewer.answer("progress", body, Stop())) != {"state": "exact", "done": 1, "total": 1}:
        assert isinstance(told, dict)
        assert told["state"] in ("waiting", "building"), told
        assert time.monotonic() < until
        time.sleep(0.01)


def inputs(queries: int, keys: int, heads: int = HEADS, kv_heads: int = GROUPS) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(queries + keys)
    query = torch.randn(BATCH, heads, queries, 8, generator=draw) * 3
    return query, torch.randn(BATCH, kv_heads, keys, 8, generator=draw)


def check(spec: dict[str, Any], queries: int, keys: int, seen: Tensor, batch: int = 1, head: int = 3) -> None:
    """Every level of one head against the dense pools."""
    query, key = inputs(queries, keys)
    shown = matrix(query, key, **spec)
    law = matrix(query.double(), key.double(), **spec)[batch, head]
    relative, visible = dense(law, seen)
    viewer = Viewer(CaptureView.of(shown))
    try:
        levels = Levels(queries, keys)
        finished(viewer, batch, head)
        for z in range(levels.count):
            *found, flags = level(viewer, levels, z, batch, head)
            assert flags <= {0, EMPTY}
            for own, wanted in zip(found, pooled(relative, visible, levels, z), strict=True):
                assert ((own == 0) == (wanted == -1)).all()
                off = np.abs(own.astype(float) - wanted)[wanted != -1]
                assert not len(off) or off.max() <= 0.5 + 1e-3 + 2e-4 / STEP
    finally:
        viewer.close()


def places(queries: int, keys: int, start: int | None = None) -> tuple[Tensor, Tensor]:
    first = max(0, keys - queries) if start is None else start
    return torch.arange(queries).view(-1, 1) + first, torch.arange(keys)


def case(name: str, n: int, m: int) -> tuple[dict[str, Any], Tensor]:
    """A spec and what batch row 1, head 3 of it sees, written out."""
    i, j = places(n, m)
    draw = torch.Generator().manual_seed(n)
    match name:
        case "full":
            return {}, torch.ones(n, m, dtype=torch.bool)
        case "causal":
            return {"mask": "causal"}, j <= i
        case "window":
            return {"mask": masks.Window(40, 3)}, (j >= i - 40) & (j <= i + 3)
        case "documents":
            ids = torch.randint(0, 4, (BATCH, m), generator=draw).sort(-1)[0]
            return {"mask": masks.Documents(ids) & masks.Causal()}, (ids[1][i] == ids[1][j]) & (j <= i)
        case "padding":
            lengths = torch.tensor([m, m * 2 // 3])
            spec = {"mask": masks.Lengths(lengths) & masks.Causal(), "query_start": 0}
            return spec, (j < lengths[1]) & (j <= torch.arange(n).view(-1, 1))
        case "cross":
            return {"query_start": 0}, torch.ones(n, m, dtype=torch.bool)
        case "sink":
            return {"mask": "causal", "normalizer": normalizers.Softmax(torch.tensor([0.0, 1.0, 2.0, 3.0]))}, j <= i
        case "bias":
            bias = torch.randn(1, 1, n, m, generator=draw)
            hides = torch.rand(1, 1, n, m, generator=draw) < 0.3
            return {"bias": bias.masked_fill(hides, -torch.inf)}, ~hides[0, 0]
        case "alibi":
            return {"bias": biases.ALiBi(HEADS), "mask": "causal"}, j <= i
        case "table":
            table = torch.rand(BATCH, HEADS, n, m, generator=draw) < 0.5
            return {"mask": table}, table[1, 3]
        case "temperature":
            return {"temperature": torch.tensor([0.5, 1.0, 2.0, 0.7]), "mask": "causal"}, j <= i
        case "capped":
            return {"score": scores.SoftCapped(scores.ScaledDot(), 4.0)}, torch.ones(n, m, dtype=torch.bool)
        case "function":
            mask = masks.Where(lambda b, h, i, j: (i - j) % (h + b + 1) == 0)
            return {"mask": mask}, (i - j) % 5 == 0
        case "sparsemax":
            return {"normalizer": normalizers.Sparsemax(), "mask": "causal"}, j <= i
    raise AssertionError(name)


NATIVE = ("full", "causal", "window", "documents", "padding", "sink", "bias", "alibi", "table", "temperature", "capped")


@pytest.mark.parametrize("name", [*NATIVE, "function", "sparsemax"])
@pytest.mark.parametrize("n, m", [(531, 700), (257, 257)])
def test_every_level_equals_the_dense_pools(name: str, n: int, m: int) -> None:
    spec, seen = case(name, n, m)
    check(spec, n, m, seen)


@pytest.mark.parametrize("n, m", [(1, 1), (1, 300), (3, 2), (256, 256), (600, 5)])
def test_tiny_and_odd_sizes(n: int, m: int) -> None:
    check({"query_start": 0}, n, m, torch.ones(n, m, dtype=torch.bool))
    i, j = places(n, m, 0)
    check({"mask": "causal", "query_start": 0}, n, m, j <= i)


@pytest.mark.parametrize("name, n, m", [("causal", 1030, 1030), ("padding", 1100, 1311), ("table", 1049, 513)])
def test_coarse_levels_come_from_one_pass(monkeypatch: pytest.MonkeyPatch, name: str, n: int, m: int) -> None:
    monkeypatch.setattr("regard.map.levels.FINE", 1)
    monkeypatch.setattr("regard.map.levels.BASE", 2)
    monkeypatch.setattr(pyramid, "BASE", 2)
    monkeypatch.setattr(pyramid, "ROW_BLOCK", 256)
    spec, seen = case(name, n, m)
    check(spec, n, m, seen)


def test_before_the_pass_coarse_tiles_are_estimates_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.map.levels.FINE", 2)
    n = 1000
    query, key = inputs(n, n)
    query /= 6  # an even look, so that two rows of four tell of the others
    viewer = Viewer(CaptureView.of(matrix(query, key, mask="causal")))
    levels = Levels(n, n)
    assert levels.exact_from == 1
    assert level(viewer, levels, 0)[2] == {ESTIMATE}
    assert level(viewer, levels, 1)[2] == {0, EMPTY}
    first, again = (level(viewer, levels, 0)[:2] for _ in range(2))
    assert all(np.array_equal(one, two) for one, two in zip(first, again, strict=True))
    law, seen = dense(matrix(query, key, mask="causal")[0, 0], torch.arange(n) <= torch.arange(n).view(-1, 1))
    mean, largest = pooled(law, seen, levels, 0)
    full = mean > 0
    assert ((first[0] > 0) <= full).all()  # nothing is seen where nothing is
    assert (first[1].astype(float) <= np.where(full, largest, 0) + 0.6).all()  # no maximum is made up
    away = (first[0].astype(float) - mean)[full & (first[0] > 0)]
    assert abs(away.mean()) < 1
    viewer.close()


def test_an_estimate_that_several_ask_for_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.map.levels.FINE", 2)
    made: list[int] = []

    def slow(*args: Any) -> Any:
        made.append(1)
        time.sleep(0.1)
        return preview_grid(*args)

    monkeypatch.setattr("regard.map.tiles.preview_grid", slow)
    viewer = Viewer(CaptureView.of(matrix(*inputs(600, 600), mask="causal")))
    body = {"layer": 0, "head": 0, "tiles": [[0, 0, 0]]}
    threads = [threading.Thread(target=viewer.answer, args=("tiles", body, Stop())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]
    viewer.close()


def test_rows_of_an_estimate_are_spread_and_the_same_each_time() -> None:
    assert sampled(5, 7) == (5, 6)
    rows = sampled(0, 1000, 10)
    assert rows == sampled.__wrapped__(0, 1000, 10)
    assert all(part * 100 <= row < (part + 1) * 100 for part, row in enumerate(rows))


def test_stored_weights_have_tiles_too() -> None:
    weights = torch.rand(2, 300, 280).double()
    weights /= weights.sum(-1, keepdim=True)
    viewer = Viewer(CaptureView.of(AttentionMatrix.from_weights(weights)))
    levels = Levels(300, 280)
    for z in range(levels.count):
        *found, flags = level(viewer, levels, z, 0, 1)
        assert flags == {0}
        wanted = pooled(weights[1].numpy() * 280, np.ones((300, 280), bool), levels, z)
        for own, law in zip(found, wanted, strict=True):
            assert np.abs(own - law).max() <= 0.51
    viewer.close()


def test_what_is_not_finite_goes_the_careful_way() -> None:
    query, key = inputs(300, 300)
    key[:, :, 250:] = torch.nan  # hidden by the mask
    spec: dict[str, Any] = {"mask": masks.Lengths(torch.tensor([250, 250])), "query_start": 0}
    viewer = Viewer(CaptureView.of(matrix(query, key, **spec)))
    mean, _, _ = level(viewer, Levels(300, 300), 1)
    clean = matrix(query, key.nan_to_num(0.0), **spec)[0, 0]
    law, seen = dense(clean, (torch.arange(300) < 250).expand(300, -1))
    assert np.abs(mean[:, :250] - pooled(law, seen, Levels(300, 300), 1)[0][:, :250]).max() <= 0.51
    assert not mean[:, 250:].any()
    viewer.close()


def test_tiles_that_touch_are_computed_together() -> None:
    asked = [Place(3, 1, 5), Place(3, 1, 4), Place(3, 2, 4), Place(3, 1, 7), Place(2, 1, 8)]
    assert list(bands(asked)) == [TileRow(2, 1, 8, 9), TileRow(3, 1, 4, 6), TileRow(3, 1, 7, 8), TileRow(3, 2, 4, 5)]
    assert list(bands([])) == []


def test_empty_tiles_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    query, key = inputs(1024, 1024)
    viewer = Viewer(CaptureView.of(matrix(query, key, mask="causal")))
    monkeypatch.setattr("regard.map.native_view.NativeHeadView.ready", lambda *_: pytest.fail("a row was computed"))
    body = {"layer": 0, "batch": 0, "head": 0, "tiles": [[2, 0, 1], [2, 0, 3], [2, 1, 2]]}
    found = decoded(viewer.answer("tiles", body, Stop()))
    assert {flags for flags, *_ in found.values()} == {EMPTY}
    viewer.close()


def test_a_stopped_question_computes_no_more() -> None:
    query, key = inputs(1024, 1024)
    viewer = Viewer(CaptureView.of(matrix(query, key, mask="causal")))
    stop = Stop()
    stop.set()
    with pytest.raises(Stopped):
        viewer.answer("tiles", {"layer": 0, "head": 0, "tiles": [[2, 3, 0]]}, stop)
    viewer.close()


def test_several_threads_get_the_same_tiles() -> None:
    query, key = inputs(1500, 1500)
    viewer = Viewer(CaptureView.of(matrix(query, key, mask="causal")))
    body = {"layer": 0, "head": 1, "tiles": [[3, y, x] for y in range(6) for x in range(6)]}
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(viewer.answer("tiles", body, Stop()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 4
    assert len(set(answers)) == 1
    viewer.close()


def test_leading_axes_become_batch_rows() -> None:
    query, key = inputs(40, 40)
    whole = matrix(query.unsqueeze(0), key.unsqueeze(0))
    layer = LayerView("x", whole)
    assert (layer.batch, layer.heads) == (2, 4)
    assert torch.equal(layer.head(1, 2).dense(), whole[0, 1, 2].dense())
    one = LayerView("y", whole[0, 1, 2])
    assert (one.batch, one.heads) == (1, 1)
    assert torch.equal(one.head(0, 0).dense(), whole[0, 1, 2].dense())
