"""Builder: one thread that makes the pyramids which somebody looks at, and lets quick questions go first."""

import atexit
import signal
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable

from regard.map.lane import Lane
from regard.map.levels import Levels
from regard.map.pyramid import Build, Held, Planes
from regard.map.shelf import Shelf

Key = tuple[int, int, int]  # sheet, batch row, head
PATIENCE = 3.0  # seconds after which a pyramid that nobody asks for gives way to another
BEGUN, KEPT, HELD = 2, 64, 8  # pyramids that are begun, open, and open without a file

_open: "weakref.WeakSet[Builder]" = weakref.WeakSet()  # those whose thread was started


class Builder:
    """Pyramids by head: the one that was asked for last comes first, but one that is still asked for is finished."""

    def __init__(
        self, find: Callable[[Key], tuple[Lane, Levels]], shelf: Shelf | None, busy: Callable[[], bool]
    ) -> None:
        self._find, self._shelf, self._busy = find, shelf, busy
        self._asked: OrderedDict[Key, float] = OrderedDict()
        self._builds: OrderedDict[Key, Build] = OrderedDict()
        self._ready: OrderedDict[Key, Planes] = OrderedDict()
        self._failed: dict[Key, str] = {}
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def get(self, key: Key) -> Planes | None:
        """The pyramid of a head, if it is ready."""
        with self._change:
            if key in self._ready:
                self._ready.move_to_end(key)
            return self._ready.get(key)

    def progress(self, key: Key) -> dict[str, object]:
        """How far the pyramid of a head is; asking begins it."""
        with self._change:
            if key in self._ready:
                return {"state": "exact", "done": 1, "total": 1}
            if key in self._failed:
                return {"state": "failed", "done": 0, "total": 1, "error": self._failed[key]}
            self._asked[key] = time.monotonic()
            self._asked.move_to_end(key)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="regard-map-builder", daemon=True)
                self._thread.start()
                _open.add(self)
            self._change.notify_all()
            build = self._builds.get(key)
            if build is None:
                return {"state": "waiting", "done": 0, "total": 1}
            return {"state": "building", "done": build.done, "total": build.total}

    def close(self) -> None:
        """End the thread after its present step."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        now: Key | None = None
        while (now := self._next(now)) is not None:
            try:
                self._advance(now)
            except Exception as error:  # told to whoever asks; the other heads go on
                with self._change:
                    self._failed[now] = f"{type(error).__name__}: {error}"[:200]
                    self._builds.pop(now, None)
                    self._asked.pop(now, None)

    def _next(self, now: Key | None) -> Key | None:
        """The head to go on with; None at the end."""
        with self._change:
            while not self._asked and not self._closed:
                self._change.wait()
            if self._closed:
                return None
            if now is not None and now in self._asked and time.monotonic() - self._asked[now] < PATIENCE:
                return now
            return next(reversed(self._asked))

    def _advance(self, key: Key) -> None:
        build = self._builds.get(key)
        if build is None:
            lane, levels = self._find(key)
            name = lane.fingerprint() if self._shelf is not None else None
            found = self._shelf.get(name, levels) if self._shelf is not None and name is not None else None
            if found is not None:
                self._keep(key, found)
                return
            build = Build(lane, levels, name)
            with self._change:
                self._builds[key] = build
                while len(self._builds) > BEGUN:
                    self._builds.popitem(last=False)
        self._let_others()
        build.step()
        if build.done == build.total:
            self._keep(key, self._stored(build))

    def _stored(self, build: Build) -> Planes:
        """In a file if there is a place for it, else in memory."""
        if self._shelf is None or build.name is None:
            return Held(build.planes)
        try:
            self._shelf.put(build.name, build.planes)
        except OSError:
            return Held(build.planes)
        return self._shelf.get(build.name, build.levels) or Held(build.planes)

    def _keep(self, key: Key, planes: Planes) -> None:
        with self._change:
            self._ready[key] = planes
            self._builds.pop(key, None)
            self._asked.pop(key, None)
            held = [each for each, own in self._ready.items() if isinstance(own, Held)]
            for each in held[: max(0, len(held) - HELD)]:
                del self._ready[each]
            while len(self._ready) > KEPT:
                self._ready.popitem(last=False)

    def _let_others(self) -> None:
        """Wait a little while questions are being answered."""
        until = time.monotonic() + 0.5
        while self._busy() and time.monotonic() < until and not self._closed:
            time.sleep(0.01)


@atexit.register
def _close_all() -> None:
    """End the threads before the interpreter does: one that is inside torch then would abort the process. Ctrl-C is
    ignored meanwhile, which is no longer than a step."""
    running = [builder for builder in _open if builder._thread is not None and builder._thread.is_alive()]
    if running and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    for builder in running:
        builder.close()
