"""An interrupt at any moment of a long call: the process answers, memory stays whole, and the next call is right."""

import random
import signal
from collections.abc import Callable

import pytest

from .conftest import Outcome, Scenario

# Each prints "begun" before its long call and a digest at its end. Sizes take a second or more in all.
SETTING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts with Ctrl-C ignored
import torch, regard
from regard import masks, biases, scores, normalizers
torch.set_num_threads(2)
torch.manual_seed(0)

def inputs(n, width=64, heads=4):
    return tuple(torch.randn(1, heads, n, width).requires_grad_() for _ in range(3))

def attempt(work):
    print("begun", flush=True)
    try:
        work()
        print("not interrupted")
    except KeyboardInterrupt:
        print("interrupted")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # one that comes late

def after():
    # memory that a kernel still writes into would be handed out again here
    for _ in range(20):
        blocks = [torch.full((1 << 18,), 7.0) for _ in range(8)]
        assert all(bool((block == 7).all()) for block in blocks)
    q, k, v = (t.detach()[:, :, :300] for t in inputs(300))
    found = regard.attend(q, k, v, mask="causal", engine="native")
    right = regard.attend(q, k, v, mask="causal", engine="reference")
    assert (found - right).abs().max() < 1e-5
    print("alive")
"""

LONG = {
    "forward": """
        q, k, v = inputs(9000)
        attempt(lambda: regard.attend(q.detach(), k.detach(), v.detach()))
    """,
    "forward of a first call, with statistics": """
        q, k, v = inputs(7000)
        attempt(lambda: regard.attend(q, k, v, mask="causal", bias=biases.ALiBi(4), aux=("entropy", "received")))
    """,
    "backward": """
        q, k, v = inputs(5000)
        out = regard.attend(q, k, v).sum()
        attempt(lambda: out.backward())
    """,
    "backward of tensors that are freed": """
        def work():
            q, k, v = inputs(4000)
            out = regard.attend(q, k, v, dropout=0.1, normalizer=normalizers.Softmax(0.0))
            torch.autograd.grad(out.sum(), (q, k, v))
        attempt(work)
    """,
    "additive": """
        q, k, v = inputs(3000, heads=2)
        w = torch.randn(2, 32, 64) / 8
        attempt(lambda: regard.attend(q, k, v, score=scores.Additive(w[0], w[1], torch.ones(32))).sum().backward())
    """,
    "tiled": """
        q, k, v = inputs(2500, heads=2)
        attempt(lambda: regard.attend(q, k, v, mask="causal", engine="tiled").sum().backward())
    """,
    "a function as mask": """
        q, k, v = inputs(4000)
        attempt(lambda: regard.attend(q, k, v, mask=masks.Where(lambda b, h, i, j: (i + j) % 3 > 0)).sum().backward())
    """,
    "survey": """
        q, k, v = (t.detach() for t in inputs(6000))
        A = regard.matrix(q, k, mask="causal")
        attempt(lambda: (A.received(), A.pool(64, 64), A.topk(4), A.distance(), A.similarity()))
    """,
    "compiled": """
        import torch._dynamo
        q, k, v = inputs(5000)
        compiled = torch.compile(lambda a, b, c: regard.attend(a, b, c), backend="eager")
        attempt(lambda: compiled(q, k, v).sum().backward())
    """,
}

# torch 2.9 raises an error of its own when it is interrupted while it traces.
TRACED = pytest.mark.needs("Ctrl-C while torch.compile traces")
MARKED = [pytest.param(what, marks=TRACED) if what == "compiled" else what for what in LONG]


def interrupted(start: Callable[..., Scenario], what: str, moments: list[float]) -> Outcome:
    lines = LONG[what].splitlines()
    body = "\n".join(line[8:] for line in lines)
    scenario = start(SETTING + body + "\nafter()\n")
    assert scenario.line() == "begun"
    for moment in moments:
        scenario.kill(signal.SIGINT, after=moment)
    return scenario.wait()


def answered(outcome: Outcome, what: str, moments: list[float]) -> bool:
    """Whether the interrupt came in time. One just after the call ends the process by an ordinary KeyboardInterrupt."""
    where = f"{what} at {moments}: {outcome.ending}\n{outcome.err[-3000:]}"
    if outcome.code == -signal.SIGINT:
        assert outcome.err.rstrip().endswith("KeyboardInterrupt"), where
        return False
    assert outcome.code == 0, where
    assert outcome.out.rstrip().endswith("alive"), where
    return "not interrupted" not in outcome.out


@pytest.mark.parametrize("what", MARKED)
def test_an_interrupt_is_answered(what: str, start: Callable[..., Scenario]) -> None:
    answered(interrupted(start, what, [0.3]), what, [0.3])


def test_a_second_interrupt_does_no_harm(start: Callable[..., Scenario]) -> None:
    moments = [0.4, 0.0005]
    answered(interrupted(start, "forward", moments), "forward", moments)


@pytest.mark.slow
@pytest.mark.parametrize("what", MARKED)
def test_interrupts_at_random_moments(what: str, start: Callable[..., Scenario]) -> None:
    draw = random.Random(what)
    met = 0
    for _ in range(23):
        moments = [draw.uniform(0.0, 1.2)] + [draw.uniform(0.0, 0.01) for _ in range(draw.choice([0, 0, 1]))]
        met += answered(interrupted(start, what, moments), what, moments)
    assert met, "no interrupt met the call: its sizes are too small"
