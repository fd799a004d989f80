"""Cut: a call of the native engine made smaller: one head of one batch row, then any rectangle of its pairs."""

from dataclasses import dataclass, replace

from torch import Tensor

from regard.engine.native.call import Inputs, NativeCall, program
from regard.spec import masks
from regard.spec.plane import Selection

PAIRS = ("batch", "head", "query", "key")


@dataclass(frozen=True, eq=False)
class Call:
    """A call without its tensors, and these."""

    native: NativeCall
    inputs: Inputs

    def lane(self, batch: int, head: int) -> "Call":
        """One head of one batch row."""
        query, key, value, tau, table, dense, sink, weights = self.inputs
        plane = self.native.plane
        row = slice(batch, batch + 1)
        selection = Selection.of(plane, row, head)
        own, kv = selection.heads, selection.kv_heads
        small, mask = plane.sliced(selection), self.native.mask.sliced(selection)
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
            None if dense is None else selection.tensor(dense, PAIRS),
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
        selection = Selection(rows=rows, columns=columns, queries=plane.queries)
        small, mask = plane.sliced(selection), self.native.mask.sliced(selection)
        native = replace(self.native, plane=small, mask=mask, program=program(mask, small))
        dense = None if dense is None else selection.tensor(dense, PAIRS)
        inputs = (query[:, :, rows], key[:, :, columns], value[:, :, columns], tau, table, dense, sink, weights)
        return Call(native, inputs)
