"""Progress of long calls: loops report to the callback of the current call, and a display shows it on standard error.

    with display():                                  # bars on a terminal, once the work has taken two seconds
        for done, row in enumerate(rows):
            report("reading", done, len(rows), "rows")

Loops may nest: each has its own unit, and the display shows one bar for each unit.
"""

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

PATIENCE = 2.0  # seconds before anything is shown
PAUSE = 0.1  # seconds between two updates of the bars
LINE_PAUSE = 30.0  # seconds between two lines of the same description where there are no bars
BAR_WIDTH = 30


@dataclass(frozen=True)
class Progress:
    """`done` of `total` units of one loop; a `total` of 0 means that it is not known."""

    description: str
    done: int
    total: int
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.description}: {self.amount}" if self.total else self.description

    @property
    def amount(self) -> str:
        """`3 of 12 layers`, `41.2 of 83.5 MB`; empty if the total is not known."""
        if not self.total:
            return ""
        if self.unit == "bytes":
            return f"{self.done / 1e6:.1f} of {megabytes(self.total)}"
        return f"{self.done:,} of {self.total:,} {self.unit}".rstrip()


Callback = Callable[[Progress], None]
PlainCallback = Callable[[str, int, int], None]
"""A user's callback: called with the description, how much is done, and of how much."""

CALLBACK: ContextVar[Callback | None] = ContextVar("progress", default=None)
"""Progress callback of the current call."""


def report(description: str, done: int, total: int, unit: str = "") -> None:
    """Tell the callback of the current call, if there is one."""
    callback = CALLBACK.get()
    if callback is not None:
        callback(Progress(description, done, total, unit))


@contextmanager
def reporting(callback: Callback | None) -> Iterator[None]:
    """Make this the callback of the calls in the block; None for calls that are timed."""
    token = CALLBACK.set(callback)
    try:
        yield
    finally:
        CALLBACK.reset(token)


@contextmanager
def reporting_to_user(callback: PlainCallback | None, *units: str) -> Iterator[None]:
    """The same with a user's callback, for loops with these units; without one, the current callback stays."""
    if callback is None:
        yield
        return

    def pass_on(progress: Progress) -> None:
        if progress.unit in units:
            callback(progress.description, progress.done, progress.total)

    with reporting(pass_on):
        yield


@contextmanager
def display(*, lines: bool = False, patience: float | None = None) -> Iterator["Display"]:
    """Show the progress of the block, unless a callback already takes it.

    A terminal gets bars. With `lines`, a file, a pipe, a dumb terminal and NO_COLOR get a line now and then.
    """
    shown = Display(lines, PATIENCE if patience is None else patience)
    if CALLBACK.get() is not None:
        yield shown
        return
    token = CALLBACK.set(shown)
    try:
        yield shown
    finally:
        CALLBACK.reset(token)
        shown.clear()


class _Loop(NamedTuple):
    """The latest report of a loop, and when it began and with how much done."""

    latest: Progress
    start: float
    first: int

    def time_left(self, now: float) -> str:
        """`0:41`, or nothing as long as it cannot be estimated."""
        done = self.latest.done - self.first
        if done <= 0 or not self.latest.total:
            return ""
        minutes, seconds = divmod(round((now - self.start) * (self.latest.total - self.latest.done) / done), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{seconds:02} left" if hours else f"{minutes}:{seconds:02} left"


@dataclass
class Display:
    """A callback that draws bars with rich, or prints lines, on standard error."""

    _lines: bool
    _patience: float
    _start: float = field(default_factory=lambda: time.monotonic())
    _drawn: float = float("-inf")
    _line: str = ""
    _loops: dict[str, _Loop] = field(default_factory=dict)  # by unit, the outermost first
    _live: "Live | None" = None

    def __call__(self, progress: Progress) -> None:
        """Take a report, and draw if it is time to."""
        now = time.monotonic()
        self._loops = _nested(self._loops, progress, now)
        if now - self._start < self._patience:
            return
        if _can_redraw():
            if now - self._drawn >= PAUSE:
                self._drawn = now
                self._draw(now)
        elif self._lines:
            reports = [loop.latest for loop in self._loops.values()]
            described = ", ".join(each.description for each in reports)
            if now - self._drawn >= (LINE_PAUSE if described == self._line else self._patience):
                self._drawn, self._line = now, described
                left = next((each for loop in self._loops.values() if (each := loop.time_left(now))), "")
                print(", ".join([*map(str, reports), *[left] * bool(left)]), file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Erase the bars, to make room for other lines; the next report draws them again."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _draw(self, now: float) -> None:
        from rich.console import Console
        from rich.live import Live

        if self._live is None:
            self._live = Live(
                console=Console(stderr=True),
                auto_refresh=False,  # which would be a thread
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        self._live.update(_bars(self._loops.values(), now), refresh=True)


def megabytes(size: int) -> str:
    """A size as people compare it: `83.5 MB`."""
    return f"{size / 1e6:.1f} MB"


def _nested(loops: dict[str, _Loop], progress: Progress, now: float) -> dict[str, _Loop]:
    """The loops that run after this report: those around its loop, and its own unless it has finished."""
    outer = dict(itertools.takewhile(lambda item: item[0] != progress.unit, loops.items()))
    if outer and 0 < progress.total <= progress.done:
        return outer
    before = loops.get(progress.unit)
    if before is None or before.latest.total != progress.total or before.latest.done > progress.done:
        return outer | {progress.unit: _Loop(progress, now, progress.done)}
    return outer | {progress.unit: before._replace(latest=progress)}


def _can_redraw() -> bool:
    """Whether standard error is a terminal that can redraw a line."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")


def _bars(loops: Iterable[_Loop], now: float) -> "Table":
    """One row for each loop: description, bar, amount, time left."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(max_width=BAR_WIDTH)  # on a narrow terminal the bar shrinks first
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    for loop in loops:
        latest = loop.latest
        bar = ProgressBar(latest.total, latest.done) if latest.total else ""
        table.add_row(Text(latest.description), bar, Text(latest.amount), Text(loop.time_left(now)))
    return table
