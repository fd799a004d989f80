"""Masks as functions of one pair: what FlexAttention asks in blocks that are neither empty nor full."""

from collections.abc import Callable

import torch
from torch import Tensor

from regard.engine.flex.mod import NEAR, Mod, Places, Table, signature
from regard.spec import steps
from regard.spec.masks import Mask
from regard.spec.masks.runs import FULL, MIXED
from regard.spec.plane import Plane

FAR = 2 * NEAR  # no pair is so far apart
MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def unknown(mask: Mask) -> Mask | None:
    """The first leaf that has no steps."""
    return next((leaf for leaf in mask.leaves() if type(leaf).steps is Mask.steps), None)


def lower_mask(lowered: tuple[steps.MaskStep, ...], plane: Plane, places: Places) -> Mod:
    """The steps of a mask as one `mask_mod`."""
    stack: list[Mod] = []
    for step in lowered:
        if not isinstance(step, steps.Combine):
            stack.append(_mod(step, plane, places))
        elif step is steps.Combine.NOT:
            inner = stack.pop()
            stack.append(Mod(_not(inner.fn), ("not", inner.structure)))
        else:
            right, left = stack.pop(), stack.pop()
            join = _both if step is steps.Combine.AND else _either
            stack.append(Mod(join(left.fn, right.fn), (join.__name__, left.structure, right.structure)))
    return stack.pop()


def _mod(step: steps.MaskStep, plane: Plane, places: Places) -> Mod:
    device = plane.device
    match step:
        case steps.Band():
            return _band(places, step.before, step.after)
        case steps.DilatedBand():
            reach, apart = step.reach, step.step
            if places.near:
                reach, apart = min(reach, FAR), min(apart, FAR)
            return Mod(_dilated(places.ahead, reach, apart), ("dilated", reach, apart))
        case steps.Below():
            return _up_to(step.limits, plane)
        case steps.Among():
            pairs, chosen = plane.all, step.positions.to(device)
            rows = torch.isin(pairs.i, chosen).expand(plane.batch, 1, 1, -1, 1)[:, 0, 0, :, 0]
            return Mod(_marked(rows.contiguous(), torch.isin(pairs.j, chosen)), ("marked",))
        case steps.SameId():
            return Mod(_same(_rows(step.queries, plane), _rows(step.keys, plane)), ("same",))
        case steps.BlockTable():
            table = Table.of(step.layout.to(device), plane)
            return Mod(_squares(*table, places.starts, places.base, step.size), ("squares", table.axes, step.size))
        case steps.PairTable():
            table = Table.of(step.tensor.to(device), plane)
            return Mod(_listed(*table), ("listed", table.axes))
        case steps.Rule(rows=False):
            return Mod(_where(step.fn, places.starts, places.base), ("where", *signature(step.fn)))
        case steps.Rule():
            return Mod(_row_where(step.fn), ("row where", *signature(step.fn)))
        case steps.BlockRule():
            table = Table.of(step.kinds.to(device), plane)
            structure = ("row blocks", table.axes, step.size, *signature(step.fn))
            return Mod(_row_blocks(*table, step.size, _row_where(step.fn)), structure)
    raise TypeError(f"{step!r} is not a step of a mask")


def _band(places: Places, before: int | None, after: int | None) -> Mod:
    if places.near:
        before, after = (None if side is None else max(-FAR, min(side, FAR)) for side in (before, after))
    return Mod(_window(places.ahead, before, after), ("window", before, after))


def _up_to(limits: Tensor, plane: Plane) -> Mod:
    """Keys before a position, one for each batch row."""
    columns = (limits.to(plane.device).reshape(-1) - plane.key_start).clamp(0, plane.keys)
    return Mod(_below(columns.expand(plane.batch).to(torch.int32)), ("below",))


def _rows(ids: Tensor, plane: Plane) -> Tensor:
    return ids.to(plane.device).expand(plane.batch, ids.shape[-1]).contiguous()


def _both(left: MaskMod, right: MaskMod) -> MaskMod:
    def both(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return left(b, h, q, k) & right(b, h, q, k)

    return both


def _either(left: MaskMod, right: MaskMod) -> MaskMod:
    def either(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return left(b, h, q, k) | right(b, h, q, k)

    return either


def _not(inner: MaskMod) -> MaskMod:
    def other(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return ~inner(b, h, q, k)

    return other


def _window(ahead: Tensor, before: int | None, after: int | None) -> MaskMod:
    def window(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        offset = q + ahead[b] - k
        seen = k >= 0
        if before is not None:
            seen = seen & (offset <= before)
        if after is not None:
            seen = seen & (offset >= -after)
        return seen

    return window


def _dilated(ahead: Tensor, reach: int, step: int) -> MaskMod:
    def dilated(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        offset = (q + ahead[b] - k).abs()
        return (offset <= reach) & (offset % step == 0)

    return dilated


def _below(limits: Tensor) -> MaskMod:
    def below(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return k < limits[b]

    return below


def _marked(rows: Tensor, columns: Tensor) -> MaskMod:
    def marked(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return rows[b, q] | columns[k]

    return marked


def _same(queries: Tensor, keys: Tensor) -> MaskMod:
    def same(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return queries[b, q] == keys[b, k]

    return same


def _listed(table: Tensor, axes: tuple[int, ...]) -> MaskMod:
    def listed(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        place = (b, h, q, k)
        return table[tuple([place[axis] for axis in axes])]

    return listed


def _squares(table: Tensor, axes: tuple[int, ...], starts: Tensor, base: Tensor, size: int) -> MaskMod:
    def squares(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        place = (b, h, (q + starts[b]) // size, (k + base[b]) // size)
        return table[tuple([place[axis] for axis in axes])]

    return squares


def _row_blocks(kinds: Tensor, axes: tuple[int, ...], size: tuple[int, int], inner: MaskMod) -> MaskMod:
    def row_blocks(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        place = (b, h, q // size[0], k // size[1])
        kind = kinds[tuple([place[axis] for axis in axes])]
        return (kind == FULL) | ((kind == MIXED) & inner(b, h, q, k))

    return row_blocks


def _where(fn: MaskMod, starts: Tensor, base: Tensor) -> MaskMod:
    def where(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return _bool(fn(b, h, q + starts[b], k + base[b]), k)

    return where


def _row_where(fn: MaskMod) -> MaskMod:
    def row_where(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return _bool(fn(b, h, q, k), k)

    return row_where


def _bool(seen: object, k: Tensor) -> Tensor:
    """What a user's function returned, which may be one bool for all pairs."""
    if isinstance(seen, bool):
        return (k >= 0) if seen else (k < 0)
    assert isinstance(seen, Tensor)
    return seen
