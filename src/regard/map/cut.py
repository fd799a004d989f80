"""Cut: a call of the native engine made smaller: one head of one batch row, then any rectangle of its pairs."""

from dataclasses import dataclass, replace

from torch import Tensor

from regard.engine.native.function import Inputs, Native
from regard.engine.native.program import program
from regard.spec import masks
from regard.spec.masks.tables import four
from regard.spec.plane import Plane


@dataclass(frozen=True, eq=False)
class Call:
    """A call without its tensors, and these."""

    native: Native
    inputs: Inputs

    def lane(self, batch: int, head: int) -> "Call":
        """One head of one batch row."""
        query, key, value, tau, table, dense, sink, weights = self.inputs
        plane = self.native.plane
        own, kv = slice(head, head + 1), slice(head // plane.group, head // plane.group + 1)
        row = slice(batch, batch + 1)
        starts = plane.starts if plane.starts.numel() == 1 else plane.starts[row]
        small = replace(plane, batch=1, kv_heads=1, group=1, starts=starts)
        mask = _of_lane(self.native.mask, batch, head)
        slopes = self.native.slopes
        native = replace(
            self.native,
            plane=small,
            mask=mask,
            program=program(mask, small),
            slopes=slopes if slopes is None else slopes[own],
        )
        inputs = (
            query[row, own],
            key[row, kv],
            value[row, kv],
            None if tau is None else tau[own],
            table if table is None or len(table) == 1 else table[own],
            None if dense is None else _picked(dense, batch, head),
            None if sink is None else sink[own],
            None if weights is None else weights[own],
        )
        return Call(native, inputs)

    def gathered(self, rows: list[int], seen: Tensor) -> "Call":
        """Single queries, and which of the first keys each sees, (row, key); for biases that know no positions."""
        query, key, value, tau, table, dense, sink, weights = self.inputs
        assert self.native.slopes is None
        assert table is None
        keys = slice(0, seen.shape[1])
        mask = masks.Dense(seen[None, None])
        small = replace(self.native.plane, queries=len(rows), keys=seen.shape[1])
        if dense is not None:
            dense = dense if dense.shape[-2] == 1 else dense[:, :, rows]
            dense = dense if dense.shape[-1] == 1 else dense[..., keys]
        native = replace(self.native, plane=small, mask=mask, program=program(mask, small))
        inputs = (query[:, :, rows], key[:, :, keys], value[:, :, keys], tau, table, dense, sink, weights)
        return Call(native, inputs)

    def rectangle(self, rows: slice, columns: slice) -> "Call":
        """Some queries and some keys, where they stand."""
        query, key, value, tau, table, dense, sink, weights = self.inputs
        plane = self.native.plane
        small = replace(
            plane,
            queries=rows.stop - rows.start,
            keys=columns.stop - columns.start,
            starts=plane.starts + rows.start,
            key_start=plane.key_start + columns.start,
        )
        mask = _of_rectangle(self.native.mask, plane, rows, columns)
        native = replace(self.native, plane=small, mask=mask, program=program(mask, small))
        dense = None if dense is None else _within(dense, rows, columns)
        inputs = (query[:, :, rows], key[:, :, columns], value[:, :, columns], tau, table, dense, sink, weights)
        return Call(native, inputs)


def _of_lane(mask: masks.Mask, batch: int, head: int) -> masks.Mask:
    match mask:
        case masks.And() | masks.Or():
            return type(mask)(_of_lane(mask.left, batch, head), _of_lane(mask.right, batch, head))
        case masks.Not():
            return masks.Not(_of_lane(mask.mask, batch, head))
        case masks.Lengths():
            return masks.Lengths(_entry(mask.lengths, batch))
        case masks.Prefix():
            return mask if isinstance(mask.p, int) else masks.Prefix(_entry(mask.p, batch))
        case masks.Documents():
            queries = None if mask.query_ids is None else _row(mask.query_ids, batch)
            return masks.Documents(_row(mask.key_ids, batch), queries)
        case masks.Blocks():
            return masks.Blocks(mask.size, _picked(four(mask.layout), batch, head))
        case masks.Dense():
            return masks.Dense(_picked(four(mask.tensor), batch, head))
    return mask


def _of_rectangle(mask: masks.Mask, plane: Plane, rows: slice, columns: slice) -> masks.Mask:
    """Masks speak of positions, but for tables of pairs and of rows."""
    match mask:
        case masks.And() | masks.Or():
            return type(mask)(*(_of_rectangle(part, plane, rows, columns) for part in (mask.left, mask.right)))
        case masks.Not():
            return masks.Not(_of_rectangle(mask.mask, plane, rows, columns))
        case masks.Documents():
            return masks.Documents(mask.key_ids, mask.query_rows(plane, rows))
        case masks.Dense():
            return masks.Dense(_within(four(mask.tensor), rows, columns))
    return mask


def _entry(numbers: Tensor, batch: int) -> Tensor:
    return numbers if numbers.numel() == 1 else numbers[batch : batch + 1]


def _row(ids: Tensor, batch: int) -> Tensor:
    if ids.ndim == 1:
        return ids
    return ids[0] if len(ids) == 1 else ids[batch]


def _picked(table: Tensor, batch: int, head: int) -> Tensor:
    """(batch or 1, head or 1, …) of one lane."""
    row, own = (0 if size == 1 else at for size, at in zip(table.shape[:2], (batch, head), strict=True))
    return table[row : row + 1, own : own + 1]


def _within(table: Tensor, rows: slice, columns: slice) -> Tensor:
    """(…, query or 1, key or 1) of a rectangle."""
    if table.shape[-2] != 1:
        table = table[..., rows, :]
    return table if table.shape[-1] == 1 else table[..., columns]
