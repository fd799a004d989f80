"""Out of memory in the middle of a call, and several Python threads that change the number of threads meanwhile."""

import sys
from collections.abc import Callable

import pytest

from .conftest import Outcome

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the address space of a process")

# The limit leaves ever less room above what the process has; every call either works or raises, and once the limit is
# lifted the same call is right.
MEMORY = """
import resource
from pathlib import Path
import torch, regard
from regard import biases, masks, scores
torch.set_num_threads(2)
torch.manual_seed(0)
q, k, v = (torch.randn(1, 4, 900, 64).requires_grad_() for _ in range(3))
w = torch.randn(2, 32, 64) / 8

def train(**spec):
    out = regard.attend(q, k, v, **spec)
    return (out, *torch.autograd.grad(out.sum(), (q, k, v)))

CALLS = {
    "plain": lambda: train(),
    "causal": lambda: train(mask="causal", bias=biases.ALiBi(4)),
    "statistics": lambda: regard.attend(q.detach(), k, v, aux=("entropy", "received"))[:1],
    "dense bias": lambda: train(bias=biases.Dense(torch.zeros(900, 900))),
    "function": lambda: train(mask=masks.Where(lambda b, h, i, j: (i + j) % 3 > 0)),
    "additive": lambda: train(score=scores.Additive(w[0], w[1], torch.ones(32))),
    "tiled": lambda: train(engine="tiled"),
    "matrix": lambda: (regard.matrix(q.detach(), k.detach()).received(),),
}
work = CALLS[CALL]
right = work()
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
failed = 0
for room in ROOMS:
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size + (room << 20), before[1]))
    try:
        found = work()
    except (MemoryError, RuntimeError) as error:
        found, text = None, str(error)
        failed += 1
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    if found is None:
        assert "memory" in text or "allocate" in text or "thread" in text, text
        found = work()
    for one, other in zip(found, right, strict=True):
        assert torch.equal(one, other)
print("failed", failed)
"""
CALLS = ("plain", "causal", "statistics", "dense bias", "function", "additive", "tiled", "matrix")


@linux
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "rooms", [(32, 8, 2, 0), pytest.param(tuple(range(96, -1, -4)), marks=pytest.mark.slow)], ids=["four", "many"]
)
def test_out_of_memory_is_an_error_and_leaves_no_damage(
    call: str, rooms: tuple[int, ...], run: Callable[..., Outcome]
) -> None:
    run(MEMORY.replace("CALL]", f"{call!r}]").replace("ROOMS", str(rooms)), limit=300).ok()


THREADS = """
import random, threading, time
import torch, regard
from regard import biases, masks, normalizers, scores
torch.manual_seed(0)
q, k, v = torch.randn(3, 1, 4, 260, 32)
w = torch.randn(2, 8, 32) / 4

def train(**spec):
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    out = regard.attend(*leaves, **spec)
    return [out.detach(), *torch.autograd.grad(out.sum(), leaves)]

CALLS = [
    lambda: train(),
    lambda: train(mask="causal", bias=biases.ALiBi(4)),
    lambda: train(mask=masks.Window(20, 5), normalizer=normalizers.Softmax(0.5)),
    lambda: train(score=scores.Additive(w[0], w[1], torch.ones(8))),
    lambda: [regard.matrix(q, k, mask="causal").received(), regard.attend(q, k, v)],
]
right = [work() for work in CALLS]
errors, deadline = [], time.monotonic() + SECONDS

def loop(seed):
    draw = random.Random(seed)
    try:
        while time.monotonic() < deadline:
            number = draw.randrange(len(CALLS))
            torch.set_num_threads(draw.choice([1, 2, 3, 4, 7]))
            for one, other in zip(CALLS[number](), right[number], strict=True):
                assert torch.equal(one, other), number
    except BaseException as error:
        errors.append(repr(error))

threads = [threading.Thread(target=loop, args=(seed,)) for seed in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not errors, errors
print("done")
"""


@pytest.mark.parametrize("seconds", [3, pytest.param(30, marks=pytest.mark.slow)])
def test_python_threads_that_change_the_number_of_threads(seconds: int, run: Callable[..., Outcome]) -> None:
    run(THREADS.replace("SECONDS", str(seconds)), limit=seconds + 120).ok()


LAYOUTS = """
import torch, regard
torch.manual_seed(0)
base = torch.randn(2, 4, 40, 16)
right = {}

def check(name, q, k, v):
    plain = [t.contiguous() if t.is_contiguous() is False else t for t in (q, k, v)]
    plain = [t.clone(memory_format=torch.contiguous_format) for t in plain]
    for spec in ({}, {"mask": "causal"}):
        for engine in ("native", "tiled"):
            out = regard.attend(q, k, v, engine=engine, **spec)
            assert torch.equal(out, regard.attend(*plain, engine=engine, **spec)), (name, engine, spec)
            leaves = [t.detach().requires_grad_() for t in (q, k, v)]
            copies = [t.detach().requires_grad_() for t in plain]
            got = torch.autograd.grad(regard.attend(*leaves, engine=engine, **spec).sum(), leaves)
            wanted = torch.autograd.grad(regard.attend(*copies, engine=engine, **spec).sum(), copies)
            assert all(torch.equal(a, b) for a, b in zip(got, wanted)), (name, engine, spec, "gradients")

check("expanded", base[:, :, :1].expand(2, 4, 40, 16), base[:1].expand(2, 4, 40, 16), base)
steps = ((2560, 640, 16, 1), (640, 160, 5, 1), (100, 50, 1, 3))
check("overlapping", *(base.as_strided((2, 4, 30, 16), step) for step in steps))
check("transposed", base.transpose(1, 2).contiguous().transpose(1, 2), base.mT.contiguous().mT, base)
check("steps", base[:, :, ::2, ::2], base[:, :, 1::2, 1::2], base[:, :, ::2])
check("offset", *(base.view(-1)[first : first + 1280].view(1, 4, 40, 8) for first in (3, 5, 7)))
check("the same tensor", base, base, base)
class Own(torch.Tensor):
    pass
check("subclass", base.as_subclass(Own), base.as_subclass(Own), base.as_subclass(Own))
print("done")
"""


def test_expanded_overlapping_and_strange_layouts(run: Callable[..., Outcome]) -> None:
    run(LAYOUTS).ok()
