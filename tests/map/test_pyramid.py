"""The builder and its tile_cache: pyramids are made once, kept whole, and made again where a file is damaged."""

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.inspection.matrix import AttentionMatrix, matrix
from regard.map import pyramid, tile_cache
from regard.map.head_view import GenericHeadView, HeadView
from regard.map.levels import Levels
from regard.map.native_view import native_call, native_head_view
from regard.map.pyramid import Build, HeadKey, MemoryPlanes, PyramidBuilder
from regard.map.stored_view import StoredHeadView
from regard.map.tile_cache import StoredPlanes, TileCache
from regard.spec import masks

N = 700
LEVELS = Levels(N, N)


@pytest.fixture(autouse=True)
def _small_row_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyramid, "ROW_BLOCK", 128)


def head(seed: int = 0, **spec: Any) -> AttentionMatrix:
    query, key = torch.randn(2, 1, 1, N, 8, generator=torch.Generator().manual_seed(seed))
    found: AttentionMatrix = matrix(query, key, **{"mask": "causal", **spec})[0, 0]
    return found


def head_view(seed: int = 0, **spec: Any) -> HeadView:
    shown = head(seed, **spec)
    call = native_call(shown)
    assert call is not None
    found = native_head_view(call, shown)
    assert found is not None
    return found


def built(of: HeadView) -> Build:
    build = Build(of, LEVELS)
    while build.done < build.total:
        build.step()
    return build


def wait(builder: PyramidBuilder, key: HeadKey) -> None:
    until = time.monotonic() + 300
    while builder.progress(key)["state"] != "exact":
        assert time.monotonic() < until
        time.sleep(0.005)


def test_strips_give_the_levels_of_the_whole() -> None:
    own = head_view()
    build = built(own)
    assert build.total == 6
    for side in LEVELS.coarse_sides:
        whole = LEVELS.coded(own.grid(slice(0, N), slice(0, N), side))
        for name, wanted in zip(("mean", "max"), whole, strict=True):
            assert np.array_equal(build.planes[f"{name}.{side}"], wanted)
    assert LEVELS.coarse_sides[-1] == 1024


def test_a_pyramid_comes_back_from_its_file(tmp_path: Path) -> None:
    own, kept = head_view(), TileCache(tmp_path / "maps")
    name = own.fingerprint()
    assert name is not None
    assert kept.get(name, LEVELS) is None
    planes = built(own).planes
    kept.put(name, planes)
    found = kept.get(name, LEVELS)
    assert isinstance(found, StoredPlanes)
    for plane, wanted in planes.items():
        assert np.array_equal(found.read(plane, *(slice(0, size) for size in wanted.shape)), wanted)
    assert np.array_equal(found.read("mean.32", slice(3, 9), slice(2, 5)), planes["mean.32"][3:9, 2:5])
    assert [file.suffix for file in (tmp_path / "maps").iterdir()] == [".safetensors"]


@pytest.mark.parametrize("harm", ["bit", "cut", "empty", "text", "other"])
def test_a_damaged_file_is_none(tmp_path: Path, harm: str) -> None:
    own, kept = head_view(), TileCache(tmp_path)
    name = own.fingerprint()
    assert name is not None
    kept.put(name, built(own).planes)
    path = tmp_path / f"{name}.safetensors"
    content = bytearray(path.read_bytes())
    if harm == "bit":
        content[-7] ^= 4
    harmed = {"cut": bytes(content[:-9]), "empty": b"", "text": b"hello" * 99}
    path.write_bytes(harmed.get(harm, bytes(content)))
    levels = Levels(N, N + 40) if harm == "other" else LEVELS
    assert kept.get(name, levels) is None
    kept.put(name, built(own).planes)
    assert kept.get(name, LEVELS) is not None


def test_a_shelf_keeps_no_more_than_it_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planes = {"mean.32": np.zeros((10, 10), np.uint8)}
    kept = TileCache(tmp_path)
    for number in range(3):
        kept.put(f"{number}", planes)
        time.sleep(0.02)
    size = (tmp_path / "0.safetensors").stat().st_size
    monkeypatch.setattr(tile_cache, "MOST", 2 * size)
    kept.put("3", planes)
    assert sorted(file.stem for file in tmp_path.iterdir()) == ["2", "3"]


def test_fingerprints_tell_heads_apart() -> None:
    ids = torch.zeros(N, dtype=torch.long)
    specs: list[dict[str, Any]] = [
        {},
        {"mask": None},
        {"mask": masks.Window(5, 0)},
        {"mask": masks.Window(6, 0)},
        {"mask": masks.Documents(ids)},
        {"mask": masks.Documents(ids.index_fill(0, torch.tensor([3]), 1))},
        {"temperature": 2.0},
        {"bias": torch.ones(N, N)},
        {"bias": torch.full((N, N), 2.0)},
    ]
    found = [head_view(**spec).fingerprint() for spec in specs] + [head_view(1).fingerprint()]
    assert len(set(found)) == len(found)
    assert found == [head_view(**spec).fingerprint() for spec in specs] + [head_view(1).fingerprint()]
    plain = [GenericHeadView(head(**spec)).fingerprint() for spec in specs]
    assert len(set(plain)) == len(plain)
    assert GenericHeadView(head(mask=masks.Where(lambda b, h, i, j: j <= i))).fingerprint() is None
    one, two = (StoredHeadView(AttentionMatrix.from_weights(torch.eye(3) * value)).fingerprint() for value in (1, 2))
    assert one != two


def test_the_builder_makes_what_is_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, kept = head_view(), TileCache(tmp_path)
    steps: list[int] = []
    step = Build.step

    def counted(self: Build) -> None:
        steps.append(1)
        step(self)

    monkeypatch.setattr(Build, "step", counted)
    first = PyramidBuilder(lambda key: (own, LEVELS), kept, lambda: False)
    assert first.get((0, 0, 0)) is None
    assert first.progress((0, 0, 0))["state"] == "waiting"
    wait(first, (0, 0, 0))
    assert len(steps) == 6
    assert isinstance(first.get((0, 0, 0)), StoredPlanes)
    first.close()
    again = PyramidBuilder(lambda key: (own, LEVELS), kept, lambda: False)
    wait(again, (0, 0, 0))
    assert len(steps) == 6
    again.close()


def test_without_a_place_pyramids_stay_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyramid, "MOST_IN_MEMORY", 1)
    blocked = tmp_path / "file"
    blocked.write_text("")
    builder = PyramidBuilder(lambda key: (head_view(key[2]), LEVELS), TileCache(blocked), lambda: False)
    wait(builder, (0, 0, 0))
    assert isinstance(builder.get((0, 0, 0)), MemoryPlanes)
    wait(builder, (0, 0, 1))
    assert builder.get((0, 0, 0)) is None
    builder.close()


def test_what_fails_is_told_and_others_go_on(tmp_path: Path) -> None:
    def find(key: HeadKey) -> tuple[HeadView, Levels]:
        if key[2] == 1:
            raise MemoryError("no room")
        return head_view(), LEVELS

    builder = PyramidBuilder(find, TileCache(tmp_path), lambda: False)
    until = time.monotonic() + 300
    while (told := builder.progress((0, 0, 1)))["state"] != "failed":
        assert time.monotonic() < until
        time.sleep(0.005)
    assert told["error"] == "MemoryError: no room"
    wait(builder, (0, 0, 0))
    builder.close()


def test_the_head_that_is_looked_at_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyramid, "PATIENCE", 0.0)
    order: list[int] = []
    hold, begun = threading.Event(), threading.Event()
    step = Build.step

    def slow(self: Build) -> None:
        begun.set()
        hold.wait(20)
        order.append(int(str(self.name)))
        step(self)

    class Named(GenericHeadView):
        def fingerprint(self) -> str | None:
            return self.name

        name = ""

    def find(key: HeadKey) -> tuple[HeadView, Levels]:
        found = Named(head(key[2]))
        found.name = str(key[2])
        return found, LEVELS

    class Blank:
        def get(self, *_: object) -> None:
            return None

        def put(self, *_: object) -> None:
            raise OSError

    monkeypatch.setattr(Build, "step", slow)
    builder = PyramidBuilder(find, Blank(), lambda: False)  # type: ignore[arg-type]
    builder.progress((0, 0, 1))
    assert begun.wait(20)
    builder.progress((0, 0, 2))  # while the first step of 1 runs
    hold.set()
    wait_for = time.monotonic() + 300
    while builder.get((0, 0, 1)) is None and time.monotonic() < wait_for:
        time.sleep(0.01)
    assert order == [1, *[2] * 6, *[1] * 5]
    builder.close()


def test_closing_ends_the_thread_at_its_next_step(tmp_path: Path) -> None:
    others = set(threading.enumerate())
    builder = PyramidBuilder(lambda key: (head_view(), LEVELS), None, lambda: True)
    builder.progress((0, 0, 0))
    builder.close()
    assert not [each for each in set(threading.enumerate()) - others if each.name == "regard-map-builder"]
    assert builder.progress((0, 0, 0))["state"] in ("waiting", "building")


def test_the_usual_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "x"))
    assert tile_cache.usual() == tmp_path / "x" / "maps"
    monkeypatch.delenv("REGARD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    assert tile_cache.usual() == tmp_path / "regard" / "maps"
    assert tile_cache.beside_file(Path("/a/run.safetensors")) == Path("/a/run.safetensors.map")
