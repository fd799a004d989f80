"""A generator of calls: `make(seed)` is always the same call, in any precision."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard import Dropout, biases, masks, normalizers, scores
from tests.oracles.draws import Draw, Sizes
from tests.oracles.mask_makers import mask_of

LARGE = 8.0  # a sink that takes nearly all of the weight
STATISTICS = ("lse", "entropy", "peak", "peak_at", "received", "distance", "max_logit")


@dataclass
class Specimen:
    """One call: inputs, the spec, every float tensor by name, and what is asked about it."""

    seed: int
    sizes: Sizes
    inputs: list[Tensor]
    spec: dict[str, Any]
    leaves: dict[str, Tensor]
    exact: bool  # logits are small whole numbers or halves: no engine may round them
    placed: bool  # False: more queries than keys and no start, so nothing may look at positions
    through: tuple[str, ...]  # statistics that the gradients come through, beside the output
    second: bool
    tiles: tuple[int, int] | None

    def __str__(self) -> str:
        shapes = ", ".join(f"{name} {tuple(leaf.shape)}" for name, leaf in self.leaves.items())
        shown = {name: _shown(value) for name, value in self.spec.items()}
        parts = "\n".join(f"    {name}={value}," for name, value in shown.items())
        how = f"through={self.through}, second={self.second}, tiles={self.tiles}, exact={self.exact}"
        return f"tests.oracles.specs.make({self.seed})\n    {shapes}\n{parts}\n    {how}"


def _shown(value: object) -> str:
    return f"<{tuple(value.shape)}>" if isinstance(value, Tensor) and value.numel() > 8 else repr(value)


def make(seed: int, dtype: torch.dtype = torch.float64) -> Specimen:
    """The call of that seed."""
    draw = Draw(seed, dtype)
    name, maker = list(SCORES.items())[seed % len(SCORES)]
    normalizer = draw.pick("softmax", "softmax", "softmax", "sink", "sink", "sink tensor", "hard", "sparsemax")
    exact = name in EXACT and draw.often(0.5 if normalizer in ("hard", "sparsemax") else 0.1)
    draw.whole, draw.scale = exact, draw.pick(0.3, 1.0, 1.0, 2.0)
    size = sizes(draw, name in TWO_WIDTHS)
    query_start = place(draw, size)
    inputs = tensors(draw, size)
    mask = mask_of(draw, size)
    bias = bias_of(draw, size)
    score = maker(draw, size)
    placed = size.queries <= size.keys or looks(score, mask, bias) or draw.often(0.5)
    if not placed:
        query_start = None
    elif query_start is None and (size.queries > size.keys or (size.queries != size.keys and ragged(mask))):
        query_start = size.low
    spec = {
        "score": score,
        "mask": mask,
        "bias": bias,
        "temperature": temperature(draw, size),
        "normalizer": NORMALIZERS[normalizer](draw, size),
        "dropout": Dropout(draw.pick(0.1, 0.5, 0.9), draw.random.randrange(-(2**63), 2**64))
        if draw.often(0.3)
        else 0.0,
        "query_start": query_start,
    }
    statistics = ("lse", "entropy") if normalizer.startswith(("softmax", "sink")) else ("entropy",)
    through = tuple(statistic for statistic in statistics if draw.often(0.4))
    small = draw.pick(None, (4, 8), (3, 5), (1, 3), (8, 4))
    tiles = small if size.keys < 100 else draw.pick(None, (16, 64))
    return Specimen(seed, size, inputs, spec, draw.leaves, exact, placed, through, draw.often(0.25), tiles)


def sizes(draw: Draw, two_widths: bool) -> Sizes:
    """Small sizes; now and then a 0, or lengths that cross the native engine's blocks of queries and keys."""
    random = draw.random
    leading = draw.pick((), (1,), (2,), (2,), (3,), (2, 2), (1, 3))
    size = Sizes(
        leading,
        kv_heads=random.randint(1, 3),
        group=draw.pick(1, 1, 2, 3),
        queries=random.randint(1, 14),
        keys=random.randint(1, 18),
        d_query=draw.pick(1, 2, 3, 5, 8, 9),
        d_key=0,
        d_value=draw.pick(1, 2, 4, 7, 8, 11),
    )
    if draw.often(0.1):
        size.leading, size.kv_heads, size.group = draw.pick((), (1,)), 1, draw.pick(1, 2)
        size.queries, size.keys, size.d_query = random.randint(30, 60), random.randint(200, 290), draw.pick(2, 4)
    elif draw.often(0.06):
        setattr(size, draw.pick("queries", "keys", "d_query", "d_value", "kv_heads"), 0)
    elif draw.often(0.02) and leading:
        size.leading = (*leading[:-1], 0)
    size.d_key = draw.pick(1, 3, 4, 6) if two_widths and draw.often(0.5) else size.d_query
    return size


def place(draw: Draw, size: Sizes) -> int | Tensor | None:
    """Where the queries start: by default, at a number, or at one for each batch row."""
    ahead, kind = size.keys - size.queries, draw.pick("default", "default", "int", "int", "far", "rows", "rows")
    found: int | Tensor | None = None
    if kind == "rows":
        found = draw.integers(-3, size.keys + 2, size.batch)
    elif kind == "far":
        found = draw.pick(-40, -7, size.keys + 5, 1000)
    elif kind == "int":
        found = draw.random.randint(-3, max(ahead, 0) + 3)
    start = ahead if found is None else found
    positions = start.tolist() or [0] if isinstance(start, Tensor) else [start]
    size.low, size.high = min(positions), max(positions) + size.queries
    return found


def looks(score: Any, mask: Any, bias: Any) -> bool:
    """Whether the call depends on positions; only what surely does not counts as no."""
    while isinstance(score, scores.SoftCapped):
        score = score.score
    content = not isinstance(score, scores.Relative | scores.Modified)
    return not (content and (mask is None or isinstance(mask, Tensor)) and (bias is None or isinstance(bias, Tensor)))


def ragged(mask: Any) -> bool:
    """Whether there are Lengths in a mask."""
    if isinstance(mask, masks.And | masks.Or):
        return ragged(mask.left) or ragged(mask.right)
    return ragged(mask.mask) if isinstance(mask, masks.Not) else isinstance(mask, masks.Lengths)


def tensors(draw: Draw, size: Sizes) -> list[Tensor]:
    """Query, key and value; leading axes may be 1 or missing in some of them where another has them."""
    shapes = [
        [size.heads, size.queries, size.d_query],
        [size.kv_heads, size.keys, size.d_key],
        [size.kv_heads, size.keys, size.d_value],
    ]
    whole = draw.random.randrange(3)  # the one that has all leading axes
    found = []
    for number, (name, shape) in enumerate(zip(("query", "key", "value"), shapes, strict=True)):
        leading = list(size.leading)
        if number != whole and draw.often(0.3):
            leading = [axis if draw.often(0.5) else 1 for axis in leading]
            leading = leading[draw.random.randint(0, len(leading)) :]
        if not leading and shape[0] == 1 and (not size.leading or number != whole) and draw.often(0.5):
            shape = shape[1:]
        found.append(draw.normal(name, *leading, *shape))
    if draw.often(0.2) and found[0].numel():
        with torch.no_grad():
            found[0][..., 0, :] = 0.0  # Cosine: a zero vector scores 0
    return found


# ---------------------------------------------------------------------------------------------------------- scores

Maker = Callable[[Draw, Sizes], Any]


def lanes(draw: Draw, heads: int) -> tuple[int, ...]:
    """Heads in front of a parameter, or none."""
    found: tuple[int, ...] = draw.pick((), (heads,), (heads,))
    return found


def general(draw: Draw, size: Sizes) -> scores.Score:
    return scores.General(draw.normal("weight", *lanes(draw, size.heads), size.d_query, size.d_key, scale=0.5))


def hidden(draw: Draw, size: Sizes) -> dict[str, Tensor]:
    units = draw.pick(1, 3, 4, 5)
    return {
        "w_query": draw.normal("w_query", *lanes(draw, size.heads), units, size.d_query, scale=0.7),
        "w_key": draw.normal("w_key", *lanes(draw, size.kv_heads), units, size.d_key, scale=0.7),
        "v": draw.normal("v", *lanes(draw, size.heads), units),
    }


def additive(draw: Draw, size: Sizes) -> scores.Score:
    return scores.Additive(**hidden(draw, size))


def mlp(activation: str) -> Maker:
    def maker(draw: Draw, size: Sizes) -> scores.Score:
        parameters = hidden(draw, size)
        b = draw.normal("b", *lanes(draw, size.heads), parameters["v"].shape[-1]) if draw.often(0.7) else None
        return scores.ConcatMLP(**parameters, b=b, activation=activation)

    return maker


def shaw(draw: Draw, size: Sizes) -> scores.Score:
    rows = 2 * draw.pick(0, 1, 3, 30) + 1
    scale = draw.pick(1.0, None, 0.4)
    return scores.Relative(draw.normal("keys", *lanes(draw, size.heads), rows, size.d_key, scale=0.5), scale=scale)


def transformer_xl(draw: Draw, size: Sizes) -> scores.Score:
    rows = 2 * draw.pick(0, 2, 5, 30) + 1
    table = draw.normal("keys", *lanes(draw, size.heads), rows, size.d_key, scale=0.5)
    u, v = (draw.normal(name, *lanes(draw, size.heads), size.d_key) if draw.often(0.8) else None for name in "uv")
    return scores.Relative(table, u, v, None)


def soft_capped(draw: Draw, size: Sizes) -> scores.Score:
    inner = draw.pick(scaled, additive, shaw, transformer_xl, lambda draw, size: scores.Dot(), mlp("gelu"))
    return scores.SoftCapped(inner(draw, size), draw.pick(0.5, 2.0, 50.0))


def scaled(draw: Draw, size: Sizes) -> scores.Score:
    return scores.ScaledDot(draw.pick(0.5, 0.25, -1.0) if draw.whole else draw.pick(None, None, 0.3, -0.5))


def modified(draw: Draw, size: Sizes) -> scores.Score:
    inner = draw.pick(scaled, additive, shaw, soft_capped)(draw, size)
    if draw.often(0.4):
        return scores.Modified(inner, lambda s, b, h, i, j: torch.where((i + 2 * j + b + h) % 3 == 0, -torch.inf, s))
    slope = draw.normal("slope", size.heads)
    return scores.Modified(inner, lambda s, b, h, i, j: s + torch.sin(s) * slope[h] + 0.01 * (i - j) * (b + 1))


SCORES: dict[str, Maker] = {
    "scaled": scaled,
    "additive": additive,
    "dot": lambda draw, size: scores.Dot(),
    "mlp tanh": mlp("tanh"),
    "general": general,
    "cosine": lambda draw, size: scores.Cosine(draw.pick(1.0, 4.0, -2.0)),
    "mlp relu": mlp("relu"),
    "shaw": shaw,
    "mlp gelu": mlp("gelu"),
    "transformer-xl": transformer_xl,
    "mlp sigmoid": mlp("sigmoid"),
    "soft-capped": soft_capped,
    "modified": modified,
}
TWO_WIDTHS = ("general", "additive", "mlp tanh", "mlp relu", "mlp gelu", "mlp sigmoid")
EXACT = ("dot", "scaled")


# ------------------------------------------------------------------------------------ biases, normalizers, temperature


def bias_of(draw: Draw, size: Sizes) -> Any:
    """None, a tensor, one bias or a sum of some."""
    kind = draw.pick("none", "none", "tensor", "one", "one", "one", "sum")
    known = ["distance", "dense", "hiding"] if draw.whole else [*BIASES]
    if kind == "none" or size.heads == 0:
        return None
    if kind == "tensor":
        leading = [axis if draw.often(0.7) else 1 for axis in size.leading]
        return draw.normal("bias", *leading, size.heads, size.queries, size.keys)
    found = BIASES[draw.pick(*known)](draw, size)
    for _ in range(draw.pick(1, 2) if kind == "sum" else 0):
        found = found + BIASES[draw.pick(*known)](draw, size)
    return found


def t5(draw: Draw, size: Sizes) -> biases.Bias:
    both = draw.often(0.5)
    buckets, most = draw.pick((4, 8), (8, 9), (32, 128))
    heads = draw.pick(1, size.heads, size.heads)
    return biases.T5(draw.normal("t5", buckets, heads, hide=draw.pick(0.0, 0.0, 0.2)), both, most)


def distance(draw: Draw, size: Sizes) -> biases.Bias:
    shape = (*draw.pick((), (size.heads,), (1,)), 2 * draw.pick(0, 1, 4, 30) + 1)
    return biases.Distance(draw.normal("distance", *shape, hide=draw.pick(0.0, 0.0, 0.2)))


def dense_bias(hide: float) -> Maker:
    def maker(draw: Draw, size: Sizes) -> biases.Bias:
        lead = draw.pick((), (size.heads,), (1,), (size.batch, 1), (size.batch, size.heads))
        rows, columns = draw.pick((size.queries, size.keys), (size.queries, size.keys), (1, size.keys))
        return biases.Dense(draw.normal("dense", *lead, rows, columns, hide=hide))

    return maker


BIASES: dict[str, Maker] = {
    "alibi": lambda draw, size: biases.ALiBi(size.heads),
    "t5": t5,
    "distance": distance,
    "dense": dense_bias(0.0),
    "hiding": dense_bias(0.3),
}

NORMALIZERS: dict[str, Maker] = {
    "softmax": lambda draw, size: normalizers.Softmax(),
    "sink": lambda draw, size: normalizers.Softmax(draw.pick(0.0, -1.5, 2.25, LARGE)),
    "sink tensor": lambda draw, size: normalizers.Softmax(
        draw.normal("sink", *draw.pick((), (1,), (size.heads,), (size.heads,)), scale=2.0)
    ),
    "hard": lambda draw, size: normalizers.Hard(),
    "sparsemax": lambda draw, size: normalizers.Sparsemax(),
}


def temperature(draw: Draw, size: Sizes) -> float | Tensor:
    kind = draw.pick("one", "one", "number", "learned", "heads")
    if kind == "one":
        return 1.0
    if kind == "number":
        return float(draw.pick(0.5, 2.0, 4.0) if draw.whole else draw.pick(0.3, 0.7, 2.5))
    return draw.positive("temperature", *((size.heads,) if kind == "heads" else draw.pick((), (1,))))
