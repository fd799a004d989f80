"""Ctrl-C at random moments of long work: it is answered soon, and the same work then gives the same bits."""

import os
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends signals")

# `trials(work, same)` runs the work once, then interrupts it at random moments of that time; after each interrupt the
# process must be as before, and the work must give what it gave at first.
PREAMBLE = """
import os, random, signal, sys, threading, time
from pathlib import Path
import torch
import regard
from regard.progress import CALLBACK
from regard.inspection.hooks import intercept
from torch.utils._python_dispatch import _get_current_dispatch_mode
signal.signal(signal.SIGINT, signal.default_int_handler)
SOON = 10.0  # seconds, on a machine that may have much else to do

def state():
    return {
        "handler": signal.getsignal(signal.SIGINT), "threads": torch.get_num_threads(),
        "gradients": torch.is_grad_enabled(), "progress": CALLBACK.get(), "mode": _get_current_dispatch_mode(),
        "hooks": (intercept._open_blocks, len(intercept._hooks._exit_callbacks), intercept._local.muted,
                  len(intercept._local.callbacks), len(intercept._local.modifiers)),
        "function": torch.nn.functional.multi_head_attention_forward, "attend": regard.attend,
    }

def interrupted(work, moment):
    # whether the interrupt came while the work ran; and how long the answer took
    sent = []
    def send():
        time.sleep(moment)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    thread = threading.Thread(target=send)
    try:
        try:
            thread.start()
            work()
        finally:
            thread.join()
        time.sleep(0.01)
        raise AssertionError("the signal did not come")
    except KeyboardInterrupt:
        took = time.monotonic() - sent[0]
    assert took < SOON, f"answered after {took:.1f} s"
    return took

def trials(work, same=torch.equal):
    want = work()
    begin = time.monotonic()
    again = work()
    length = time.monotonic() - begin
    assert same(again, want), "two runs differ"
    make, before, longest = random.Random(int(os.environ["SEED"])), state(), 0.0
    for number in range(int(os.environ["MOMENTS"])):
        moment = make.random() * length
        print(f"moment {number}: {moment:.6f} of {length:.3f} s", flush=True)
        longest = max(longest, interrupted(work, moment))
        assert state() == before, [(name, one, before[name]) for name, one in state().items() if one != before[name]]
        assert same(work(), want), "another result after an interrupt"
    print(f"answered after at most {longest:.2f} s of {length:.2f} s")

def same_dict(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)

def model_of(layers=4, width=64):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(width, 4, 64, batch_first=True)
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).eval()
"""

SCENARIOS = {
    "survey": """
        q = torch.randn(1, 4, 6000, 64)
        def work():
            A = regard.matrix(q, q, mask="causal")
            found = A.survey("entropy", "received", "distance", "pool", rows=64, cols=64)
            grid = found.pop("pool")
            found |= dict(zip(("mean", "spread"), found.pop("distance"), strict=True))
            return {**found, "sum": grid.sum, "max": grid.max}
        trials(work, same_dict)
    """,
    "reductions of blocks": """
        q = torch.randn(1, 2, 300, 16)
        def work():
            A = regard.matrix(q, q, mask="causal", normalizer=regard.normalizers.Sparsemax())
            found = A.survey("received", "pool", rows=8, cols=8)
            return {"received": found["received"], "sum": found["pool"].sum, "topk": A.topk(3).value}
        trials(work, same_dict)
    """,
    "capture": """
        model, given = model_of(2), torch.randn(2, 400, 64)
        def work():
            with torch.no_grad():
                taken = regard.capture(model, given, spill=100_000)
            return torch.stack([layer.entropy() for layer in taken])
        trials(work)
    """,
    "heads": """
        model, given = model_of(2), torch.randn(1, 300, 64)
        with torch.no_grad():
            regard.capture(model, given).save("a.safetensors")
        trials(lambda: repr(regard.load("a.safetensors").heads()), str.__eq__)
    """,
    "effect": """
        from regard.inspection import interventions
        model, given = model_of(2), torch.randn(2, 100, 64)
        trials(lambda: str(regard.effect(model, [given], interventions.Ablate())), str.__eq__)
    """,
    "saving": """
        q = torch.randn(1, 8, 40_000, 64)
        A = regard.matrix(q, q, mask="causal")
        def work():
            A.save("a.safetensors")
            found = regard.load("a.safetensors")
            assert torch.equal(found._source.request.query.flatten(), q.flatten())
            assert not [name for name in os.listdir() if name.endswith(".part")]
            return q
        trials(work)
    """,
    "training": """
        from regard.lab.training import train
        from regard.lab.training import named
        from regard.lab.translation.task import Translating
        sizes = {"steps": 40, "looks": 4, "width": 8, "batch": 4, "sentences": 30}
        task = Translating(seed=3, rate=1e-2, rise=0.1, score="additive", **sizes)
        count = iter(range(1, 10**6))
        os.environ["REGARD_CACHE"] = "0"
        def work():
            # each run begins anew or goes on from where the one before was interrupted
            found = train(task)
            os.environ["REGARD_CACHE"] = str(next(count))
            return {**named(found.model), "curve": torch.tensor([point["loss"] for point in found.curve])}
        trials(work, same_dict)
    """,
    "experiment": """
        from regard import lab
        from regard.lab import render
        trials(lambda: render.as_json(lab.run("saturation", quick=True)), str.__eq__)
    """,
    "map": """
        from regard.map.views import CaptureView
        from regard.map.viewer import Viewer
        from regard.map.jobs import Stop
        q = torch.randn(1, 1, 12_000, 16)
        atlas = CaptureView.of(regard.matrix(q, q, mask="causal"))
        def work():
            os.environ["REGARD_CACHE"] = f"cache{random.random()}"
            viewer = Viewer(atlas)
            try:
                asked = {"layer": 0, "head": 0}
                while (told := viewer.answer("progress", asked, Stop()))["state"] != "exact":
                    assert told["state"] != "failed", told
                    viewer.answer("row", {**asked, "q": 5000}, Stop())
                    time.sleep(0.01)
                tiles = viewer.answer("tiles", {**asked, "tiles": [[0, 0, 0]]}, Stop())
            finally:
                viewer.close()
            assert not [each for each in threading.enumerate() if each.name.startswith("regard-map")]
            return tiles
        trials(work, bytes.__eq__)
    """,
}

SETTING_UP = """
model, given = model_of(1), torch.randn(1, 8, 64)
def work():
    with torch.no_grad():
        return regard.capture(model, given)[0].dense()
want, before = work(), state()
for name in ("_set_hooks", "_hook_names", "_replace"):
    original, calls = getattr(intercept, name), []
    def pressed(*args):
        found = original(*args)
        calls.append(args)
        if len(calls) == turn:
            os.kill(os.getpid(), signal.SIGINT)
        return found
    setattr(intercept, name, pressed)
    for turn in (1, 2):
        calls.clear()
        try:
            work()
        except KeyboardInterrupt:
            pass
        else:
            assert len(calls) < turn, f"{name}: the interrupt was lost"
        assert state() == before, (name, turn, state())
    setattr(intercept, name, original)
    assert torch.equal(work(), want)
"""


def test_interrupted_while_a_capture_begins_and_ends(run: Callable[..., Any]) -> None:
    run(PREAMBLE + SETTING_UP).ok()


LEAVING = """
import os, sys, time, torch, regard
os.environ["REGARD_CACHE"] = "cache"
from regard.map.views import CaptureView
from regard.map.jobs import Stop
from regard.map.viewer import Viewer
q = torch.randn(1, 4, 60_000, 64)
viewer = Viewer(CaptureView.of(regard.matrix(q, q, mask="causal")))
viewer.answer("progress", {"layer": 0, "head": 0}, Stop())
time.sleep(float(os.environ["MOMENT"]))
"""


@pytest.mark.parametrize("moment", [0.1])
def test_a_process_ends_while_a_map_is_built(moment: float, run: Callable[..., Any]) -> None:
    found = run(LEAVING, MOMENT=str(moment)).ok()
    assert found.err == ""


@pytest.mark.slow
def test_a_process_ends_at_many_moments_while_a_map_is_built(run: Callable[..., Any]) -> None:
    for number in range(20):
        found = run(LEAVING, MOMENT=str(number / 10)).ok()
        assert found.err == "", number


def source(name: str) -> str:
    return PREAMBLE + textwrap.dedent(SCENARIOS[name])


@pytest.mark.parametrize("name", ["survey", "capture", "effect", "saving", "training", "map"])
def test_interrupted_at_some_moments(name: str, run: Callable[..., Any]) -> None:
    run(source(name), MOMENTS="2", SEED="1").ok()


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("seed", range(2))
def test_interrupted_at_many_moments(name: str, seed: int, run: Callable[..., Any]) -> None:
    run(source(name), limit=900, MOMENTS="12", SEED=str(seed)).ok()
