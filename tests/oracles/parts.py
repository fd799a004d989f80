"""The parts of `formula.py`: every score, mask and bias by its definition.

A part is known by the name of its class and read by its fields. Pairs are (batch, head, query, key), heads in one axis.
Products are written as products and sums, so that `rounding.Rounded` sees every one of them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass
class Pairs:
    """Sizes and indices of one call; b, h, i, j broadcast to (batch, head, query, key), i and j absolute."""

    batch: int
    heads: int
    group: int
    queries: int
    keys: int
    start: Tensor
    choices: list[Tensor] = field(default_factory=list)  # every decision that a rounding could turn around

    def __post_init__(self) -> None:
        self.b = torch.arange(self.batch).view(-1, 1, 1, 1)
        self.h = torch.arange(self.heads).view(1, -1, 1, 1)
        self.row = torch.arange(self.queries).view(1, 1, -1, 1)
        self.column = torch.arange(self.keys).view(1, 1, 1, -1)
        self.i = self.row + self.start.view(-1, 1, 1, 1)
        self.j = self.column

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.batch, self.heads, self.queries, self.keys


# ---------------------------------------------------------------------------------------------------------- scores


def score_of(score: Any, query: Tensor, key: Tensor, pairs: Pairs) -> Tensor:
    """(batch, head, query, key)."""
    return SCORES[type(score).__name__](score, query, key, pairs)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """a · b for all rows of a and of b."""
    return (a.unsqueeze(-2) * b.unsqueeze(-3)).sum(-1)


def by_head(parameter: Tensor, axes: int, heads: int, dtype: torch.dtype) -> Tensor:
    """A parameter with `axes` axes of its own, as (1 or head, …)."""
    parameter = parameter.to(dtype)
    parameter = parameter if parameter.ndim > axes else parameter[None]
    return parameter if parameter.shape[0] == 1 else parameter.expand(heads, *parameter.shape[1:])


def scaled(score: Any, query: Tensor, key: Tensor, pairs: Pairs) -> Tensor:
    return dot(query, key) * scale_of(score.scale, query)


def scale_of(scale: float | None, query: Tensor) -> float:
    return 1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale


def general(score: Any, query: Tensor, key: Tensor, pairs: Pairs) -> Tensor:
    weight = by_head(score.weight, 2, pairs.heads, query.dtype)
    return dot((query.unsqueeze(-1) * weight.unsqueeze(-3)).sum(-2), key)


def cosine(score: Any, query: Tensor, key: Tensor, pairs: Pairs) -> Tensor:
    def unit(x: Tensor) -> Tensor:
        square = (x * x).sum(-1, keepdim=True)
        return torch.where(square > 0, x / torch.where(square > 0, square, 1.0).sqrt(), 0.0)

    found: Tensor = dot(unit(query), unit(key)) * score.scale
    return found


def hidden_layer(score: Any, query: Tensor, key: Tensor, pairs: Pairs) -> Tensor:
    w_query = by_head(score.w_query, 2, pairs.heads, query.dtype)
    w_key = by_head(score.w_key, 2, pairs.heads // pairs.group, query.dtype)
    if w_key.shape[0] > 1:
        w_key = w_key[torch.arange(pairs.heads) // pairs.group]
    a = (query.unsqueeze(-2) * w_query.unsqueeze(-3)).sum(-1)
    b = (key.unsqueeze(-2) * w_key.unsqueeze(-3)).sum(-1)
    inside = a.unsqueeze(-2) + b.unsqueeze(-3)
    if getattr(score, "b", None) is not None:
        inside = inside + by_head(score.b, 1, pairs.heads, query.dtype)[:, None, None]
    name = getattr(score, "activation", "tanh")
    if name == "relu":
        pairs.choices.append(inside.detach() > 0)
    return (ACTIVATIONS[name](inside) * by_head(score.v, 1, pairs.heads, query.dtype)[:, None, None]).sum(-1)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": lambda x: torch.where(x > 0, x, 0.0),
    "gelu": lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
    "sigmoid": lambda x: 0.5 * (1 + torch.tanh(0.5 * x)),
}


def relative(score: Any, query: Tensor, key: Tensor, pairs: Pairs) -> Tensor:
    table = by_head(score.keys, 2, pairs.heads, query.dtype)
    reach = (table.shape[-2] - 1) // 2
    entry = (pairs.i - pairs.j).clamp(-reach, reach) + reach
    head = torch.zeros(1, dtype=torch.long) if table.shape[0] == 1 else pairs.h
    vectors = table[head, entry]  # (1 or batch, 1 or head, query, key, width)

    def shifted(by: Tensor | None) -> Tensor:
        return query if by is None else query + by_head(by, 1, pairs.heads, query.dtype).unsqueeze(-2)

    place = (shifted(score.v).unsqueeze(-2) * vectors).sum(-1)
    return (dot(shifted(score.u), key) + place) * scale_of(score.scale, query)


def soft_capped(score: Any, query: Tensor, key: Tensor, pairs: Pairs) -> Tensor:
    capped: Tensor = score.cap * torch.tanh(score_of(score.score, query, key, pairs) / score.cap)
    return capped


def modified(score: Any, query: Tensor, key: Tensor, pairs: Pairs) -> Tensor:
    inner = score_of(score.score, query, key, pairs)
    changed: Tensor = score.fn(inner, pairs.b, pairs.h, pairs.i, pairs.j)
    return changed


SCORES: dict[str, Callable[[Any, Tensor, Tensor, Pairs], Tensor]] = {
    "Dot": lambda score, query, key, pairs: dot(query, key),
    "ScaledDot": scaled,
    "General": general,
    "Cosine": cosine,
    "Additive": hidden_layer,
    "ConcatMLP": hidden_layer,
    "Relative": relative,
    "SoftCapped": soft_capped,
    "Modified": modified,
}


# ----------------------------------------------------------------------------------------------------------- masks


def visible_pairs(mask: Any, pairs: Pairs, leading: torch.Size) -> Tensor:
    """True where the pair is visible."""
    if mask is None:
        return torch.ones(pairs.shape, dtype=torch.bool)
    if isinstance(mask, str):
        assert mask == "causal"
        return pairs.j <= pairs.i
    if isinstance(mask, Tensor):
        return table_of(mask, pairs, leading)
    return MASKS[type(mask).__name__](mask, pairs)


def table_of(tensor: Tensor, pairs: Pairs, leading: torch.Size) -> Tensor:
    """A tensor that broadcasts to (…, head, query, key), its batch axes in one."""
    wanted = (*leading, *pairs.shape[1:])
    return tensor.expand(wanted).reshape(pairs.shape) if wanted else tensor


def of_rows(numbers: int | Tensor) -> Tensor:
    return torch.as_tensor(numbers).reshape(-1, 1, 1, 1)


def window(mask: Any, pairs: Pairs) -> Tensor:
    offset = pairs.j - pairs.i
    seen = torch.ones_like(offset, dtype=torch.bool)
    if mask.before is not None:
        seen = seen & (-offset <= mask.before)
    if mask.after is not None:
        seen = seen & (offset <= mask.after)
    return seen


def dilated(mask: Any, pairs: Pairs) -> Tensor:
    offset = pairs.i - pairs.j
    found: Tensor = (offset % mask.step == 0) & (offset.abs() <= mask.step * (mask.width // 2))
    return found


def among(positions: Tensor, chosen: Tensor) -> Tensor:
    return (positions.unsqueeze(-1) == chosen).any(-1)


def documents(mask: Any, pairs: Pairs) -> Tensor:
    def at(ids: Tensor, places: Tensor) -> Tensor:
        """(1 or batch, 1, …) ids at places of the same rank."""
        ids = ids if ids.ndim == 2 else ids[None]
        row = torch.zeros_like(pairs.b) if ids.shape[0] == 1 else pairs.b
        return ids[row, places]

    ids = mask.key_ids if mask.query_ids is None else mask.query_ids
    per_row = mask.query_ids is not None and mask.query_ids.shape[-1] == pairs.queries
    return at(ids, pairs.row if per_row else pairs.i) == at(mask.key_ids, pairs.j)


def blocks(mask: Any, pairs: Pairs) -> Tensor:
    layout = mask.layout[(None,) * (4 - mask.layout.ndim)]
    b = pairs.b if layout.shape[0] > 1 else torch.zeros_like(pairs.b)
    h = pairs.h if layout.shape[1] > 1 else torch.zeros_like(pairs.h)
    found: Tensor = layout[b, h, pairs.i // mask.size, pairs.j // mask.size]
    return found


MASKS: dict[str, Callable[[Any, Pairs], Tensor]] = {
    "Full": lambda mask, pairs: torch.ones(1, 1, 1, 1, dtype=torch.bool),
    "Causal": lambda mask, pairs: pairs.j <= pairs.i,
    "Window": window,
    "Dilated": dilated,
    "Global": lambda mask, pairs: among(pairs.i, mask.positions) | among(pairs.j, mask.positions),
    "Prefix": lambda mask, pairs: pairs.j < of_rows(mask.p),
    "Lengths": lambda mask, pairs: pairs.j < of_rows(mask.lengths),
    "Documents": documents,
    "Blocks": blocks,
    "Dense": lambda mask, pairs: mask.tensor[(None,) * (4 - mask.tensor.ndim)],
    "Where": lambda mask, pairs: mask.fn(pairs.b, pairs.h, pairs.i, pairs.j),
    "RowWhere": lambda mask, pairs: mask.fn(pairs.b, pairs.h, pairs.row, pairs.column),
    "And": lambda mask, pairs: both(mask, pairs).all(0),
    "Or": lambda mask, pairs: both(mask, pairs).any(0),
    "Not": lambda mask, pairs: MASKS[type(mask.mask).__name__](mask.mask, pairs).logical_not(),
}


def both(mask: Any, pairs: Pairs) -> Tensor:
    sides = (MASKS[type(side).__name__](side, pairs).expand(pairs.shape) for side in (mask.left, mask.right))
    return torch.stack(tuple(sides))


# ---------------------------------------------------------------------------------------------------------- biases


def terms_of(bias: Any) -> list[Any]:
    if bias is None:
        return []
    return list(bias.parts) if type(bias).__name__ == "Total" else [bias]


def bias_values(bias: Any, pairs: Pairs, leading: torch.Size) -> Tensor:
    """(1 or batch, 1 or head, query, key)."""
    if isinstance(bias, Tensor):
        return table_of(bias, pairs, leading)
    return BIASES[type(bias).__name__](bias, pairs)


def alibi(bias: Any, pairs: Pairs) -> Tensor:
    return -alibi_slopes(bias.heads).view(-1, 1, 1) * (pairs.i - pairs.j).abs()


def alibi_slopes(heads: int) -> Tensor:
    """2^(−8k/n) for k = 1 … n if n is a power of two; else those of the one below, then every other of twice it."""

    def geometric(n: int) -> list[float]:
        return [2.0 ** (-8.0 * k / n) for k in range(1, n + 1)]

    lower = 2 ** math.floor(math.log2(heads))
    return torch.tensor((geometric(lower) + geometric(2 * lower)[::2])[:heads], dtype=torch.float64)


def distance(bias: Any, pairs: Pairs) -> Tensor:
    table = bias.table if bias.table.ndim == 2 else bias.table[None]
    reach = (table.shape[-1] - 1) // 2
    return at_entries(table, (pairs.i - pairs.j).clamp(-reach, reach) + reach, pairs)


def t5(bias: Any, pairs: Pairs) -> Tensor:
    return at_entries(bias.table.mT, t5_bucket(bias, pairs.i - pairs.j), pairs)


def t5_bucket(bias: Any, offset: Tensor) -> Tensor:
    """Half of the buckets for each distance, the others in logarithmic steps (in float32) up to max_distance."""
    buckets, future = bias.table.shape[0], 0
    if bias.bidirectional:
        buckets //= 2
        future = buckets
    far = offset.abs() if bias.bidirectional else offset.clamp(min=0)
    exact = buckets // 2
    share = torch.log(far.clamp(min=1).float() / exact) / math.log(bias.max_distance / exact)
    rough = (exact + (share * (buckets - exact)).long()).clamp(max=buckets - 1)
    return torch.where(far < exact, far, rough) + torch.where(offset < 0, future, 0)


def at_entries(table: Tensor, entry: Tensor, pairs: Pairs) -> Tensor:
    return table[torch.zeros_like(pairs.h) if table.shape[0] == 1 else pairs.h, entry]


BIASES: dict[str, Callable[[Any, Pairs], Tensor]] = {
    "ALiBi": alibi,
    "Distance": distance,
    "T5": t5,
    "Dense": lambda bias, pairs: bias.tensor[(None,) * (4 - bias.tensor.ndim)],
}
