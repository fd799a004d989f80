"""Long surveys: memory stays linear, they show progress on a terminal, and Ctrl-C ends them."""

import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from regard import matrix
from regard.testing import peak_bytes

PROGRAM = """
import signal, torch, regard
signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background is started without
q, k = torch.randn(2, 1, 8, {n}, 64)
A = regard.matrix(q, k)
print("begun", flush=True)
A.survey("entropy", "received", "pool", rows=64, cols=64)
print("done", flush=True)
"""


def test_reductions_take_memory_for_their_results() -> None:
    """Torch's own allocator, over every reduction that streams through its rectangles: not the square of the length."""
    taken = []
    for n in (1024, 4096):
        a = matrix(*torch.randn(2, 1, 1, n, 8))

        def work(a: object = a) -> None:
            a.topk(3), a.rowsum(), a.similarity(), a.peak(), a.pool(16, 16)  # type: ignore[attr-defined]

        taken.append(peak_bytes(work)[0])
    assert taken[1] < 4.5 * max(taken[0], 8 << 20), taken
    assert taken[1] < 4096 * 4096 * 4


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system does not tell")
def test_a_survey_of_65536_stays_under_150_megabytes() -> None:
    program = Path(__file__).parents[3] / "examples" / "survey_long.py"
    lines = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True).stdout
    more = int(next(line for line in lines.splitlines() if line.startswith("survey")).split()[-3])
    assert more <= 143, lines  # 150 MB


def test_a_long_survey_shows_progress_and_answers_ctrl_c() -> None:
    ours, theirs = pty.openpty()
    call = [sys.executable, "-W", "ignore", "-c", PROGRAM.format(n=40_000)]
    said: list[bytes] = []
    reader = threading.Thread(target=lambda: said.extend(everything(ours)))  # a full terminal would hold the child
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=theirs, text=True) as child:
        os.close(theirs)
        reader.start()
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == "begun\n"
            end = time.monotonic() + 300
            while b"computing attention" not in b"".join(said) and child.poll() is None and time.monotonic() < end:
                time.sleep(0.05)
            child.send_signal(signal.SIGINT)
            assert child.wait(300) != 0
        finally:
            child.kill()
    reader.join()
    os.close(ours)
    assert b"computing attention" in b"".join(said), said
    assert b"KeyboardInterrupt" in b"".join(said), said


def everything(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            part = os.read(terminal, 10_000)
        except OSError:  # the other end is closed
            return
        yield part
