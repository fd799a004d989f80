"""Lowering: a score to q′·k′ or v·φ(a + b), a factor and a cap; biases to slopes, a table over offsets and a tensor."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.engine.native.projection import project
from regard.engine.request import Request
from regard.spec.biases import T5, ALiBi, Bias, Dense, Distance
from regard.spec.plane import Plane
from regard.spec.scores import Cosine, Dot, General, ScaledDot, Score, SoftCapped
from regard.spec.scores.additive import SumScore
from regard.spec.scores.product import unit

SCORES = (Dot, ScaledDot, General, Cosine, SumScore)
UNITS = 4  # hidden units are computed by fours


@dataclass(frozen=True, eq=False)
class LoweredScore:
    """cap · tanh(scale · q′·k′ / cap), scale above 0, a cap of 0 is none; tensors are (batch, head, length, width).

    With `phi`, v · φ(q′ + k′) takes the place of q′·k′; `v` is (head, width).
    """

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    cap: float
    phi: str | None = None
    v: Tensor | None = None


def inner(score: Score) -> Score:
    """The score under a cap."""
    return score.score if isinstance(score, SoftCapped) else score


def lower_score(request: Request) -> LoweredScore:
    """The inputs in one dtype; a factor that is not above 0 goes into the query."""
    found = _lower_score(request)
    if found.scale > 0:
        return found
    return (
        replace(found, query=-found.query, scale=-found.scale)
        if found.scale < 0
        else replace(found, query=found.query * 0.0, scale=1.0)
    )


def _lower_score(request: Request) -> LoweredScore:
    score = inner(request.score)
    cap = float(request.score.cap) if isinstance(request.score, SoftCapped) else 0.0
    query, key, value = request.query.flatten(1, 2), request.key.squeeze(2), request.value.squeeze(2)
    match score:
        case ScaledDot():
            return LoweredScore(query, key, value, score.factor(query.shape[-1]), cap)
        case Dot():
            return LoweredScore(query, key, value, 1.0, cap)
    value = value.to(request.dtype)
    if isinstance(score, Cosine):
        return LoweredScore(unit(query.to(request.dtype)), unit(key.to(request.dtype)), value, float(score.scale), cap)
    if isinstance(score, SumScore):
        plane = request.plane
        return lower_sum(score, query, key, value, (plane.heads, plane.kv_heads), cap)
    assert isinstance(score, General)
    projected = project(query.to(request.dtype), _matrices(score.weight, request.plane.heads, request.dtype))
    return LoweredScore(projected, key.to(request.dtype), value, 1.0, cap)


def lower_sum(
    score: SumScore, query: Tensor, key: Tensor, value: Tensor, heads: tuple[int, int], cap: float
) -> LoweredScore:
    """The sum form of 4-D inputs, in the value's dtype; `heads` are the query's and the key's."""
    dtype = value.dtype
    a = project(query.to(dtype), _matrices(score.w_query, heads[0], dtype).mT)
    b = project(key.to(dtype), _matrices(score.w_key, heads[1], dtype).mT)
    if score.offset is not None:
        a = a + score.offset.to(dtype).unsqueeze(-2)
    v = score.v.to(dtype).expand(heads[0], -1)
    if missing := -a.shape[-1] % UNITS:  # units of weight 0
        a, b, v = (torch.nn.functional.pad(part, (0, missing)) for part in (a, b, v))
    scale = _power_of_two(v)
    return LoweredScore(a, b, value, scale, cap, score.phi, v / scale)


def _matrices(matrix: Tensor, heads: int, dtype: torch.dtype) -> Tensor:
    """One matrix, or one for each head."""
    return matrix.to(dtype) if matrix.ndim == 2 or len(matrix) == 1 else matrix.to(dtype).expand(heads, -1, -1)


def _power_of_two(weights: Tensor) -> float:
    """What all weights are divided by, without rounding, so that the largest is at most 1."""
    largest = float(weights.detach().abs().max()) if weights.numel() else 0.0
    if not 0.0 < largest < math.inf:
        return 1.0
    most = math.frexp(torch.finfo(weights.dtype).max)[1] - 1
    return math.ldexp(1.0, min(math.frexp(largest)[1], most))


@dataclass(frozen=True, eq=False)
class Biases:
    """What the kernel adds: `slopes` (heads,), `table` (heads or 1, 2·reach + 1) over j − i, `dense` (…, query, key)"""

    slopes: Tensor | None = None
    table: Tensor | None = None
    dense: Tensor | None = None


def unknown_bias(bias: Bias | None) -> Bias | None:
    """The first term that `lower_biases` does not know."""
    terms = bias.terms() if bias is not None else ()
    return next((term for term in terms if not isinstance(term, ALiBi | Distance | T5 | Dense)), None)


def lower_biases(bias: Bias | None, plane: Plane, dtype: torch.dtype) -> Biases:
    """Join the terms; gradients flow back through the joining."""
    if bias is None:
        return Biases()
    slopes: Tensor | None = None
    dense: Tensor | None = None
    tables: list[Tensor] = []
    for term in bias.terms():
        if isinstance(term, ALiBi):
            slopes = term.slopes.to(dtype) if slopes is None else slopes + term.slopes.to(dtype)
        elif isinstance(term, Distance):
            tables.append(term.table.to(dtype).reshape(-1, term.table.shape[-1]))
        elif isinstance(term, T5):
            reach = term.max_distance
            buckets = term.bucket(torch.arange(-reach, reach + 1, device="cpu"))
            tables.append(term.table.to(dtype).mT[:, buckets])
        else:
            assert isinstance(term, Dense)
            tensor = term.tensor.to(dtype)
            tensor = tensor[(None,) * (4 - tensor.ndim)]
            dense = tensor if dense is None else _both(dense, tensor)
    return Biases(slopes, _joined(tables), dense)


def _both(left: Tensor, right: Tensor) -> Tensor:
    """The sum, −inf where either hides, whatever the other is."""
    return torch.where((left == -torch.inf) | (right == -torch.inf), -torch.inf, left + right)


def _joined(tables: list[Tensor]) -> Tensor | None:
    """The sum of tables over i − j, turned to j − i; the shorter go on with their last entry."""
    if not tables:
        return None
    reach = max(table.shape[1] // 2 for table in tables)
    offsets = torch.arange(reach, -reach - 1, -1, device="cpu")
    total: Tensor | None = None
    for table in tables:
        own = table.shape[1] // 2
        wide = table[:, offsets.clamp(-own, own) + own]
        total = wide if total is None else _both(total, wide)
    return total
