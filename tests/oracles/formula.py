"""The plain formula of any spec, written a second time: dense, differentiable torch, nothing of regard is called.

logits  = score(q, k) + bias(i, j)             hidden pairs take no part at all
lse     = log( Σ over visible keys e^(logit/τ)  [+ e^sink] )
weights = e^(logit/τ − lse)
output  = dropout(weights) · v
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.oracles import parts
from tests.oracles.parts import Pairs


@dataclass
class Answer:
    """Output, weights before dropout, statistics, and what decisions were made on the way."""

    out: Tensor
    weights: Tensor
    aux: dict[str, Tensor]
    choices: list[Tensor]


def evaluate(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: Any,
    mask: Any,
    bias: Any,
    temperature: float | Tensor,
    normalizer: Any,
    dropout: Any,
    query_start: int | Tensor | None,
    pause: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Answer:
    """Attention by the formula, in the precision of the inputs. `pause` surrounds what is exact for exact inputs."""
    rank = max(query.ndim, key.ndim, value.ndim)
    query, key, value = (x if x.ndim > 2 else x[None] for x in (query, key, value))
    leading = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    batch = leading.numel()
    query, key, value = (x.expand(*leading, *x.shape[-3:]).reshape(batch, *x.shape[-3:]) for x in (query, key, value))
    heads, kv_heads = query.shape[1], key.shape[1]
    group = heads // kv_heads if kv_heads else 1
    if group != 1:
        owner = torch.arange(heads) // group
        key, value = key[:, owner], value[:, owner]
    pairs = Pairs(batch, heads, group, query.shape[2], key.shape[2], starts(query_start, query, key))

    with pause():
        seen = parts.visible_pairs(mask, pairs, leading).expand(pairs.shape)
        logits = parts.score_of(score, query, key, pairs)
        for term in parts.terms_of(bias):
            added = parts.bias_values(term, pairs, leading).to(query.dtype).expand(pairs.shape)
            seen = seen & (added != -math.inf)
            logits = logits + torch.where(added == -math.inf, 0.0, added)
        seen = seen & (logits != -math.inf)
        logits = torch.where(seen, logits, 0.0)
        x = logits / temperatures(temperature, query)
    weights, lse = NORMALIZERS[type(normalizer).__name__](x, seen, normalizer, pairs, pause)
    dropped = weights if not getattr(dropout, "p", 0) else weights * dropout_factors(dropout, pairs).to(weights.dtype)
    out = (dropped.unsqueeze(-1) * value.unsqueeze(-3)).sum(-2)
    aux = statistics(logits.detach(), seen, weights, pairs)
    if lse is not None:
        aux["lse"] = lse

    def unfold(tensor: Tensor) -> Tensor:
        tensor = tensor.reshape(*leading, *tensor.shape[1:])
        return tensor[0] if rank == 2 else tensor

    found = {name: unfold(statistic) for name, statistic in aux.items()}
    return Answer(unfold(out), unfold(weights), found, pairs.choices)


def starts(query_start: int | Tensor | None, query: Tensor, key: Tensor) -> Tensor:
    """The position of query 0, one or one per batch row; by default the last query stands at the last key."""
    if query_start is None:
        return torch.tensor([max(key.shape[-2] - query.shape[-2], 0)])
    return torch.as_tensor(query_start).reshape(-1).long()


def temperatures(temperature: float | Tensor, like: Tensor) -> float | Tensor:
    """A number, or one per head in front of (query, key)."""
    return temperature.to(like.dtype).view(-1, 1, 1) if isinstance(temperature, Tensor) else temperature


# ----------------------------------------------------------------------------------------------------- normalizers

Pause = Callable[[], AbstractContextManager[object]]


def largest(x: Tensor, seen: Tensor) -> Tensor:
    """The largest visible number of each row, −inf without any."""
    shown = torch.where(seen, x.detach(), -math.inf)
    return torch.cat([shown, shown.new_full((*shown.shape[:-1], 1), -math.inf)], -1).amax(-1, keepdim=True)


def first_largest(x: Tensor, seen: Tensor) -> Tensor:
    """True at the first of the largest visible numbers of each row."""
    best = seen & (x.detach() == largest(x, seen))
    return best & (best.cumsum(-1) == 1)


def softmax(x: Tensor, seen: Tensor, normalizer: Any, pairs: Pairs, pause: Pause) -> tuple[Tensor, Tensor]:
    shift, sink = largest(x, seen), None
    if normalizer.sink is not None:
        sink = torch.as_tensor(normalizer.sink, dtype=x.dtype).reshape(-1, 1, 1).expand(x.shape[1], 1, 1)
        shift = torch.maximum(shift, sink.detach())
    shift = torch.where(shift == -math.inf, 0.0, shift)
    power = torch.where(seen, torch.where(seen, x - shift, 0.0).exp(), 0.0)
    total = power.sum(-1, keepdim=True)
    if sink is not None:
        total = total + (sink - shift).exp()
    some = total > 0
    total = torch.where(some, total, 1.0)
    lse = torch.where(some, shift + total.log(), -math.inf)
    return torch.where(seen, torch.where(seen, x - lse, 0.0).exp(), 0.0), lse.squeeze(-1)


def hard(x: Tensor, seen: Tensor, normalizer: Any, pairs: Pairs, pause: Pause) -> tuple[Tensor, None]:
    pairs.choices.append(first_largest(x, seen))
    return first_largest(x, seen).to(x.dtype) + 0 * torch.where(seen, x, 0.0), None


def sparsemax(x: Tensor, seen: Tensor, normalizer: Any, pairs: Pairs, pause: Pause) -> tuple[Tensor, None]:
    """x_j is in the support if 1 + k·x_j exceeds the sum of the k numbers that are at least x_j."""
    with pause():
        top = largest(x, seen)
        x = torch.where(seen, x - torch.where(top == -math.inf, 0.0, top), 0.0)
        still = x.detach()
        above = seen.unsqueeze(-2) & (still.unsqueeze(-2) >= still.unsqueeze(-1))
        total = torch.where(above, still.unsqueeze(-2), 0.0).sum(-1)
        support = seen & (1 + above.sum(-1) * still > total)
        pairs.choices.append(support)
        count = support.sum(-1, keepdim=True).clamp(min=1)
    threshold = (torch.where(support, x, 0.0).sum(-1, keepdim=True) - 1) / count
    return torch.where(support, x - threshold, 0.0), None


NORMALIZERS: dict[str, Callable[..., tuple[Tensor, Tensor | None]]] = {
    "Softmax": softmax,
    "Hard": hard,
    "Sparsemax": sparsemax,
}


# -------------------------------------------------------------------------------------------- dropout and statistics


def dropout_factors(dropout: Any, pairs: Pairs) -> Tensor:
    """0 where the pair's random number (docs/dropout.md) is below ⌊p · 2³²⌋, else 1/(1 − p)."""

    def mix64(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
        z = z + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        found: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
        return found

    b, h, i, j = (index.numpy().astype(np.uint64) for index in (pairs.b, pairs.h, pairs.i, pairs.j))
    row = mix64(mix64(mix64(mix64(np.array([dropout.seed % 2**64], dtype=np.uint64)) + b) + h) + i)
    x: Any = j.astype(np.uint32) + row.astype(np.uint32)
    x = (x ^ (x >> np.uint32(17))) * np.uint32(0xED5AD4BB)
    x = x ^ (x >> np.uint32(11)) ^ (row >> np.uint64(32)).astype(np.uint32)
    x = x * np.uint32(0xAC4C1B51)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x31848BAB)
    x = x ^ (x >> np.uint32(14))
    kept = x >= np.uint32(math.floor(dropout.p * 2**32))
    factors: Tensor = torch.from_numpy(kept).double() / (1 - dropout.p)
    return factors


def statistics(logits: Tensor, seen: Tensor, weights: Tensor, pairs: Pairs) -> dict[str, Tensor]:
    """Every statistic by its definition; lse is the normalizer's own."""
    some, still = weights > 0, weights.detach()
    best = first_largest(logits, seen)
    return {
        "entropy": -torch.where(some, weights * torch.where(some, weights, 1.0).log(), 0.0).sum(-1),
        "peak": torch.cat([still, still.new_zeros(*still.shape[:-1], 1)], -1).amax(-1),
        "peak_at": torch.where(best.any(-1), (best * pairs.j).sum(-1), -1),
        "received": still.sum(-2),
        "distance": (still * (pairs.i - pairs.j).abs()).sum(-1),
        "max_logit": largest(logits, seen).squeeze(-1),
    }
