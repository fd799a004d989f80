"""`regard bench cache`: time per generated token with a KV cache and without, and that of transformers."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from regard.bench.measure import in_turns
from regard.inspection.records import Cell, Line, Lines, Panel, Table
from regard.nn import KVCache, LanguageModel, Rotary
from regard.progress import report

LENGTHS = (128, 256, 512, 1024, 2048)
WRITTEN = 8  # tokens of one sample


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
def measure(contest: Contest, length: int, budget: float, rounds: int | None) -> Point:
    """The times at one length: contenders in turns, the best of each."""
    draw = torch.Generator().manual_seed(length)
    vocabulary = contest.model.head.weight.shape[0]
    prompt = torch.randint(vocabulary, (1, length), generator=draw)
    more = torch.randint(vocabulary, (1, WRITTEN), generator=draw)
    model, peer = contest.model, contest.peer

    def best(step: str, works: dict[str, Callable[[], object]], budget: float) -> dict[str, float]:
        report(step, 0, 0, "step")
        return {name: timed.seconds for name, timed in in_turns(works, budget, rounds).items()}

    readers: dict[str, Callable[[], object]] = {
        "ours": lambda: model(prompt, cache=KVCache(), at=torch.tensor([length - 1]))
    }
    writers: dict[str, Callable[[], object]] = {"ours": _writer(model, prompt, more)}
    if peer is not None:
        readers["peer"] = lambda: peer(prompt, use_cache=True, logits_to_keep=1)
        writers["peer"] = _peer_writer(peer, prompt, more)
    reading = best("reading", readers, budget / 2)
    writing = {name: seconds / WRITTEN for name, seconds in best("writing", writers, budget / 2).items()}
    whole = torch.cat([prompt, more[:, :1]], 1)
    again = best("without a cache", {"ours": lambda: model(whole, at=torch.tensor([length]))}, budget / 4)
    return Point(length, reading["ours"], writing["ours"], again["ours"], reading.get("peer"), writing.get("peer"))


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
        if (written := cache.get_seq_length() - prompt.shape[1]) > 0:
            cache.crop(-written)
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
    peer = [point.peer_cached * 1e3 for point in points if point.peer_cached is not None]
    if len(peer) == len(points):
        lines.append(Line("transformers, with its cache", x, peer))
    return Panel([Lines(lines, "tokens before", "ms per token", "writing", log_x=True, log_y=True)], what)


def record(contest: Contest, points: Sequence[Point], machine: object) -> dict[str, Any]:
    """Everything as JSON values; times in seconds."""
    return {
        "machine": asdict(machine),  # type: ignore[call-overload]
        "model": contest.what,
        "without_peer": contest.reason,
        "points": [asdict(point) for point in points],
    }
