"""A child of fork computes, whatever the other threads of its parent were doing at that moment."""

import os
from collections.abc import Callable

import pytest

from .conftest import Outcome

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

# `states` say what the threads of the parent do. Children are forked at once and then at many moments; each computes
# small calls, so that torch itself uses one thread: torch's own pool does not survive a fork.
FORKS = """
import os, signal, sys, threading, time, warnings
warnings.simplefilter("ignore")
import torch
import regard
from regard import nn

torch.set_num_threads(2)
small = torch.randn(3, 1, 4, 100, 32, generator=torch.Generator().manual_seed(0))
large = torch.randn(3, 1, 4, 1500, 64)
learned = torch.randn(3, 1, 2, 300, 32)

def loop(work):
    while True:
        work()

def import_more():
    for name in ("regard.nn", "regard.inspection.matrix", "regard.inspection.capture", "regard.engine.plan", "decimal"):
        __import__(name)
    time.sleep(0.001)

STATES = {
    "forward": lambda: regard.attend(*large),
    "backward": lambda: regard.attend(*(t.clone().requires_grad_() for t in learned)).sum().backward(),
    "tiled": lambda: regard.attend(*(t.clone().requires_grad_() for t in learned), engine="tiled").sum().backward(),
    "import": import_more,
}

def child():
    signal.alarm(60)
    q, k, v = (t.clone().requires_grad_() for t in small)
    out = regard.attend(q, k, v, mask="causal")
    out.sum().backward()
    regard.matrix(q.detach(), k.detach(), mask="causal").received()
    regard.attend(q.detach(), k.detach(), v.detach(), engine="tiled")
    os._exit(0 if bool(out.isfinite().all() and q.grad.isfinite().all()) else 1)

for _ in range(3):
    threading.Thread(target=loop, args=(STATES[STATE],), daemon=True).start()
for number in range(COUNT):
    pid = os.fork()
    if pid == 0:
        child()
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code:
        print("child", number, "ended with", code)
        sys.stdout.flush()
        os._exit(1)
    time.sleep(0.003 * (number % 5))
print("all finished", flush=True)
os._exit(0)
"""
STATES = ("forward", "backward", "tiled", "import")


def forked(run: Callable[..., Outcome], state: str, count: int, limit: float) -> None:
    source = FORKS.replace("STATE]", f"{state!r}]").replace("COUNT", str(count))
    outcome = run(source, limit=limit)
    assert outcome.out == "all finished\n", f"{outcome.ending}: {outcome.out}\n{outcome.err[-3000:]}"


@pytest.mark.parametrize("state", STATES)
def test_children_forked_during_the_first_calls_finish(state: str, run: Callable[..., Outcome]) -> None:
    forked(run, state, count=5, limit=120)


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
def test_a_hundred_children_finish(state: str, run: Callable[..., Outcome]) -> None:
    for _ in range(5):  # five parents: the first moments count
        forked(run, state, count=20, limit=300)


@pytest.mark.parametrize("engine", ["native", "tiled", "reference", "sdpa"])
def test_a_child_computes_what_torch_would_give_to_several_threads(engine: str, run: Callable[..., Outcome]) -> None:
    source = """
        import os, signal, warnings
        warnings.simplefilter("ignore")
        import torch, regard
        torch.set_num_threads(2)
        q, k, v = torch.randn(3, 1, 4, 300, 32)
        regard.attend(q, k, v, engine=ENGINE)  # on torch's threads, which the child has not
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            a, b, c = (t.clone().requires_grad_() for t in (q, k, v))
            for engine in ("native", "tiled"):
                regard.attend(a, b, c, mask="causal", engine=engine).sum().backward()
            regard.matrix(q, k).received()
            os._exit(5)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    assert run(source.replace("ENGINE", repr(engine))).ok().out == "5\n"


# Another thread holds the lock for HELD seconds, and the fork waits for it for at most PATIENCE seconds.
LOCKED = """
    import os, signal, threading, time, warnings
    warnings.simplefilter("ignore")
    from regard.engine import fork
    fork.PATIENCE = PATIENCE
    lock, held, done = fork.fork_waits(), threading.Event(), []

    def hold():
        with lock:
            held.set()
            time.sleep(HELD)
            done.append(True)

    def child(inside):
        signal.alarm(60)
        with lock:
            os._exit(5 if len(done) + 2 * inside else 6)

    def forked(inside):
        pid = os.fork()
        if pid == 0:
            child(inside)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    forked(inside=False)
    thread.join()
    with lock:
        forked(inside=True)
    assert lock.acquire(timeout=1)
"""


def test_a_fork_waits_for_a_short_section(run: Callable[..., Outcome]) -> None:
    assert run(LOCKED.replace("= PATIENCE", "= 60").replace("HELD", "0.5")).ok().out == "5\n5\n"


def test_a_child_gets_a_lock_that_was_held_too_long(run: Callable[..., Outcome]) -> None:
    assert run(LOCKED.replace("= PATIENCE", "= 0.2").replace("HELD", "3")).ok().out == "6\n5\n"


def test_a_fork_waits_for_short_operators_of_other_threads(run: Callable[..., Outcome]) -> None:
    source = """
        import ctypes, os, sys, threading, time, warnings
        warnings.simplefilter("ignore")
        from regard.engine import fork
        fork.SETTLE = 0.1
        usleep = ctypes.CDLL(None).usleep  # runs without the GIL, as torch's operators do
        before, started, ended = sys.getswitchinterval(), threading.Event(), []

        def operators():
            started.set()
            while True:
                ended.append(time.monotonic())
                usleep(20_000)

        threading.Thread(target=operators, daemon=True).start()
        started.wait()
        pid = os.fork()
        if pid == 0:
            # the thread could begin nothing while the fork kept the GIL, so what it had begun is finished
            waited, same = time.monotonic() - ended[-1] >= 0.1, sys.getswitchinterval() == before
            os._exit(5 if waited and same else 6)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), sys.getswitchinterval() == before)
        os._exit(0)
    """
    assert run(source).ok().out == "5 True\n"


def test_fork_as_a_side_effect_of_an_import(run: Callable[..., Outcome]) -> None:
    source = """
        import os, sys
        from pathlib import Path
        import regard
        Path("forker.py").write_text(
            "import os, regard\\n"
            "pid = os.fork()\\n"
            "if pid == 0:\\n"
            "    import regard.nn, decimal\\n"
            "    os._exit(7)\\n"
            "code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\\n"
        )
        sys.path.insert(0, ".")
        import warnings; warnings.simplefilter("ignore")
        import forker
        import colorsys
        print(forker.code)
    """
    assert run(source).ok().out == "7\n"
