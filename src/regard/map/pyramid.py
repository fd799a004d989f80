"""Pyramids: all coarse levels of a head, as bytes, from one pass over its pairs, and the thread that builds them.

Sums, maxima and numbers of visible pairs of four cells give those of the cell above exactly, so only the bytes are
stored: about 26 MB for 100,000 × 100,000. The thread builds what was requested last and lets quick requests go first.
"""

import atexit
import signal
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from regard.inspection.matrix.reductions import PooledGrid
from regard.map.difference_view import DifferenceView
from regard.map.head_view import HeadView, stacked
from regard.map.levels import BASE, Bytes, Levels
from regard.map.tile_cache import TileCache

ROW_BLOCK = 2048  # rows of one step, a power of two times BASE
HeadKey = tuple[int, ...]  # layer, batch row, head; of a difference, those of both heads
PATIENCE = 3.0  # seconds after which a pyramid that is not requested gives way to another
MOST_BEGUN, MOST_READY, MOST_IN_MEMORY = 2, 64, 8  # most pyramids that are begun, ready, and ready without a file

_threads: "weakref.WeakSet[PyramidBuilder]" = weakref.WeakSet()  # those whose thread was started


class Planes(Protocol):
    """Bytes by name, "mean.32" and so on, of which any part can be read."""

    def read(self, name: str, rows: slice, columns: slice) -> Bytes:
        """Some cells."""


class MemoryPlanes:
    """Planes in memory."""

    def __init__(self, planes: Mapping[str, Bytes]) -> None:
        self.planes = dict(planes)

    def read(self, name: str, rows: slice, columns: slice) -> Bytes:
        """Some cells."""
        return self.planes[name][rows, columns]


class Build:
    """The pass: `step` until `done` is `total`, then `planes`."""

    def __init__(self, head_view: HeadView | DifferenceView, levels: Levels, name: str | None = None) -> None:
        """`name`: its name in the tile cache."""
        self._head_view, self.levels, self.name = head_view, levels, name
        self.done, self.total = 0, -(-levels.queries // ROW_BLOCK)
        self.planes: dict[str, Bytes] = {name: np.zeros(size, np.uint8) for name, size in levels.coarse_shapes.items()}
        self._tops: list[PooledGrid] = []  # of each row block, in cells as high as the block

    def step(self) -> None:
        """Process one more row block."""
        first = self.done * ROW_BLOCK
        rows = slice(first, min(self.levels.queries, first + ROW_BLOCK))
        grid = self._head_view.grid(rows, slice(0, self.levels.keys), BASE)
        for side in self.levels.coarse_sides:
            if side > BASE:
                grid = grid.halved()
            self._write(side, first // side, grid)
            if side == ROW_BLOCK:
                break
        self._tops.append(grid)
        self.done += 1
        above = [side for side in self.levels.coarse_sides if side > ROW_BLOCK]
        if self.done == self.total and above:
            grid = stacked(self._tops)
            for side in above:
                grid = grid.halved()
                self._write(side, 0, grid)

    def _write(self, side: int, row: int, grid: PooledGrid) -> None:
        high, wide = grid.sum.shape
        for name, part in zip(("mean", "max"), self.levels.coded(grid), strict=True):
            self.planes[f"{name}.{side}"][row : row + high, :wide] = part


class PyramidBuilder:
    """Pyramids by head: the one requested last comes first, but one that is still requested is finished."""

    def __init__(
        self,
        find: Callable[[HeadKey], tuple[HeadView | DifferenceView, Levels]],
        tile_cache: TileCache | None,
        busy: Callable[[], bool],
    ) -> None:
        self._find, self._tile_cache, self._busy = find, tile_cache, busy
        self._requested: OrderedDict[HeadKey, float] = OrderedDict()
        self._builds: OrderedDict[HeadKey, Build] = OrderedDict()
        self._ready: OrderedDict[HeadKey, Planes] = OrderedDict()
        self._failed: dict[HeadKey, str] = {}
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def get(self, key: HeadKey) -> Planes | None:
        """The pyramid of a head, if it is ready."""
        with self._change:
            if key in self._ready:
                self._ready.move_to_end(key)
            return self._ready.get(key)

    def progress(self, key: HeadKey) -> dict[str, object]:
        """How far the pyramid of a head is; asking begins it."""
        with self._change:
            if key in self._ready:
                return {"state": "exact", "done": 1, "total": 1}
            if key in self._failed:
                return {"state": "failed", "done": 0, "total": 1, "error": self._failed[key]}
            self._requested[key] = time.monotonic()
            self._requested.move_to_end(key)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="regard-map-builder", daemon=True)
                self._thread.start()
                _threads.add(self)
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
            _join(self._thread)

    def _run(self) -> None:
        now: HeadKey | None = None
        while (now := self._next(now)) is not None:
            try:
                self._advance(now)
            except Exception as error:  # reported by `progress`; the other heads go on
                with self._change:
                    self._failed[now] = f"{type(error).__name__}: {error}"[:200]
                    self._builds.pop(now, None)
                    self._requested.pop(now, None)

    def _next(self, now: HeadKey | None) -> HeadKey | None:
        """The head to go on with; None at the end."""
        with self._change:
            while not self._requested and not self._closed:
                self._change.wait()
            if self._closed:
                return None
            if now is not None and now in self._requested and time.monotonic() - self._requested[now] < PATIENCE:
                return now
            return next(reversed(self._requested))

    def _advance(self, key: HeadKey) -> None:
        build = self._builds.get(key)
        if build is None:
            head_view, levels = self._find(key)
            name = head_view.fingerprint() if self._tile_cache is not None else None
            if self._tile_cache is not None and name is not None and (stored := self._tile_cache.get(name, levels)):
                self._keep(key, stored)
                return
            build = Build(head_view, levels, name)
            with self._change:
                self._builds[key] = build
                while len(self._builds) > MOST_BEGUN:
                    self._builds.popitem(last=False)
        self._yield_to_requests()
        build.step()
        if build.done == build.total:
            self._keep(key, self._stored(build))

    def _stored(self, build: Build) -> Planes:
        """In a file if there is a place for it, else in memory."""
        if self._tile_cache is None or build.name is None:
            return MemoryPlanes(build.planes)
        try:
            self._tile_cache.put(build.name, build.planes)
        except OSError:
            return MemoryPlanes(build.planes)
        return self._tile_cache.get(build.name, build.levels) or MemoryPlanes(build.planes)

    def _keep(self, key: HeadKey, planes: Planes) -> None:
        with self._change:
            self._ready[key] = planes
            self._builds.pop(key, None)
            self._requested.pop(key, None)
            in_memory = [each for each, own in self._ready.items() if isinstance(own, MemoryPlanes)]
            for each in in_memory[: max(0, len(in_memory) - MOST_IN_MEMORY)]:
                del self._ready[each]
            while len(self._ready) > MOST_READY:
                self._ready.popitem(last=False)

    def _yield_to_requests(self) -> None:
        """Wait a little while requests are being answered."""
        until = time.monotonic() + 0.5
        while self._busy() and time.monotonic() < until and not self._closed:
            time.sleep(0.01)


@atexit.register
def _close_all() -> None:
    """End the threads before the interpreter does: one that is inside torch then would abort the process. Ctrl-C is
    ignored meanwhile, which is no longer than a step."""
    running = [builder for builder in _threads if builder._thread is not None and builder._thread.is_alive()]
    if running and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    for builder in running:
        builder.close()


def _join(thread: threading.Thread) -> None:
    """Wait for a thread, also where Ctrl-C came while it was being started: it runs a moment later, or never."""
    deadline = time.monotonic() + 1.0
    while True:
        try:
            thread.join()
            return
        except RuntimeError:  # not started yet
            if time.monotonic() > deadline:
                return
            time.sleep(0.001)
