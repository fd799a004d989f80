"""What tests and benchmarks share: named cases, derived error budgets, an allocation hook, small tiles.

A case names its mechanisms and sizes and builds the arguments of `attend`; the same list serves correctness,
gradients, support and speed, so a new engine needs no new test.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from regard.engine.tiled import tiles
from regard.spec import biases, masks, normalizers, scores
from regard.spec.dropout import Dropout


@dataclass(frozen=True)
class Sizes:
    """The sizes of one case."""

    batch: int = 2
    kv_heads: int = 2
    group: int = 3
    queries: int = 11
    keys: int = 13
    d_key: int = 5
    d_value: int = 7
    query_start: int = 2

    @property
    def heads(self) -> int:
        """Query heads."""
        return self.kv_heads * self.group


@dataclass
class Draw:
    """Random numbers, the same for every precision: drawn in float64, rounded to `through`, given as `dtype`."""

    seed: int
    dtype: torch.dtype = torch.float64
    through: torch.dtype = torch.float64
    scale: float = 1.0
    leaves: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.seed)

    def normal(self, name: str, *shape: int) -> Tensor:
        """A leaf that needs a gradient."""
        drawn = torch.randn(shape, generator=self.generator, dtype=torch.float64, device="cpu") * self.scale
        self.leaves[name] = drawn.to(self.through).to(self.dtype).requires_grad_()
        return self.leaves[name]

    def positive(self, name: str, *shape: int) -> Tensor:
        """The same between 0.5 and 1.5."""
        drawn = torch.rand(shape, generator=self.generator, dtype=torch.float64, device="cpu") + 0.5
        self.leaves[name] = drawn.to(self.through).to(self.dtype).requires_grad_()
        return self.leaves[name]

    def hiding(self, name: str, *shape: int) -> Tensor:
        """The same with −inf for three in ten."""
        with torch.no_grad():
            return self.normal(name, *shape).masked_fill_(self.chance(0.3, *shape), -torch.inf)

    def chance(self, share: float, *shape: int) -> Tensor:
        """True with that probability."""
        return torch.rand(shape, generator=self.generator, device="cpu", dtype=torch.float32) < share

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Integers low … high − 1."""
        return torch.randint(low, high, shape, generator=self.generator, device="cpu")


def _mlp(activation: str) -> Callable[[Sizes, Draw], scores.Score]:
    def make(size: Sizes, draw: Draw) -> scores.Score:
        return scores.ConcatMLP(
            draw.normal("w_query", size.heads, 6, size.d_key),
            draw.normal("w_key", 6, size.d_key),
            draw.normal("b", 6),
            draw.normal("v", size.heads, 6),
            activation,
        )

    return make


def _relative(size: Sizes, draw: Draw) -> scores.Score:
    u, v = draw.normal("u", size.heads, size.d_key), draw.normal("v", size.heads, size.d_key)
    return scores.Relative(draw.normal("keys", size.heads, 9, size.d_key), u, v, None)


def _modified(size: Sizes, draw: Draw) -> scores.Score:
    slope = draw.normal("slope", size.heads)
    return scores.Modified(
        scores.ScaledDot(), lambda s, b, h, i, j: s + torch.sin(s) * slope[h] + 0.1 * (i - j) * (b + 1)
    )


SCORES: dict[str, Callable[[Sizes, Draw], scores.Score]] = {
    "dot": lambda size, draw: scores.Dot(),
    "scaled": lambda size, draw: scores.ScaledDot(),
    "general": lambda size, draw: scores.General(draw.normal("weight", size.d_key, size.d_key)),
    "general per head": lambda size, draw: scores.General(draw.normal("weight", size.heads, size.d_key, size.d_key)),
    "cosine": lambda size, draw: scores.Cosine(4.0),
    "additive": lambda size, draw: scores.Additive(
        draw.normal("w_query", 6, size.d_key), draw.normal("w_key", size.kv_heads, 6, size.d_key), draw.normal("v", 6)
    ),
    "additive with a bias": lambda size, draw: scores.Additive(
        draw.normal("w_query", 6, size.d_key),
        draw.normal("w_key", 6, size.d_key),
        draw.normal("v", 6),
        draw.normal("b", size.heads, 6),
    ),
    "mlp tanh": _mlp("tanh"),
    "mlp relu": _mlp("relu"),
    "mlp gelu": _mlp("gelu"),
    "mlp sigmoid": _mlp("sigmoid"),
    "shaw": lambda size, draw: scores.Relative(draw.normal("keys", 7, size.d_key)),
    "transformer-xl": _relative,
    "soft-capped": lambda size, draw: scores.SoftCapped(scores.ScaledDot(), 2.0),
    "soft-capped additive": lambda size, draw: scores.SoftCapped(SCORES["additive"](size, draw), 1.5),
    "modified": _modified,
}

MASKS: dict[str, Callable[[Sizes, Draw], masks.Mask]] = {
    "full": lambda size, draw: masks.Full(),
    "causal": lambda size, draw: masks.Causal(),
    "window": lambda size, draw: masks.Window(3, 2),
    "past window": lambda size, draw: masks.Window(4, -1),
    "dilated": lambda size, draw: masks.Dilated(5, 3),
    "global": lambda size, draw: masks.Global(torch.tensor([0, 4], device="cpu", dtype=torch.int64)) | masks.local(3),
    "prefix": lambda size, draw: masks.Causal() | masks.Prefix(draw.integers(0, size.keys + 1, size.batch)),
    "documents": lambda size, draw: masks.Documents(
        draw.integers(0, 3, size.batch, size.keys), draw.integers(0, 4, size.batch, size.queries)
    ),
    "packed": lambda size, draw: (
        masks.Causal()
        & masks.Documents(
            draw.integers(0, 3, size.batch, size.keys).sort().values,
            draw.integers(0, 3, size.batch, size.queries).sort().values,
        )
    ),
    "lengths": lambda size, draw: masks.Lengths(draw.integers(0, size.keys + 1, size.batch)),
    "blocks": lambda size, draw: masks.Blocks(
        4, draw.chance(0.5, size.heads, 1 + (size.queries + abs(size.query_start)) // 4, 1 + size.keys // 4)
    ),
    "dense": lambda size, draw: masks.Dense(draw.chance(0.5, size.batch, 1, size.queries, size.keys)),
    "padding": lambda size, draw: masks.from_padding(draw.chance(0.6, size.batch, size.keys)),
    "where": lambda size, draw: masks.Where(lambda b, h, i, j: (i * 3 + j + b + h) % 4 != 0),
    "nothing": lambda size, draw: ~masks.Full(),
    "combined": lambda size, draw: (masks.Causal() & ~masks.Window(1, 1)) | masks.Prefix(2),
}

BIASES: dict[str, Callable[[Sizes, Draw], biases.Bias | None]] = {
    "none": lambda size, draw: None,
    "alibi": lambda size, draw: biases.ALiBi(size.heads),
    "t5": lambda size, draw: biases.T5(draw.normal("t5", 8, size.heads), True, 10),
    "t5 decoder": lambda size, draw: biases.T5(draw.normal("t5", 6, size.heads), False, 9),
    "distance": lambda size, draw: biases.Distance(draw.normal("distance", size.heads, 7)),
    "shared distance": lambda size, draw: biases.Distance(draw.normal("distance", 5)),
    "dense": lambda size, draw: biases.Dense(draw.normal("dense", size.heads, size.queries, size.keys)),
    "hiding": lambda size, draw: biases.Dense(draw.hiding("dense", size.batch, 1, size.queries, size.keys)),
    "sum": lambda size, draw: biases.ALiBi(size.heads) + biases.Distance(draw.normal("distance", 3)),
}

NORMALIZERS: dict[str, Callable[[Sizes, Draw], normalizers.Normalizer]] = {
    "softmax": lambda size, draw: normalizers.Softmax(),
    "sink": lambda size, draw: normalizers.Softmax(draw.normal("sink", size.heads)),
    "zero sink": lambda size, draw: normalizers.Softmax(0.0),
    "hard": lambda size, draw: normalizers.Hard(),
    "sparsemax": lambda size, draw: normalizers.Sparsemax(),
}

TEMPERATURES: dict[str, Callable[[Sizes, Draw], float | Tensor]] = {
    "1": lambda size, draw: 1.0,
    "0.7": lambda size, draw: 0.7,
    "per head": lambda size, draw: draw.positive("temperature", size.heads),
    "learned": lambda size, draw: draw.positive("temperature"),
}

PRODUCTS = ["dot", "scaled", "general", "general per head", "cosine", "soft-capped"]
SOFTMAXES = ["softmax", "sink", "zero sink"]


@dataclass(frozen=True)
class Case:
    """One call of attention by the names of its parts."""

    score: str = "scaled"
    mask: str = "full"
    bias: str = "none"
    normalizer: str = "softmax"
    temperature: str = "1"
    dropout: float = 0.0
    sizes: Sizes = Sizes()
    seed: int = 0

    @property
    def product(self) -> bool:
        """Whether the native engine's first kernel serves it."""
        return self.score in PRODUCTS and self.normalizer in SOFTMAXES

    def __str__(self) -> str:
        parts = [self.score, self.mask, self.bias, self.normalizer, self.temperature, self.dropout or ""]
        return (
            " ".join(str(part) for part in parts if part not in ("scaled", "full", "none", "softmax", "1", ""))
            or "plain"
        )

    def build(
        self, dtype: torch.dtype = torch.float64, through: torch.dtype | None = None, scale: float = 1.0
    ) -> tuple[list[Tensor], dict[str, Any], dict[str, Tensor]]:
        """[query, key, value], the keyword arguments of `attend`, and every leaf by name."""
        draw, size = Draw(self.seed, dtype, through or dtype, scale), self.sizes
        inputs = [
            draw.normal("query", size.batch, size.heads, size.queries, size.d_key),
            draw.normal("key", size.batch, size.kv_heads, size.keys, size.d_key),
            draw.normal("value", size.batch, size.kv_heads, size.keys, size.d_value),
        ]
        spec = {
            "score": SCORES[self.score](size, draw),
            "mask": MASKS[self.mask](size, draw),
            "bias": BIASES[self.bias](size, draw),
            "normalizer": NORMALIZERS[self.normalizer](size, draw),
            "temperature": TEMPERATURES[self.temperature](size, draw),
            "dropout": Dropout(self.dropout, self.seed) if self.dropout else 0.0,
            "query_start": size.query_start,
        }
        return inputs, spec, draw.leaves


def mechanisms() -> list[Case]:
    """One case for each name, the other parts plain or (for the seed's parity) not."""
    cases = [Case(score=name) for name in SCORES]
    cases += [Case(mask=name) for name in MASKS]
    cases += [Case(bias=name, mask="causal") for name in BIASES]
    cases += [Case(normalizer=name, mask="window") for name in NORMALIZERS]
    cases += [Case(temperature=name) for name in TEMPERATURES]
    cases += [Case(dropout=0.3), Case(dropout=0.3, normalizer="sparsemax"), Case(dropout=0.3, score="additive")]
    return cases


def error(actual: Tensor, truth: Tensor) -> float:
    """Root mean square of the difference, in float64. Fails on NaN, on infinities unlike the truth's, on shapes."""
    assert actual.shape == truth.shape, f"shapes differ: {tuple(actual.shape)} and {tuple(truth.shape)}"
    actual, truth = actual.detach().double(), truth.detach().double()
    assert not actual.isnan().any(), "NaN in the result"
    assert torch.equal(actual.isinf(), truth.isinf()), "infinities differ"
    assert torch.equal(actual[actual.isinf()], truth[truth.isinf()]), "infinities differ in sign"
    difference = (actual - truth)[~truth.isinf()]
    return float(difference.square().mean().sqrt()) if difference.numel() else 0.0


def assert_within(actual: Tensor, plain: Tensor, truth: Tensor, what: str = "result") -> None:
    """At most twice the error of the plain formula in the same precision, or one rounding of the largest value."""
    finite = truth.detach().double()
    finite = finite[finite.isfinite()]
    size = float(finite.abs().max()) if finite.numel() else 0.0
    allowed = max(2 * error(plain, truth), torch.finfo(actual.dtype).eps * size)
    actual_error = error(actual, truth)
    assert actual_error <= allowed, f"{what}: error {actual_error:.3g}, allowed {allowed:.3g}"


@contextmanager
def small_tiles(height: int = 4, segment: int = 8) -> Iterator[None]:
    """Cut small cases into many tiles."""
    before = tiles.HEIGHT, tiles.SEGMENT
    tiles.HEIGHT, tiles.SEGMENT = height, segment
    try:
        yield
    finally:
        tiles.HEIGHT, tiles.SEGMENT = before


def allocations(work: Callable[[], object]) -> list[int]:
    """The bytes that torch's CPU allocator gave out (above 0) and took back (below 0) during `work`, in order; what
    `work` returns is still held at the end."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as record:
        result = work()
    events = [event for event in record.profiler.kineto_results.events() if event.name() == "[memory]"]
    record.profiler = None  # the record refers to itself: gigabytes of events would wait for the garbage collector
    del result
    return [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]


def peak_bytes(work: Callable[[], object]) -> tuple[int, int]:
    """The most memory that torch's CPU allocator held at once during `work`, and what is still held at its end."""
    held = [0, *accumulate(allocations(work))]
    return max(held), held[-1]
