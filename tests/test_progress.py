"""Progress: reports reach the callback of the current call; a terminal sees bars that go, a file a few lines."""

import io
import os
import re
import signal
import subprocess
import sys
from contextlib import redirect_stderr
from pathlib import Path

import pytest

from regard import progress
from regard.progress import CALLBACK, Progress, display, report, reporting, reporting_to_user

ESCAPES = re.compile(r"\x1b\[[?\d;]*[a-zA-Z]")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def frames(self) -> list[str]:
        """What was drawn, without colors and movements of the cursor."""
        lines = ESCAPES.sub("", self.getvalue().replace("\r", "\n")).splitlines()
        return [line.rstrip() for line in lines if line.strip()]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(progress, "PAUSE", -1.0)
    return Terminal()


def test_reports_reach_the_callback_of_the_block_and_no_other() -> None:
    reports: list[Progress] = []
    report("before", 0, 1)
    with reporting(reports.append):
        report("reading", 3, 12, "rows")
        with reporting(None):
            report("timed", 1, 2)
        steps: list[tuple[str, int, int]] = []
        with reporting_to_user(lambda *step: steps.append(step), "bytes"):
            report("reading", 4, 12, "rows")
            report("converting", 4, 5, "bytes")
        with reporting_to_user(None):
            report("reading", 4, 12, "rows")
    report("after", 0, 1)
    assert reports == [Progress("reading", 3, 12, "rows"), Progress("reading", 4, 12, "rows")]
    assert steps == [("converting", 4, 5)]
    assert CALLBACK.get() is None


def test_a_report_as_text() -> None:
    assert str(Progress("reading", 3000, 12000, "rows")) == "reading: 3,000 of 12,000 rows"
    assert str(Progress("downloading", 41_230_000, 83_500_000, "bytes")) == "downloading: 41.2 of 83.5 MB"
    assert str(Progress("d = 8", 1, 2)) == "d = 8: 1 of 2"
    assert str(Progress("waiting", 0, 0)) == "waiting"


def test_a_terminal_sees_bars_that_go(terminal: Terminal) -> None:
    with redirect_stderr(terminal), display(patience=0.0):
        report("downloading", 0, 10_000_000, "bytes")
        report("downloading", 5_000_000, 10_000_000, "bytes")
        report("waiting [for] another", 0, 0, "bytes")
    frames = terminal.frames()
    assert any(re.fullmatch(r"downloading ━+ 0.0 of 10.0 MB", frame) for frame in frames)
    assert any(re.fullmatch(r"downloading ━+[╸╺]━+ 5.0 of 10.0 MB \d:\d\d left", frame) for frame in frames)
    assert "waiting [for] another" in frames
    assert terminal.getvalue().endswith("\x1b[2K")  # erased
    assert "\x1b[?25h" in terminal.getvalue()  # the cursor is shown again


def test_nested_loops_have_a_bar_each_and_a_finished_one_goes(terminal: Terminal) -> None:
    with redirect_stderr(terminal), display(patience=0.0):
        report("layer 0", 0, 2, "layers")
        report("reading", 1, 4, "rows")
        assert terminal.frames()[-2:][0].startswith("layer 0")
        assert terminal.frames()[-1].endswith("1 of 4 rows")
        report("reading", 4, 4, "rows")
        assert "layers" in terminal.frames()[-1]
        report("layer 1", 1, 2, "layers")
    assert not any("4 of 4 rows" in frame for frame in terminal.frames())


def test_the_outer_display_shows_what_is_inside(terminal: Terminal) -> None:
    with redirect_stderr(terminal), display(patience=0.0) as outer, display():
        assert CALLBACK.get() is outer
        report("reading", 1, 4, "rows")
    assert any("1 of 4 rows" in frame for frame in terminal.frames())


def test_a_narrow_terminal_is_not_overrun(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    with redirect_stderr(terminal), display(patience=0.0):
        report("downloading", 5_000_000, 10_000_000, "bytes")
    assert max(map(len, terminal.frames())) <= 20


def test_nothing_is_shown_of_short_work(terminal: Terminal) -> None:
    with redirect_stderr(terminal), display(lines=True):
        report("reading", 1, 4, "rows")
    assert terminal.getvalue() == ""


def test_the_bars_make_room_for_other_lines(terminal: Terminal) -> None:
    with redirect_stderr(terminal), display(patience=0.0) as shown:
        report("reading", 1, 4, "rows")
        shown.clear()
        assert terminal.getvalue().endswith("\x1b[2K")
        print("found", file=sys.stderr)
        report("reading", 2, 4, "rows")
    assert "2 of 4 rows" in terminal.frames()[-1]


def test_a_file_gets_a_line_per_description(capsys: pytest.CaptureFixture[str]) -> None:
    with display(lines=True, patience=0.0):
        for done in range(0, 2_000_000, 100_000):
            report("downloading", done, 2_000_000, "bytes")
        report("waiting for another process", 0, 0, "bytes")
    assert capsys.readouterr().err == "downloading: 0.0 of 2.0 MB\nwaiting for another process\n"


def test_lines_wait_before_they_begin_and_between_two(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with display(lines=True):
        report("d = 8", 0, 3)
        now = 103.0
        report("d = 16", 1, 3)
        report("d = 32", 2, 3)
        now = 106.0
        report("d = 32", 2, 3)
    assert capsys.readouterr().err == "d = 16: 1 of 3, 0:06 left\nd = 32: 2 of 3, 0:03 left\n"


def test_a_file_gets_nothing_from_a_call_of_the_library(capsys: pytest.CaptureFixture[str]) -> None:
    with display(patience=0.0):
        report("reading", 1, 4, "rows")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name, value", [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_lines_where_no_bars_are_wanted(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with redirect_stderr(terminal), display(lines=True, patience=0.0):
        report("reading", 1, 4, "rows")
    assert terminal.getvalue() == "reading: 1 of 4 rows\n"


INTERRUPTED = """
import signal, sys, time
from regard.progress import display, report
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    with display(patience=0.0):
        for done in range(10_000):
            report("reading", done, 10_000, "rows")
            time.sleep(0.01)
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
"""


@pytest.mark.skipif(os.name != "posix", reason="a terminal of its own")
def test_ctrl_c_leaves_a_clean_line() -> None:
    import pty

    ours, theirs = pty.openpty()
    source = str(Path(progress.__file__).parents[1])
    env = os.environ | {"PYTHONPATH": source, "TERM": "xterm", "COLUMNS": "80"}
    env.pop("NO_COLOR", None)
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED], env=env, stderr=theirs) as child:
        os.close(theirs)
        shown = b""
        while b"of 10,000 rows" not in shown:
            shown += os.read(ours, 10_000)
        child.send_signal(signal.SIGINT)
        try:
            while part := os.read(ours, 10_000):
                shown += part
        except OSError:  # Linux: the other end was closed
            pass
    os.close(ours)
    assert shown.endswith(b"\x1b[2Kinterrupted\r\n"), shown[-200:]
