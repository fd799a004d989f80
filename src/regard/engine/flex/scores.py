"""Scores, biases and temperature as FlexAttention takes them: q′·k′·scale, then a function of that number."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.engine.flex.mod import Mod, Places, Table, signature
from regard.engine.native.lowering import Biases, lower_biases
from regard.engine.request import Request
from regard.spec.scores.base import form_of
from regard.spec.steps import Cap, DotProduct, ScoreRule, ScoreStep

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Lowered:
    """(batch, head, length, width) in one precision, the factor of q′·k′, and what follows it."""

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    mod: Mod | None


def lower_score(request: Request, places: Places) -> Lowered:
    """Projections and lengths are taken out of the pairs; caps, functions, biases and τ become one `score_mod`."""
    first, *rest = request.score.steps()
    query, key, value, scale = _product(request, first)
    steps = [*(_changed(step, places) for step in rest), *_added(request, places)]
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


def _product(request: Request, step: ScoreStep) -> tuple[Tensor, Tensor, Tensor, float]:
    assert isinstance(step, DotProduct)
    query, key, value = request.query, request.key, request.value
    scale = step.factor(query.shape[-1])
    if not step.plain:  # q′ and k′ are made in the accumulating precision, and stay there
        query, key, value = (tensor.to(request.dtype) for tensor in (query, key, value))
        projected = form_of(replace(step, scale=1.0), query, key)
        query, key = (operand.tensor for operand in projected.operands)
    return query.flatten(1, 2), key.squeeze(2), value.squeeze(2), scale


def _changed(step: ScoreStep, places: Places) -> Mod:
    """What is done to q′·k′."""
    if isinstance(step, Cap):
        return Mod(_capped(step.cap), ("capped", step.cap))
    assert isinstance(step, ScoreRule)
    return Mod(_modified(step.fn, places.starts, places.base), ("modified", *signature(step.fn)))


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
