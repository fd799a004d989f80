"""Many experiments at once: what comes back, what fails, and that nobody is left behind."""

import multiprocessing as mp
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import regard
from regard import lab
from regard.lab.report import Report
from regard.lab.run_all import Failed, run_all

QUICKEST = ("saturation", "rows")


def test_each_gives_the_report_it_gives_alone_and_one_that_fails_is_named() -> None:
    found = {each.name: each for each in run_all([*QUICKEST, "nothing"], quick=True, seed=3)}
    assert set(found) == {*QUICKEST, "nothing"}
    failed = found["nothing"]
    assert isinstance(failed, Failed)
    assert "the lab has no experiment 'nothing'" in failed.reason
    for name in QUICKEST:
        outcome, alone = found[name], lab.run(name, quick=True, seed=3)
        assert isinstance(outcome, Report)
        assert (outcome.tables, outcome.finding) == (alone.tables, alone.finding)
    assert mp.active_children() == []


def test_what_is_closed_leaves_no_process() -> None:
    running = run_all(["saturation", "induction"], quick=False, seed=12345)
    next(running)
    running.close()
    assert mp.active_children() == []


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_ends_all_of_it(tmp_path: Path) -> None:
    source = Path(regard.__file__).parents[1]
    env = os.environ | {"PYTHONPATH": str(source), "REGARD_CACHE": str(tmp_path), "OMP_NUM_THREADS": "1"}
    code = (
        "if __name__ == '__main__':\n"
        "    import signal\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell lets it be ignored\n"
        "    from regard.lab.run_all import run_all\n"
        "    from regard.progress import reporting_to_user\n"
        "    print('begun', flush=True)\n"
        "    with reporting_to_user(lambda *it: print(it, flush=True), 'experiments'):\n"
        "        list(run_all(['induction']))\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    command = [sys.executable, str(script)]
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        assert "training induction" in process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(300) != 0
        until = time.monotonic() + 120
        while _alive(process.pid) and time.monotonic() < until:
            time.sleep(0.05)
        assert not _alive(process.pid)
    assert list(tmp_path.rglob("checkpoint.safetensors"))


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
