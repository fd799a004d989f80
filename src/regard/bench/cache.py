"""`regard bench cache`: what a cache saves while a model writes, and how transformers does beside it."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.bench.turns import in_turns
from regard.inspection.records import Cell, Line, Lines, Panel, Table
from regard.nn import KVCache, LanguageModel, Rotary
from regard.progress import report

LENGTHS = (128, 256, 512, 1024, 2048)
WRITTEN = 8  # tokens of one sample
Best = dict[str, float]


@dataclass(frozen=True)
class Point:
    """Seconds of reading a prompt of `length` tokens and of each token behind it; None where it was not measured."""

    length: int
    prefill: float
    cached: float
    uncached: float
    peer_prefill: float | None = None
    peer_cached: float | None = None


@dataclass(frozen=True)
class Contest:
    """A model of ours, the same weights in transformers if it is there, and why not if it is not."""

    what: str
    model: LanguageModel
    peer: Any = None
    reason: str | None = None


def shaped() -> LanguageModel:
    """A model of SmolLM2's shape with random weights."""
    options: dict[str, Any] = {"norm": "rms", "activation": "swiglu", "projection_bias": False, "feed_bias": False}
    sizes: dict[str, Any] = {"layers": 30, "d_model": 576, "heads": 9, "kv_heads": 3, "d_ff": 1536}
    return LanguageModel(49152, position=Rotary(64, base=1e5), **sizes, **options).eval()


@torch.no_grad()
def measure(contest: Contest, lengths: Sequence[int], budget: float, rounds: int | None) -> list[Point]:
    """One point per length, contenders in turns, the best of each."""
    return [_point(contest, length, budget, rounds) for length in lengths]


def _point(contest: Contest, length: int, budget: float, rounds: int | None) -> Point:
    draw = torch.Generator().manual_seed(length)
    vocabulary = contest.model.head.weight.shape[0]
    prompt = torch.randint(vocabulary, (1, length), generator=draw)
    more = torch.randint(vocabulary, (1, WRITTEN), generator=draw)
    whole = torch.cat([prompt, more[:, :1]], 1)
    report("reading", 0, 0, "step")
    readers: dict[str, Callable[[], object]] = {"ours": partial(_read, contest.model, prompt)}
    if contest.peer is not None:
        readers["peer"] = partial(_peer_read, contest.peer, prompt)
    reading = _best(readers, budget / 2, rounds)
    report("writing", 0, 0, "step")
    writers: dict[str, Callable[[], object]] = {"ours": _writer(contest.model, prompt, more)}
    if contest.peer is not None:
        writers["peer"] = _peer_writer(contest.peer, prompt, more)
    writing = _best(writers, budget / 2, rounds)
    report("without a cache", 0, 0, "step")
    again = _best({"ours": lambda: contest.model(whole, at=torch.tensor([length]))}, budget / 4, rounds)
    each = {name: seconds / WRITTEN for name, seconds in writing.items()}
    return Point(length, reading["ours"], each["ours"], again["ours"], reading.get("peer"), each.get("peer"))


def _best(works: dict[str, Callable[[], object]], budget: float, rounds: int | None) -> Best:
    return {name: best.seconds for name, best in in_turns(works, budget, rounds).items()}


def _read(model: LanguageModel, prompt: Tensor) -> Tensor:
    logits: Tensor = model(prompt, cache=KVCache(), at=torch.tensor([prompt.shape[1] - 1]))
    return logits


def _peer_read(peer: Any, prompt: Tensor) -> Any:
    return peer(prompt, use_cache=True, logits_to_keep=1)


def _writer(model: LanguageModel, prompt: Tensor, more: Tensor) -> Callable[[], None]:
    cache = KVCache()
    model(prompt, cache=cache, at=torch.tensor([0]))

    def write() -> None:
        cache.truncate(prompt.shape[1])
        for column in range(WRITTEN):
            model(more[:, column : column + 1], cache=cache)

    return write


def _peer_writer(peer: Any, prompt: Tensor, more: Tensor) -> Callable[[], None]:
    cache = peer(prompt, use_cache=True, logits_to_keep=1).past_key_values

    def write() -> None:
        if (more_than := cache.get_seq_length() - prompt.shape[1]) > 0:
            cache.crop(-more_than)
        for column in range(WRITTEN):
            peer(more[:, column : column + 1], past_key_values=cache, use_cache=True)

    return write


def table(points: Sequence[Point]) -> Table:
    """One row per length: times in ms, and how many times as long the others take."""
    columns = ["tokens before", "with cache", "without", "reading them", "transformers writes", "transformers reads"]
    rows: list[list[Cell]] = [
        [
            point.length,
            _ms(point.cached),
            f"{_ms(point.uncached)} ({point.uncached / point.cached:.1f}×)",
            _ms(point.prefill),
            _beside(point.peer_cached, point.cached),
            _beside(point.peer_prefill, point.prefill),
        ]
        for point in points
    ]
    return Table(columns, rows, "ms per token written, and per prompt read")


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"


def _beside(theirs: float | None, ours: float) -> str:
    return "–" if theirs is None else f"{_ms(theirs)} ({theirs / ours:.2f}×)"


def picture(points: Sequence[Point], what: str) -> Panel:
    """Time per token over the tokens before it."""
    x = [point.length for point in points]
    lines = [
        Line("with cache", x, [point.cached * 1e3 for point in points]),
        Line("without", x, [point.uncached * 1e3 for point in points]),
    ]
    peers = [point.peer_cached for point in points]
    if all(seconds is not None for seconds in peers):
        lines.append(
            Line("transformers, with its cache", x, [seconds * 1e3 for seconds in peers if seconds is not None])
        )
    return Panel([Lines(lines, "tokens before", "ms per token", "writing", log_x=True, log_y=True)], what)


def record(contest: Contest, points: Sequence[Point], machine: object) -> dict[str, Any]:
    """Everything, in what JSON can hold; times in seconds."""
    return {
        "machine": asdict(machine),  # type: ignore[call-overload]
        "model": contest.what,
        "without_peer": contest.reason,
        "points": [asdict(point) for point in points],
    }
