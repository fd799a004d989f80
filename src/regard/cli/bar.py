"""A progress bar on standard error: one line that grows on a terminal, one line per kind of work elsewhere."""

import shutil
import sys

from regard.models.progress import megabytes

_WIDEST = 30


class Bar:
    """Told what is done and how many bytes of how many; used as a context manager, it leaves no half line."""

    def __init__(self) -> None:
        self.what = ""
        self.share = -1
        self.width = 0

    def __enter__(self) -> "Bar":
        return self

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show it, if it looks different from what is shown."""
        live = sys.stderr.isatty()
        share = 1000 * done // total if total else 0
        if what == self.what and (share == self.share or not live):
            return
        self.what, self.share = what, share
        if live:
            self._draw(_line(what, done, total, shutil.get_terminal_size().columns - 1))
        else:
            print(f"{what} ({megabytes(total)})" if total else what, file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self.width:
            print("\r" + " " * self.width + "\r", end="", file=sys.stderr, flush=True)

    def _draw(self, line: str) -> None:
        print(f"\r{line:<{self.width}}", end="", file=sys.stderr, flush=True)
        self.width = len(line)


def _line(what: str, done: int, total: int, columns: int) -> str:
    if not total:
        return what[:columns]
    size = f"{done / 1e6:.1f} of {megabytes(total)}"
    room = min(columns - len(what) - len(size) - 4, _WIDEST)
    full = room * done // total
    bar = f"[{'#' * full}{'.' * (room - full)}] " if room > 2 else ""
    return f"{what} {bar}{size}"[:columns]
