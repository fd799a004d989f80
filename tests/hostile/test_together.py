"""Two processes that write the same file or cache entry at once: each reader finds one of the two whole."""

import os
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="forks")

# `together(*works)` runs each in a forked process until all have ended; `seen` is called over and over meanwhile.
PREAMBLE = """
import os, sys, time, traceback
from pathlib import Path
import torch
torch.set_num_threads(1)
import regard

def together(*works, seen=lambda: None):
    running = []
    for work in works:
        child = os.fork()
        if child == 0:
            try:
                work()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(9)
        running.append(child)
    codes = []
    while running:
        done, status = os.waitpid(-1, os.WNOHANG)
        if done:
            running.remove(done)
            codes.append(os.waitstatus_to_exitcode(status))
        else:
            seen()
    assert codes == [0] * len(works), codes
"""

SCENARIOS = {
    "matrices": """
        from regard.inspection import files
        files.STALE = -1.0  # nothing is too young to be removed: only the lock protects it
        def writer(number):
            rows = torch.full((1, 2, 5000, 16), float(number))
            A = regard.matrix(rows, rows, mask="causal")
            def work():
                for _ in range(20):
                    A.save("a.safetensors")
            return work
        writer(1)()
        def seen():
            values = regard.load("a.safetensors")._source.request.query.unique().tolist()
            assert values in ([1.0], [2.0], [3.0]), values
        together(writer(1), writer(2), writer(3), seen=seen)
        assert os.listdir() == ["a.safetensors"]
    """,
    "pyramids": """
        import numpy as np
        from regard.map.levels import Levels
        from regard.map.tile_cache import TileCache
        levels, shelf = Levels(8000, 8000), TileCache(Path("maps"))
        planes = {name: np.full(size, 7, np.uint8) for name, size in levels.coarse_shapes.items()}
        def work():
            for _ in range(20):
                shelf.put("0" * 32, planes)
        work()
        def seen():
            assert (shelf.get("0" * 32, levels).read("max.32", slice(None), slice(None)) == 7).all()
        together(work, work, seen=seen)
        assert os.listdir("maps") == ["0" * 32 + ".safetensors"]
    """,
    "trainings": """
        from regard.lab import training
        from regard.lab.training import train
        from regard.progress import reporting_to_user
        from regard.lab.training import named
        from regard.lab.translation.task import Translating
        sizes = {"steps": 20, "looks": 4, "width": 8, "batch": 4, "sentences": 30}
        task = Translating(seed=3, rate=1e-2, rise=0.1, score="additive", **sizes)
        os.environ["REGARD_CACHE"] = "elsewhere"
        want = train(task)
        os.environ["REGARD_CACHE"] = "cache"
        def work():
            with reporting_to_user(lambda what, done, total: os.write(counted, b"."), "steps"):
                found = train(task)
            ours, theirs = named(found.model), named(want.model)
            assert found.curve == want.curve
            assert all(torch.equal(ours[name], theirs[name]) for name in ours)
        counted = os.open("steps", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        together(work, work)
        assert Path("steps").stat().st_size == 20  # one of them trained, the other waited
        assert sorted(os.listdir(training.training_folder(task))) == ["model.safetensors", "record.json"]
    """,
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_two_at_once(name: str, run: Callable[..., Any]) -> None:
    run(PREAMBLE + textwrap.dedent(SCENARIOS[name])).ok()
