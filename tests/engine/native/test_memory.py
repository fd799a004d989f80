"""The native engine's memory grows with the length: forward and backward, by what the system says the process held.

`extra` is the most that was resident beyond what was there before, the output and the gradients. Eight times the length
may take 8.5 times as much. Each call has a thread of its own, whose workspace goes when it ends. The system counts
pages in bundles of 64 per thread (proc(5) calls VmRSS and VmHWM inaccurate for that), so a figure may be short by one
bundle of the thread that calls and one of the one that helps it. Huge pages come and go as the system likes: off.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ALLOWED = 8.5
SHORT, LONG = 4096, 32768
LAG = 2 * 64 * 4096
PROGRAM = """
import ctypes, json, threading, time
from pathlib import Path
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE
import torch
from regard import Dropout, attend, biases, masks, normalizers, scores

def of(*words):
    lines = Path("/proc/self/status").read_text().splitlines()
    return [int(line.split()[1]) * 1024 for word in words for line in lines if line.startswith(word)][0]

def settings(n):
    window, causal = masks.Window(255, 0), masks.Causal()
    leaf = lambda *size: torch.randn(size, requires_grad=True)
    yield "causal", {"mask": causal}
    yield "window", {"mask": window}
    yield "dropout", {"mask": window, "dropout": Dropout(0.1, 1)}
    yield "alibi", {"mask": window, "bias": biases.ALiBi(2)}
    yield "t5", {"mask": window, "bias": biases.T5(leaf(32, 2), False, 128)}
    yield "a table as long as the keys", {"mask": window, "bias": biases.Distance(leaf(2, 2 * n - 1))}
    yield "a bias per key", {"mask": window, "bias": biases.Dense(leaf(2, 1, n))}
    sink = normalizers.Softmax(sink=leaf(2))
    yield "sink and temperature", {"mask": window, "normalizer": sink, "temperature": leaf(1).exp()[0]}
    yield "documents", {"mask": causal & masks.Documents(torch.arange(n) // 512)}
    yield "lengths", {"mask": window & masks.Lengths(torch.tensor([n // 2]))}
    yield "a function", {"mask": window & masks.Where(lambda b, h, i, j: (i + j) % 3 != 0)}
    additive = scores.Additive(leaf(8, 16), leaf(8, 16), leaf(8))
    yield "a score that adds", {"mask": window, "score": additive}
    yield "statistics", {"mask": window, "aux": ("lse", "entropy", "peak", "peak_at", "distance", "max_logit")}

def call(n, spec):
    q, k, v = (torch.randn(1, heads, n, d, requires_grad=True) for heads, d in ((2, 16), (1, 16), (1, 24)))
    def work():
        found = attend(q, k, v, **spec, engine="native")
        out = found[0] if spec.get("aux") else found
        results.append(torch.autograd.grad(out, (q, k, v), torch.ones(()).expand(out.shape)))
        results.append(found)
    results = []
    time.sleep(0.1)  # the system's thread of the call before ends a little after Python's
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = of("VmRSS")
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    kept = sum(t.nbytes for t in (q, k, v)) + n * 2 * 24 * 4
    return of("VmHWM") - before - kept

for n in (1024, SHORT, LONG):
    for name, spec in settings(n):
        print(json.dumps([name, n, call(n, spec)]), flush=True)
"""


def test_eight_times_the_length_takes_eight_times_the_memory() -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("this system does not tell what a process held at most")
    program = f"SHORT, LONG = {SHORT}, {LONG}\n{PROGRAM}"
    # blocks come from the system and go back to it, so that what one call freed does not serve the next unseen
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "8192", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "2"}
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    taken = {(name, n): extra for name, n, extra in map(json.loads, found.stdout.splitlines())}
    assert len(taken) >= 39
    for name, n in taken:
        if n == LONG:
            short, long = taken[name, SHORT], taken[name, LONG]
            assert long <= ALLOWED * (short + LAG), f"{name}: {short:,} bytes for {SHORT}, {long:,} for {LONG}"
