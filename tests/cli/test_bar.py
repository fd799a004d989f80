"""The progress bar: one growing line on a terminal, one line per kind of work in a file."""

import io
import sys

import pytest

from regard.cli.bar import Bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_one_line_that_grows_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with Bar() as bar:
        bar("downloading", 0, 10_000_000)
        bar("downloading", 1, 10_000_000)
        bar("downloading", 5_000_000, 10_000_000)
        bar("checking", 10_000_000, 10_000_000)
        bar("waiting", 0, 0)
    lines = terminal.getvalue().split("\r")
    assert "\n" not in terminal.getvalue()
    assert [line.rstrip() for line in lines] == [
        "",
        "downloading [..............................] 0.0 of 10.0 MB",
        "downloading [###############...............] 5.0 of 10.0 MB",
        "checking [##############################] 10.0 of 10.0 MB",
        "waiting",
        "",
        "",
    ]
    assert max(map(len, lines)) < 60


def test_a_narrow_terminal_is_not_overrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with Bar() as bar:
        bar("downloading", 5_000_000, 10_000_000)
    assert max(map(len, terminal.getvalue().split("\r"))) < 20


def test_a_file_gets_a_line_per_kind_of_work(capsys: pytest.CaptureFixture[str]) -> None:
    with Bar() as bar:
        for done in range(0, 2_000_000, 100_000):
            bar("downloading", done, 2_000_000)
        bar("waiting for another process", 0, 0)
    assert capsys.readouterr().err == "downloading (2.0 MB)\nwaiting for another process\n"
