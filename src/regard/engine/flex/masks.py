"""Masks as functions of one pair: what FlexAttention asks in blocks that are neither empty nor full."""

from collections.abc import Callable

import torch
from torch import Tensor

from regard.engine.flex.mod import NEAR, Mod, Places, Table, signature
from regard.spec import masks
from regard.spec.masks.flex import RowBlocks
from regard.spec.masks.runs import FULL, MIXED
from regard.spec.masks.tables import four
from regard.spec.plane import Plane

FAR = 2 * NEAR  # no pair is so far apart
KNOWN = (
    masks.Full,
    masks.Causal,
    masks.Window,
    masks.Dilated,
    masks.Lengths,
    masks.Prefix,
    masks.Global,
    masks.Documents,
    masks.Blocks,
    masks.Dense,
    masks.Where,
    masks.RowWhere,
    RowBlocks,
)
MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def lower_mask(mask: masks.Mask, plane: Plane, places: Places) -> Mod:
    """The mask as a `mask_mod`."""
    device = plane.device
    match mask:
        case masks.And() | masks.Or():
            left, right = lower_mask(mask.left, plane, places), lower_mask(mask.right, plane, places)
            join = _both if isinstance(mask, masks.And) else _either
            return Mod(join(left.fn, right.fn), (join.__name__, left.structure, right.structure))
        case masks.Not():
            inner = lower_mask(mask.mask, plane, places)
            return Mod(_not(inner.fn), ("not", inner.structure))
        case masks.Full():
            return _band(places, None, None)
        case masks.Causal():
            return _band(places, None, 0)
        case masks.Window():
            return _band(places, mask.before, mask.after)
        case masks.Dilated():
            reach, step = mask.step * (mask.width // 2), mask.step
            if places.near:
                reach, step = min(reach, FAR), min(step, FAR)
            return Mod(_dilated(places.ahead, reach, step), ("dilated", reach, step))
        case masks.Lengths():
            return _up_to(mask.lengths, plane)
        case masks.Prefix():
            return _up_to(torch.as_tensor(mask.p, device="cpu"), plane)
        case masks.Global():
            pairs, chosen = plane.all, mask.positions.to(device)
            rows = torch.isin(pairs.i, chosen).expand(plane.batch, 1, 1, -1, 1)[:, 0, 0, :, 0]
            return Mod(_marked(rows.contiguous(), torch.isin(pairs.j, chosen)), ("marked",))
        case masks.Documents():
            keys = _rows(mask.key_ids, plane)[:, plane.key_start : plane.key_start + plane.keys]
            queries = _rows(mask.query_rows(plane, slice(0, plane.queries)), plane)
            return Mod(_same(queries, keys), ("same",))
        case masks.Blocks():
            table = Table.of(four(mask.layout.to(device)), plane)
            return Mod(_squares(*table, places.starts, places.base, mask.size), ("squares", table.axes, mask.size))
        case masks.Dense():
            table = Table.of(four(mask.tensor.to(device)), plane)
            return Mod(_listed(*table), ("listed", table.axes))
        case masks.Where():
            return Mod(_where(mask.fn, places.starts, places.base), ("where", *signature(mask.fn)))
        case masks.RowWhere():
            return Mod(_row_where(mask.fn), ("row where", *signature(mask.fn)))
        case RowBlocks():
            table = Table.of(mask.kinds.to(device), plane)
            return Mod(
                _row_blocks(*table, mask.size, _row_where(mask.fn)),
                ("row blocks", table.axes, mask.size, *signature(mask.fn)),
            )
    raise TypeError(f"{type(mask).__name__} has no form that FlexAttention takes")


def unknown(mask: masks.Mask) -> masks.Mask | None:
    """The first leaf that `lower_mask` does not know."""
    return next((leaf for leaf in mask.leaves() if not isinstance(leaf, KNOWN)), None)


def functions(mask: masks.Mask) -> list[MaskMod]:
    """The users' functions in a mask, each of (b, h, i, j)."""
    return [leaf.fn for leaf in mask.leaves() if isinstance(leaf, masks.Where | masks.RowWhere | RowBlocks)]


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
