"""Masks, scores and biases as functions of one pair, the form in which FlexAttention takes them.

The functions are made for each call, around that call's tensors. torch compiles their code, which is the same for each
structure, so calls of one structure share one kernel. Numbers that belong to the spec (the width of a window) are part
of the structure; what may differ from call to call (positions, lengths, tables) is a tensor.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.engine.native.lowering import lower_biases
from regard.engine.request import Request
from regard.spec import steps
from regard.spec.masks import Mask
from regard.spec.masks.runs import FULL, MIXED
from regard.spec.plane import Plane
from regard.spec.scores.base import form_of

NEAR = 1 << 29  # positions within ±NEAR, and their differences, are computed in 32 bits
FAR = 2 * NEAR  # no pair is so far apart
CONSTANTS = (bool, int, float, str, type(None))


class Mod(NamedTuple):
    """`fn` is a `mask_mod(b, h, q, k)` or a `score_mod(score, b, h, q, k)`; q and k count rows and columns of the call.

    `structure` is equal for functions that differ in their tensors alone.
    """

    fn: Callable[..., Tensor]
    structure: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Places:
    """Positions: row q of batch row b is at `starts[b] + q`, column k at `base[b] + k`: q + ahead[b] − k apart.

    All are indexed by b, though one number would often do: the structure is the same for one start and for many.
    """

    ahead: Tensor
    starts: Tensor
    base: Tensor
    near: bool

    @classmethod
    def of(cls, plane: Plane) -> "Places":
        """The positions of a call."""
        starts = plane.starts.expand(plane.batch).contiguous()
        ahead = starts - plane.key_start
        near = int(ahead.abs().max()) + plane.queries + plane.keys < NEAR
        narrow = torch.int32 if near else torch.int64
        base = torch.full((plane.batch,), plane.key_start, device=plane.device, dtype=torch.int64)
        return cls(ahead.to(plane.device, narrow), starts.to(plane.device), base, near)


def _table(tensor: Tensor, plane: Plane) -> tuple[Tensor, tuple[int, ...]]:
    """A tensor over (batch, head, row, column) without the axes that broadcast, and which axes are left.

    Only axes that differ are indexed, so that a gradient is no larger than the tensor.
    """
    tensor = tensor.to(plane.device)
    axes = tuple(axis for axis in range(4) if tensor.shape[axis] > 1)
    if not axes:
        return tensor.reshape(1).expand(plane.heads).contiguous(), (1,)
    table = tensor[tuple(slice(None) if axis in axes else 0 for axis in range(4))]
    return table if 1 in table.stride() else table.contiguous(), axes  # torch's kernels require a stride of 1


def _entry(table: Tensor, axes: tuple[int, ...], *index: Tensor) -> Tensor:
    """The entry of such a table at (b, h, row, column)."""
    return table[tuple([index[axis] for axis in axes])]


def signature(fn: Any) -> tuple[Any, ...]:
    """The structure of a user's function: its code and the numbers it closes over; of a callable object, itself."""
    code = getattr(fn, "__code__", None)
    if code is None:
        return (fn,)
    cells = [cell.cell_contents for cell in getattr(fn, "__closure__", None) or ()]
    return (code, *(cell if isinstance(cell, CONSTANTS) else type(cell) for cell in cells))


def unknown(mask: Mask) -> Mask | None:
    """The first leaf that has no steps."""
    return next((leaf for leaf in mask.leaves() if type(leaf).steps is Mask.steps), None)


def lower_mask(lowered: tuple[steps.MaskStep, ...], plane: Plane, places: Places) -> Mod:
    """The steps of a mask as one `mask_mod`."""
    stack: list[Mod] = []
    for step in lowered:
        if not isinstance(step, steps.Combine):
            stack.append(_mask_mod(step, plane, places))
        elif step is steps.Combine.NOT:
            inner = stack.pop()
            stack.append(Mod(_not(inner.fn), ("not", inner.structure)))
        else:
            right, left = stack.pop(), stack.pop()
            join = _and if step is steps.Combine.AND else _or
            stack.append(Mod(join(left.fn, right.fn), (step.name, left.structure, right.structure)))
    return stack[0]


def _not(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda b, h, q, k: ~fn(b, h, q, k)


def _and(left: Callable[..., Tensor], right: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda b, h, q, k: left(b, h, q, k) & right(b, h, q, k)


def _or(left: Callable[..., Tensor], right: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda b, h, q, k: left(b, h, q, k) | right(b, h, q, k)


def _mask_mod(step: steps.MaskStep, plane: Plane, places: Places) -> Mod:
    ahead, starts, base = places.ahead, places.starts, places.base
    match step:
        case steps.Band():
            before, after = step.before, step.after
            if places.near:
                before, after = (None if side is None else max(-FAR, min(side, FAR)) for side in (before, after))
            return Mod(_band(ahead, before, after), ("window", before, after))
        case steps.DilatedBand():
            reach, apart = (min(step.reach, FAR), min(step.step, FAR)) if places.near else (step.reach, step.step)

            def dilated(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
                offset = (q + ahead[b] - k).abs()
                return (offset <= reach) & (offset % apart == 0)

            return Mod(dilated, ("dilated", reach, apart))
        case steps.Below():
            limits = (step.limits.to(plane.device).reshape(-1) - plane.key_start).clamp(0, plane.keys)
            limits = limits.expand(plane.batch).to(torch.int32)
            return Mod(lambda b, h, q, k: k < limits[b], ("below",))
        case steps.Among():
            pairs, chosen = plane.all, step.positions.to(plane.device)
            rows = torch.isin(pairs.i, chosen).expand(plane.batch, 1, 1, -1, 1)[:, 0, 0, :, 0].contiguous()
            columns = torch.isin(pairs.j, chosen)
            return Mod(lambda b, h, q, k: rows[b, q] | columns[k], ("marked",))
        case steps.SameId():
            queries, keys = (
                ids.to(plane.device).expand(plane.batch, ids.shape[-1]).contiguous()
                for ids in (step.queries, step.keys)
            )
            return Mod(lambda b, h, q, k: queries[b, q] == keys[b, k], ("same",))
        case steps.BlockTable():
            (layout, axes), size = _table(step.layout, plane), step.size

            def squares(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
                return _entry(layout, axes, b, h, (q + starts[b]) // size, (k + base[b]) // size)

            return Mod(squares, ("squares", axes, size))
        case steps.PairTable():
            table, axes = _table(step.tensor, plane)
            return Mod(lambda b, h, q, k: _entry(table, axes, b, h, q, k), ("listed", axes))
        case steps.Rule(rows=False):
            fn = step.fn
            return Mod(
                lambda b, h, q, k: _bool(fn(b, h, q + starts[b], k + base[b]), k), ("where", *signature(step.fn))
            )
        case steps.Rule():
            fn = step.fn
            return Mod(lambda b, h, q, k: _bool(fn(b, h, q, k), k), ("row where", *signature(step.fn)))
        case steps.BlockRule():
            (kinds, axes), (height, width), fn = _table(step.kinds, plane), step.size, step.fn

            def row_blocks(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
                kind = _entry(kinds, axes, b, h, q // height, k // width)
                return (kind == FULL) | ((kind == MIXED) & _bool(fn(b, h, q, k), k))

            return Mod(row_blocks, ("row blocks", axes, step.size, *signature(step.fn)))
    raise TypeError(f"{step!r} is not a step of a mask")


def _band(ahead: Tensor, before: int | None, after: int | None) -> Callable[..., Tensor]:
    def band(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        offset = q + ahead[b] - k
        seen = k >= 0
        if before is not None:
            seen = seen & (offset <= before)
        if after is not None:
            seen = seen & (offset >= -after)
        return seen

    return band


def _bool(seen: object, k: Tensor) -> Tensor:
    """What a user's function returned, which may be one bool for all pairs."""
    if isinstance(seen, bool):
        return (k >= 0) if seen else (k < 0)
    assert isinstance(seen, Tensor)
    return seen


@dataclass(frozen=True, eq=False)
class Lowered:
    """(batch, head, length, width) in one precision, the factor of q′·k′, and the function that follows it."""

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    mod: Mod | None


def lower_score(request: Request, places: Places) -> Lowered:
    """Projections and normalization act on queries and keys; caps, functions, biases and τ become one `score_mod`."""
    product, *rest = request.score.steps()
    assert isinstance(product, steps.DotProduct)
    query, key, value = request.query, request.key, request.value
    scale = product.factor(query.shape[-1])
    if not product.plain:  # q′ and k′ are computed in the accumulating precision, and stay in it
        query, key, value = (tensor.to(request.dtype) for tensor in (query, key, value))
        query, key = (operand.tensor for operand in form_of(replace(product, scale=1.0), query, key).operands)
    mods = [*(_score_mod(step, places) for step in rest), *_bias_mods(request, places)]
    temperature = request.temperatures
    if isinstance(temperature, Tensor):
        per_head = temperature.reshape(-1).expand(request.plane.heads).contiguous()
        mods.append(Mod(lambda score, b, h, q, k: score / per_head[h], ("over each",)))
    elif mods and temperature != 1.0:
        mods.append(Mod(lambda score, b, h, q, k: score / temperature, ("over", temperature)))
    else:
        scale /= temperature
    mod = Mod(_chain(tuple(mod.fn for mod in mods)), tuple(mod.structure for mod in mods)) if mods else None
    return Lowered(query.flatten(1, 2), key.squeeze(2), value.squeeze(2), scale, mod)


def _score_mod(step: steps.ScoreStep, places: Places) -> Mod:
    """A cap, or a user's function of the score."""
    if isinstance(step, steps.Cap):
        cap = step.cap
        return Mod(lambda score, b, h, q, k: cap * torch.tanh(score / cap), ("capped", cap))
    assert isinstance(step, steps.ScoreRule)
    fn, starts, base = step.fn, places.starts, places.base

    def modified(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        changed: Tensor | float = fn(score, b, h, q + starts[b], k + base[b])
        # 0 that depends on the pair: torch's kernel for CPUs is wrong for scores that are the same for a row of keys
        nothing = (score.isnan() & score.isinf()).to(score.dtype)
        return nothing + changed if isinstance(changed, (int, float)) else nothing + changed.to(score.dtype)

    return Mod(modified, ("modified", *signature(step.fn)))


def _bias_mods(request: Request, places: Places) -> list[Mod]:
    """Biases: one slope, one table over offsets and one tensor, each the sum of all terms of its kind."""
    plane, ahead = request.plane, places.ahead
    biases = lower_biases(request.bias, plane, request.dtype)
    mods: list[Mod] = []
    if biases.slopes is not None:
        slopes = biases.slopes.to(plane.device)
        mods.append(Mod(lambda score, b, h, q, k: score - slopes[h] * (q + ahead[b] - k).abs(), ("sloped",)))
    if biases.table is not None:
        offsets = biases.table.to(plane.device)
        entries, reach = offsets[0], offsets.shape[-1] // 2

        def by_offset(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            return score + entries[(k - q - ahead[b]).clamp(-reach, reach) + reach]

        def by_head(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            return score + offsets[h, (k - q - ahead[b]).clamp(-reach, reach) + reach]

        mods.append(Mod(by_offset, ("offset", reach)) if len(offsets) == 1 else Mod(by_head, ("head, offset", reach)))
    if biases.dense is not None:
        table, axes = _table(biases.dense, plane)
        mods.append(Mod(lambda score, b, h, q, k: score + _entry(table, axes, b, h, q, k), ("listed", axes)))
    return mods


def _chain(mods: tuple[Callable[..., Tensor], ...]) -> Callable[..., Tensor]:
    def chain(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        for mod in mods:
            score = mod(score, b, h, q, k)
        return score

    return chain
