"""The thread pool: several Python threads, fork, loader workers, Ctrl-C, and memory that stays flat."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from regard import attend

posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture(autouse=True)
def _several_threads() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def draw(seed: int) -> Tensor:
    # so small that torch itself uses one thread: its own pool does not survive a fork
    return torch.randn(3, 1, 4, 120, 32, generator=torch.Generator().manual_seed(seed))


def result(seed: int) -> Tensor:
    query, key, value = draw(seed)
    query.requires_grad_()
    out = attend(query, key, value, mask="causal", engine="native")
    (grad,) = torch.autograd.grad(out.sum(), query)
    return torch.cat([out.detach(), grad])


def test_several_python_threads_at_once() -> None:
    alone = [result(seed) for seed in range(8)]
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(result, list(range(8)) * 5))
    for number, found in enumerate(together):
        assert torch.equal(found, alone[number % 8])


@posix
def test_a_hundred_forked_children_finish() -> None:
    expected = result(0)  # the parent's pool is awake before the fork
    for _ in range(100):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of fork in a process with threads
            child = os.fork()
        if child == 0:
            os._exit(0 if torch.equal(result(0), expected) else 1)
        deadline = time.monotonic() + 300
        while True:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                break
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                pytest.fail("a forked child hangs")
            time.sleep(0.002)
        assert os.waitstatus_to_exitcode(status) == 0


@posix
def test_fork_while_another_thread_computes() -> None:
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            result(1)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        test_a_hundred_forked_children_finish()
    finally:
        stop.set()
        worker.join()


class Attended(Dataset[Tensor]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, seed: int) -> Tensor:
        return result(seed)


@posix
def test_loader_workers() -> None:
    expected = [result(seed) for seed in range(6)]
    for found, right in zip(DataLoader(Attended(), batch_size=None, num_workers=2), expected, strict=True):
        assert torch.equal(found, right)


INTERRUPTED = """
import signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job is born with Ctrl-C ignored
import torch, regard
q, k, v = (t.requires_grad_() for t in torch.randn(3, 1, 8, 60000, 64))
torch.set_num_threads(2)
backward = sys.argv[1] == "backward"
if backward:
    q, k, v = (t.detach()[:, :, :16000].requires_grad_() for t in (q, k, v))
    out = regard.attend(q, k, v, engine="native")
threading.Timer(0.5, lambda: signal.raise_signal(signal.SIGINT)).start()
start = time.process_time()  # not the clock on the wall: other processes take time too
try:
    out.sum().backward() if backward else regard.attend(q, k, v, engine="native")
except KeyboardInterrupt:
    small = regard.attend(q[:, :, :50], k[:, :, :50], v[:, :, :50], engine="native")
    assert small.isfinite().all()
    print("answered", time.process_time() - start)
"""


@pytest.mark.parametrize("what", ["forward", "backward"])
def test_ctrl_c_is_answered_at_once(what: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, what], capture_output=True, text=True, timeout=600, check=False
    )
    assert found.stdout.startswith("answered"), found.stdout + found.stderr
    assert float(found.stdout.split()[1]) < 4.0  # of the processor; the whole call takes three times as much or more
    assert "Exception ignored" not in found.stderr


FLAT = """
import gc, os
from pathlib import Path
import torch
from regard import attend

torch.set_num_threads(4)
query, key, value = (tensor.requires_grad_() for tensor in torch.randn(3, 1, 2, 20, 16))

def calls(number):
    for _ in range(number):
        attend(query, key, value, mask="causal").sum().backward()
        query.grad = key.grad = value.grad = None
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

before = calls(1000)
print(calls(10000) - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_ten_thousand_calls_leave_memory_flat() -> None:
    environment = {**os.environ, "MALLOC_ARENA_MAX": "1"}  # one heap, whichever thread asks
    call = [sys.executable, "-W", "ignore", "-c", FLAT]
    found = subprocess.run(call, capture_output=True, text=True, check=True, env=environment)
    assert int(found.stdout) < 1 << 20


POOLED = """
import sys, torch, regard
torch.set_num_threads(3)
q, k, v = torch.randn(3, 1, 4, 300, 32, generator=torch.Generator().manual_seed(0))
torch.mm(torch.ones(256, 256), torch.ones(256, 256))  # torch's threads are awake
print(regard.attend(q, k, v, engine="native").double().sum().item().hex())
"""


@pytest.mark.parametrize("pool", ["torch", "own", "ours"])
def test_the_pool_can_be_chosen(pool: str) -> None:
    env = {**os.environ, "REGARD_POOL": pool}
    found = subprocess.run(
        [sys.executable, "-c", POOLED], capture_output=True, text=True, timeout=600, check=False, env=env
    )
    if pool == "ours":
        assert "REGARD_POOL must be torch or own, got 'ours'" in found.stderr
    else:
        query, key, value = torch.randn(3, 1, 4, 300, 32, generator=torch.Generator().manual_seed(0))
        assert float.fromhex(found.stdout) == attend(query, key, value, engine="native").double().sum().item()
