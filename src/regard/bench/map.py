"""`regard bench map`: response times and memory of the map.

One head of random queries and keys, causal: the forward pass, the first picture, the exact coarse levels, screens of
tiles at every scale; then eight heads in a process of their own, and many visitors at one server.
"""

import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.bench.machine import resident_bytes
from regard.engine.attend import attend
from regard.inspection.matrix import matrix
from regard.inspection.records import Cell, Table
from regard.map.jobs import Stop
from regard.map.levels import BASE, TILE, Levels
from regard.map.pyramid import ROW_BLOCK, Build
from regard.map.serve import listening
from regard.map.viewer import Viewer
from regard.map.views import CaptureView
from regard.progress import report

WIDTH = 64
SCREEN = (4, 6)  # tiles down and across that 1280 × 800 pixels touch


@dataclass(frozen=True)
class Screen:
    """Seconds of a full screen of tiles with `side` weights along a pixel."""

    side: int
    median: float
    p95: float


@dataclass(frozen=True)
class Visitors:
    """Requests of many visitors at one server."""

    count: int
    seconds: float
    answers: int
    busy: int
    errors: int
    p95: float
    before: int
    after: int


@dataclass(frozen=True)
class Figures:
    """All measurements, in seconds and bytes."""

    n: int
    forward: float
    first_picture: float
    first_pass: float
    coarse: float
    screens: tuple[Screen, ...]
    heads: int
    held: int | None
    most: int | None
    visitors: Visitors | None

    @property
    def share(self) -> float:
        """Time of the coarse levels / time of one forward pass."""
        return self.coarse / self.forward


def measure(n: int, views: int, heads: int, visitors: int, seconds: float) -> Figures:
    """All measurements; `views` screens at each scale."""
    query, key = drawn(1, n)
    report("forward pass", 0, 0, "step")
    forward = min(_timed(lambda: attend(query, key, key, mask="causal")) for _ in range(3))
    with tempfile.TemporaryDirectory() as folder:

        def first_picture() -> None:
            viewer = Viewer(_view(query, key, folder))
            _ask(viewer, "tiles", tiles=[[0, 0, 0]])
            viewer.close()

        def coarse_levels() -> None:
            build = Build(head_view, levels)
            while build.done < build.total:
                build.step()

        report("first picture", 0, 0, "step")
        picture = min(_timed(first_picture) for _ in range(3))
        report("rows", 0, 0, "step")
        viewer = Viewer(_view(query, key, folder))
        head_view, levels = viewer.head_and_levels((0, 0, 0))
        first_pass = _timed(lambda: head_view.seen(slice(0, n)))
        report("coarse levels", 0, 0, "step")
        coarse = min(_timed(coarse_levels) for _ in range(2))
        screens = []
        for side in (1, 2, 4, 8, 16):
            report(f"screens of {side} × {side} weights a pixel", 0, 0, "step")
            if n >= side * TILE * max(SCREEN):
                screens.append(_screen(viewer, levels, side, views))
        viewer.close()
        report(f"{heads} heads", 0, 0, "step")
        code = f"from regard.bench.map import open_heads; open_heads({n}, {heads}, {folder!r})"
        child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        held, most = json.loads(child.stdout)
        report(f"{visitors} visitors", 0, 0, "step")
        many = _visited(n, visitors, seconds, folder) if visitors else None
    return Figures(n, forward, picture, first_pass, coarse, tuple(screens), heads, held, most, many)


def drawn(heads: int, n: int) -> tuple[Tensor, Tensor]:
    """Random queries and keys."""
    draw = torch.Generator().manual_seed(0)
    query, key = (torch.randn(1, heads, n, WIDTH, generator=draw) for _ in range(2))
    return query, key


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _ask(viewer: Viewer, name: str, **more: Any) -> Any:
    return viewer.answer(name, {"layer": 0, "batch": 0, "head": 0, **more}, Stop())


def _view(query: Tensor, key: Tensor, folder: str) -> CaptureView:
    return replace(CaptureView.of(matrix(query, key, mask="causal")), folder=Path(folder))


def _screen(viewer: Viewer, levels: Levels, side: int, views: int) -> Screen:
    """Screens below the diagonal, where nothing is empty, each at a place of its own."""
    draw, z = random.Random(side), levels.count - side.bit_length()
    high, wide = SCREEN
    down = levels.tiles(z)[0]
    times = []
    for _ in range(views):
        y = draw.randrange(min(wide, down - high), down - high + 1)
        x = draw.randrange(0, max(1, min(y - wide + 1, down - wide + 1)))
        tiles = [[z, y + i, x + j] for i in range(high) for j in range(wide)]
        viewer.forget()
        times.append(_timed(lambda tiles=tiles: _ask(viewer, "tiles", tiles=tiles)))  # type: ignore[misc]
    return Screen(side, statistics.median(times), percentile(times))


def percentile(times: list[float], share: float = 0.95) -> float:
    """The time that this share of all stays within."""
    return sorted(times)[max(0, math.ceil(share * len(times) - 1e-9) - 1)]


def open_heads(n: int, heads: int, folder: str) -> None:
    """Show every head until its coarse levels are exact, then print the memory of this process and its peak."""
    viewer = Viewer(_view(*drawn(heads, n), folder))
    for head in range(heads):
        while _ask(viewer, "progress", head=head)["state"] != "exact":
            time.sleep(0.05)
        _ask(viewer, "tiles", head=head, tiles=[[0, 0, 0]])
    print(json.dumps([resident_bytes(), resident_bytes("VmHWM")]))
    viewer.close()


def _visited(n: int, count: int, seconds: float, folder: str) -> Visitors:
    from regard.map.server import MapServer

    with listening(0) as sock:
        running = MapServer(_view(*drawn(1, n), folder), sock)
        thread = threading.Thread(target=running.run)
        thread.start()
        while not running.started:
            time.sleep(0.01)
        _ask(running.viewer, "progress")  # as a page does at once
        pan(running, min(count, 4), min(5.0, seconds))  # what grows with the first looks
        before = resident_bytes() or 0
        answers = pan(running, count, seconds)
        after = resident_bytes() or 0
        running.stop()
        thread.join()
    times = [took for took, status in answers if status == 200]
    busy = sum(status == 429 for _, status in answers)
    errors = len(answers) - len(times) - busy
    return Visitors(count, seconds, len(times), busy, errors, percentile(times) if times else 0.0, before, after)


def pan(running: Any, count: int, seconds: float) -> list[tuple[float, int]]:
    """Visitors who pan and zoom at random: (seconds, status) of every answer."""
    until = time.monotonic() + seconds
    with ThreadPoolExecutor(count) as visitors:
        answers = visitors.map(lambda seed: _wander(running, seed, until), range(count))
        return [answer for one in answers for answer in one]


def _wander(running: Any, seed: int, until: float) -> list[tuple[float, int]]:
    answers: list[tuple[float, int]] = []
    draw = random.Random(seed)
    levels = running.viewer.view.layers[0].levels
    headers = {"Content-Type": "application/json", "X-Regard-Token": running.token.text}
    connection = HTTPConnection("127.0.0.1", running.port, timeout=60)
    z, y, x = 0, 0, 0
    while time.monotonic() < until:
        z = min(levels.count - 1, max(0, z + draw.choice((-1, 0, 0, 1, 1))))
        down, right = levels.tiles(z)
        y, x = (min(most - 1, max(0, at + draw.randrange(-3, 4))) for at, most in ((y, down), (x, right)))
        tiles = [[z, i, j] for i in range(y, min(down, y + 2)) for j in range(x, min(right, x + 3))]
        body = json.dumps({"layer": 0, "head": 0, "tiles": tiles})
        start = time.perf_counter()
        try:
            connection.request("POST", "/api/tiles", body, headers)
            answer = connection.getresponse()
            answer.read()
            answers.append((time.perf_counter() - start, answer.status))
        except OSError:
            answers.append((time.perf_counter() - start, 0))
            connection.close()
    connection.close()
    return answers


def table(figures: Figures) -> Table:
    """What was measured beside the targets for 100,000 tokens."""
    rows: list[list[Cell]] = [
        ["one forward pass", _seconds(figures.forward), ""],
        ["first picture, an estimate", _seconds(figures.first_picture), "2 s"],
        ["state of all rows, once", _seconds(figures.first_pass), ""],
        ["exact coarse levels", f"{_seconds(figures.coarse)} ({figures.share:.2f} forward passes)", "1.3 passes"],
    ]
    targets = {1: "0.15 s", 2: "0.15 s", 4: "0.15 s", 16: "1 s"}
    for screen in figures.screens:
        text = f"{_seconds(screen.median)} (p95 {_seconds(screen.p95)})"
        rows.append([f"a screen, {screen.side} × {screen.side} weights a pixel", text, targets.get(screen.side, "")])
    if figures.held is not None and figures.most is not None:
        text = f"{_mega(figures.held)}, at most {_mega(figures.most)}"
        rows.append([f"memory with {figures.heads} heads open", text, "1,000 MB"])
    if (many := figures.visitors) is not None:
        text = f"{many.answers} answers, {many.busy} told to wait, {many.errors} errors; p95 {_seconds(many.p95)}"
        rows.append([f"{many.count} visitors for {many.seconds:g} s", text, "no error"])
        rows.append(["memory before and after them", f"{_mega(many.before)}, {_mega(many.after)}", "flat"])
    return Table(["", "measured", "wanted"], rows, f"the map of one head, {figures.n:,} tokens, width {WIDTH}, causal")


def record(figures: Figures, machine: object) -> dict[str, Any]:
    """Everything as JSON values."""
    own = {"base": BASE, "strip": ROW_BLOCK}
    return {"machine": asdict(machine), "map": asdict(figures) | own}  # type: ignore[call-overload]


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.0f} ms"


def _mega(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"
