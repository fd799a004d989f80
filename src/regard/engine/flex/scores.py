"""Scores, biases and temperature as FlexAttention takes them: q′·k′·scale, then a function of that number."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.engine.flex.mod import Mod, Places, Table, signature
from regard.engine.native.lowering import Biases, lower_biases
from regard.engine.request import Request
from regard.spec.scores import Cosine, Dot, General, Modified, ScaledDot, Score, SoftCapped
from regard.spec.scores.modified import Wrapped
from regard.spec.scores.product import unit

PRODUCTS = (Dot, ScaledDot, General, Cosine)
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Lowered:
    """(batch, head, length, width) in one precision, the factor of q′·k′, and what follows it."""

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    mod: Mod | None


def innermost(score: Score) -> Score:
    """The score under caps and functions."""
    while isinstance(score, Wrapped):
        score = score.score
    return score


def functions(score: Score) -> list[ScoreMod]:
    """The users' functions in a score, each of (score, b, h, i, j)."""
    found = []
    while isinstance(score, Wrapped):
        if isinstance(score, Modified):
            found.append(score.fn)
        score = score.score
    return found


def lower_score(request: Request, places: Places) -> Lowered:
    """Projections and lengths are taken out of the pairs; caps, functions, biases and τ become one `score_mod`."""
    query, key, value, scale = _product(request)
    steps = [*_wrapped(request.score, places), *_added(request, places)]
    temperature = request.temperatures
    if isinstance(temperature, Tensor):
        per_head = temperature.reshape(-1).expand(request.plane.heads).contiguous()
        steps.append(Mod(_over_each(per_head), ("over each",)))
    elif steps and temperature != 1.0:
        steps.append(Mod(_over(temperature), ("over", temperature)))
    else:
        scale /= temperature
    mod = Mod(_chain(tuple(step.fn for step in steps)), tuple(step.structure for step in steps)) if steps else None
    return Lowered(query, key, value, scale, mod)


def _product(request: Request) -> tuple[Tensor, Tensor, Tensor, float]:
    score = innermost(request.score)
    query, key, value = request.query, request.key, request.value
    scale = 1.0
    if isinstance(score, ScaledDot):
        scale = score.factor(query.shape[-1])
    elif not isinstance(score, Dot):  # q′ and k′ are made in the accumulating precision, and stay there
        query, key, value = (tensor.to(request.dtype) for tensor in (query, key, value))
        if isinstance(score, Cosine):
            query, key, scale = unit(query), unit(key), score.scale
        else:
            query, key = (operand.tensor for operand in score.lower(query, key).operands)
    return query.flatten(1, 2), key.squeeze(2), value.squeeze(2), float(scale)


def _wrapped(score: Score, places: Places) -> list[Mod]:
    """What is done to q′·k′, the innermost first."""
    found: list[Mod] = []
    while isinstance(score, Wrapped):
        if isinstance(score, SoftCapped):
            found.append(Mod(_capped(float(score.cap)), ("capped", float(score.cap))))
        else:
            assert isinstance(score, Modified)
            found.append(Mod(_modified(score.fn, places.starts, places.base), ("modified", *signature(score.fn))))
        score = score.score
    return found[::-1]


def _added(request: Request, places: Places) -> list[Mod]:
    """Biases: one slope, one table over offsets and one tensor, each the sum of all terms of its kind."""
    bias, plane = request.bias, request.plane
    joined: Biases = lower_biases(bias, plane, request.dtype)
    found: list[Mod] = []
    if joined.slopes is not None:
        found.append(Mod(_sloped(joined.slopes.to(plane.device), places.ahead), ("sloped",)))
    if joined.table is not None:
        table = joined.table.to(plane.device)
        reach = table.shape[-1] // 2
        make = _by_offset if table.shape[0] == 1 else _by_head_and_offset
        found.append(Mod(make(table, places.ahead, reach), (make.__name__, reach)))
    if joined.dense is not None:
        dense = Table.of(joined.dense, plane)
        found.append(Mod(_listed(*dense), ("listed", dense.axes)))
    return found


def _chain(steps: tuple[ScoreMod, ...]) -> ScoreMod:
    def chain(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        for step in steps:
            score = step(score, b, h, q, k)
        return score

    return chain


def _capped(cap: float) -> ScoreMod:
    def capped(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return cap * torch.tanh(score / cap)

    return capped


def _modified(fn: ScoreMod, starts: Tensor, base: Tensor) -> ScoreMod:
    def modified(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        found: Tensor | float = fn(score, b, h, q + starts[b], k + base[b])
        # 0 that depends on the pair: torch's kernel for CPUs is wrong for scores that are the same for a row of keys
        nothing = (score.isnan() & score.isinf()).to(score.dtype)
        return nothing + found if isinstance(found, (int, float)) else nothing + found.to(score.dtype)

    return modified


def _sloped(slopes: Tensor, ahead: Tensor) -> ScoreMod:
    def sloped(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return score - slopes[h] * (q + ahead[b] - k).abs()

    return sloped


def _by_offset(table: Tensor, ahead: Tensor, reach: int) -> ScoreMod:
    entries = table[0]

    def by_offset(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return score + entries[(k - q - ahead[b]).clamp(-reach, reach) + reach]

    return by_offset


def _by_head_and_offset(table: Tensor, ahead: Tensor, reach: int) -> ScoreMod:
    def by_head_and_offset(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return score + table[h, (k - q - ahead[b]).clamp(-reach, reach) + reach]

    return by_head_and_offset


def _listed(table: Tensor, axes: tuple[int, ...]) -> ScoreMod:
    def listed(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        place = (b, h, q, k)
        return score + table[tuple([place[axis] for axis in axes])]

    return listed


def _over(temperature: float) -> ScoreMod:
    def over(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return score / temperature

    return over


def _over_each(temperatures: Tensor) -> ScoreMod:
    def over_each(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return score / temperatures[h]

    return over_each
