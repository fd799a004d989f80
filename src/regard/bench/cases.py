"""The cases of the benchmark: sizes, inputs and the call of `attend`; a name, a pattern or sizes choose among them."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import linear

from regard.spec import biases, masks, scores
from regard.spec.dropout import Dropout
from regard.spec.masks.count import visible_pairs
from regard.spec.masks.extent import plane_of
from regard.spec.plane import Plane

STATISTICS = ("lse", "entropy", "peak", "peak_at", "distance", "max_logit")
BUCKETS = 32  # of T5's table

Inputs = tuple[Tensor, ...]
Work = Callable[[Inputs], Tensor]


@dataclass(frozen=True)
class Shape:
    """The sizes of a call; `n` counts the keys, and the queries too unless they are given."""

    n: int
    d: int = 64
    heads: int = 8
    kv_heads: int | None = None
    queries: int | None = None
    wider: int = 1  # width of the values / width of the keys
    batch: int = 1
    dtype: torch.dtype = torch.float32
    device: str = "cpu"

    @property
    def d_value(self) -> int:
        """Width of the values."""
        return self.d * self.wider

    @property
    def rows(self) -> int:
        """Queries."""
        return self.n if self.queries is None else self.queries

    @property
    def key_heads(self) -> int:
        """Heads of keys and values."""
        return self.heads if self.kv_heads is None else self.kv_heads


@dataclass(frozen=True)
class Workload:
    """One call of `attend`. Inputs are query, key and value, then T5's table or the weights of an additive score.

    A `layer` has a Linear before and after; its inputs are the tokens and both weights.
    """

    family: str
    what: str
    shape: Shape
    mask: masks.Mask = masks.Full()
    bias: Literal["alibi", "t5"] | None = None
    dropout: float = 0.0
    activation: str | None = None  # of an additive score with as many hidden units as a query has numbers
    aux: tuple[str, ...] = ()
    backward: bool = False
    cold: bool = False  # every call reads keys and values that no cache holds
    layer: bool = False
    beside: str | None = None  # the plain case of ours that this one is also compared with

    @property
    def name(self) -> str:
        """Family, length and width."""
        return f"{self.family}-{self.shape.n}-{self.shape.d}"

    def sized(self, **sizes: Any) -> "Workload":
        """The case with other sizes; those that are None stay as they are."""
        return replace(self, shape=replace(self.shape, **{k: v for k, v in sizes.items() if v is not None}))

    def spec(self, inputs: Inputs) -> dict[str, Any]:
        """The keywords of `attend`."""
        keywords: dict[str, Any] = {}
        if not isinstance(self.mask, masks.Full):
            keywords["mask"] = self.mask
        if self.bias is not None:
            keywords["bias"] = biases.ALiBi(self.shape.heads) if self.bias == "alibi" else biases.T5(inputs[3])
        if self.dropout:
            keywords["dropout"] = Dropout(self.dropout, 1)
        if self.activation is not None:
            w_query, w_key, v = inputs[3:]
            keywords["score"] = scores.ConcatMLP(w_query, w_key, None, v, activation=self.activation)
        return keywords

    def inputs(self, seed: int = 0) -> Inputs:
        """Random inputs, the same for every contender."""
        shape = self.shape
        normal = partial(torch.randn, generator=torch.Generator().manual_seed(seed))
        if self.layer:
            width = shape.heads * shape.d
            tokens = normal(shape.batch, shape.n, width)
            before, after = (normal(rows, width) / width**0.5 for rows in (3 * width, width))
            inputs = [tensor.to(shape.dtype) for tensor in (tokens, before, after)]
        else:
            query = normal(shape.batch, shape.heads, shape.rows, shape.d)
            key = normal(shape.batch, shape.key_heads, shape.n, shape.d)
            value = normal(shape.batch, shape.key_heads, shape.n, shape.d_value)
            inputs = [tensor.to(shape.dtype) for tensor in (query, key, value)]
            if self.bias == "t5":
                inputs.append(normal(BUCKETS, shape.heads))
            if self.activation is not None:
                inputs += [normal(shape.d, shape.d) / shape.d**0.5 for _ in range(2)]
                inputs.append(normal(shape.d) / shape.d**0.5)
        return tuple(tensor.to(shape.device).requires_grad_(self.backward) for tensor in inputs)

    def output_gradient(self) -> Tensor | None:
        """The gradient of the output that is sent back; None for a forward pass."""
        if not self.backward:
            return None
        shape, draw = self.shape, torch.Generator().manual_seed(1)
        gradient = torch.randn(shape.batch, shape.heads, shape.rows, shape.d_value, generator=draw)
        return gradient.to(shape.device, shape.dtype)

    def plane(self) -> Plane:
        """All pairs of the call."""
        shape = self.shape
        plane = plane_of(self.mask, shape.rows, shape.n, shape.batch, shape.heads, shape.n - shape.rows)
        return replace(plane, device=torch.device(shape.device))

    def flops(self) -> float:
        """Useful operations: two per multiply-add over the visible pairs; five more products backward."""
        shape = self.shape
        pairs, _ = visible_pairs(self.mask, self.plane())
        widths = 4 * shape.d + 3 * shape.d_value if self.backward else shape.d + shape.d_value
        width = shape.heads * shape.d
        around = 2.0 * shape.batch * shape.rows * width * 4 * width if self.layer else 0.0
        return 2.0 * pairs * widths + around

    def bytes_read(self) -> int:
        """Size of keys and values."""
        shape = self.shape
        return shape.batch * shape.key_heads * shape.n * (shape.d + shape.d_value) * shape.dtype.itemsize

    def sets(self, cache: int) -> int:
        """How many sets of inputs take turns: one, or enough that together they exceed twice the cache."""
        return max(2, math.ceil(2 * cache / self.bytes_read()) + 1) if self.cold else 1

    def around(self, attention: Work) -> Work:
        """The work to be timed: attention itself, or the layer around it."""
        if not self.layer:
            return attention

        def layer(inputs: Inputs) -> Tensor:
            tokens, before, after = inputs
            query, key, value = linear(tokens, before).unflatten(-1, (3, self.shape.heads, -1)).permute(2, 0, 3, 1, 4)
            return linear(attention((query, key, value)).transpose(1, 2).flatten(-2), after)

        return layer


def _all() -> Iterable[Workload]:
    causal = masks.Causal()
    for n in (1024, 4096):
        for d in (64, 128):
            yield Workload("dense", "every query sees every key", Shape(n, d))
    for n in (1024, 4096):
        for d in (64, 128):
            yield Workload("causal", "no query sees the future", Shape(n, d), causal)
    yield Workload("window", "128 keys on each side", Shape(4096), masks.Window(128, 128))
    for n in (16384, 32768, 65536):
        yield Workload("past", "256 keys before, causal, one head", Shape(n, heads=1), masks.Window(256, 0))
    yield Workload("alibi", "ALiBi under a causal mask", Shape(4096), causal, "alibi", beside="causal")
    yield Workload("dropout", "dropout 0.1", Shape(2048), dropout=0.1)
    yield Workload("dropout-train", "dropout 0.1, forward and backward", Shape(2048), dropout=0.1, backward=True)
    yield Workload("wide", "values twice as wide as keys", Shape(2048, wider=2))
    for n, d in ((4096, 64), (2048, 128)):
        yield Workload("train", "forward and backward", Shape(n, d), backward=True)
        yield Workload("train-causal", "forward and backward, causal", Shape(n, d), causal, backward=True)
    yield Workload("t5-train", "forward and backward, learned T5 table", Shape(2048), bias="t5", backward=True)
    yield Workload("decode", "one query, 32 heads over 8, cold caches", Shape(8192, 128, 32, 8, 1), cold=True)
    yield Workload("bfloat16", "every query sees every key, bfloat16", Shape(4096, dtype=torch.bfloat16))
    yield Workload("small", "batch of 32, 12 heads", Shape(128, heads=12, batch=32))
    yield Workload("tiny", "one tiny call", Shape(16, 16, heads=2))
    yield Workload("tiny-train", "one tiny call with gradients", Shape(16, 16, heads=2), backward=True)
    yield Workload("statistics", "every row statistic in aux", Shape(4096), aux=STATISTICS, beside="dense")
    yield Workload("received", "what every key receives, in aux", Shape(4096), aux=("received",), beside="dense")
    yield Workload("layer", "Linear, attention, Linear", Shape(1024), layer=True)
    for d in (32, 64, 128):
        yield Workload("additive", f"Bahdanau's score, {d} hidden units", Shape(1024, d, heads=1), activation="tanh")
    one_head = Shape(1024, heads=1)
    for name in ("relu", "gelu", "sigmoid"):
        yield Workload(name, f"Luong's concat with {name}", one_head, activation=name)
    what = "Bahdanau's score, forward and backward"
    yield Workload("additive-train", what, one_head, activation="tanh", backward=True)


CASES = {case.name: case for case in _all()}
FAMILIES = tuple(dict.fromkeys(case.family for case in CASES.values()))
PLOTTED = ("dense-1024-64", "causal-1024-64")
LENGTHS = (256, 512, 1024, 2048, 4096)  # over which a plot runs


def choose(patterns: Sequence[str], lengths: Sequence[int] = (), **sizes: Any) -> list[Workload]:
    """The cases whose name or family fits a pattern, at these lengths and sizes if any are given."""
    chosen = set()
    for pattern in patterns:
        fitting = {
            case.name for case in CASES.values() if fnmatchcase(case.name, pattern) or fnmatchcase(case.family, pattern)
        }
        if not fitting:
            raise ValueError(f"no case {pattern}; the cases are {', '.join(FAMILIES)} (`regard bench --list`)")
        chosen |= fitting
    return _at([case for case in CASES.values() if case.name in chosen or not patterns], lengths, sizes)


def own(mask: str, lengths: Sequence[int], backward: bool = False, **sizes: Any) -> list[Workload]:
    """Plain attention of the user's sizes: `mask` is full, causal or window:BEFORE,AFTER."""
    case = Workload("own", f"{mask} mask{', forward and backward' * backward}", Shape(1024), backward=backward)
    if mask == "causal":
        case = replace(case, mask=masks.Causal())
    elif mask.startswith("window:"):
        try:
            before, _, after = mask.removeprefix("window:").partition(",")
            width = int(before), int(after or before)
        except ValueError:
            raise ValueError(f"--mask window:BEFORE,AFTER takes two whole numbers, got {mask!r}") from None
        case = replace(case, mask=masks.Window(*width))
    elif mask != "full":
        raise ValueError(f"--mask must be full, causal or window:BEFORE,AFTER, got {mask!r}")
    return _at([case], lengths, sizes)


def _at(cases: Sequence[Workload], lengths: Sequence[int], sizes: dict[str, Any]) -> list[Workload]:
    """Every case at every length, without those that are equal."""
    sized = (case.sized(n=n, **sizes) for case in cases for n in lengths or (case.shape.n,))
    by_name: dict[str, Workload] = {}
    for case in sized:
        by_name.setdefault(case.name, case)
    return list(by_name.values())
