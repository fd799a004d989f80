"""Masks as the kernels read them: steps in postfix order that point into tensors."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from regard.engine.native.library import MaskOp, address
from regard.spec import masks
from regard.spec.masks.runs import FULL
from regard.spec.masks.tables import four
from regard.spec.plane import Plane

OPEN = 1 << 60  # a side of a window without end
WINDOW, DILATED, BELOW, GLOBAL, DOCUMENTS, BLOCKS, DENSE, AND, OR, NOT = 1, 2, 3, 4, 5, 6, 7, 10, 11, 12
CLOSED = (
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
)


@dataclass
class Program:
    """The steps of a mask: code, two numbers, the tensors it points into, and their strides."""

    steps: list[tuple[int, int, int, tuple[Tensor, ...], tuple[int, ...]]] = field(default_factory=list)

    def step(self, code: int, a: int = 0, b: int = 0, *data: Tensor, strides: tuple[int, ...] = ()) -> None:
        """Add one step."""
        self.steps.append((code, a, b, data, (*strides, *(0,) * (4 - len(strides)))))

    def ops(self) -> list[MaskOp]:
        """The steps as the kernels read them. Addresses are those of now: a storage may have moved since."""
        found = []
        for code, a, b, data, strides in self.steps:
            pointers = [address(tensor) for tensor in data] + [None] * (3 - len(data))
            found.append(MaskOp(code, a, b, *pointers, *strides))
        return found

    def add(self, mask: masks.Mask, plane: Plane) -> None:
        """Add the steps of a mask whose leaves all have a closed form."""
        match mask:
            case masks.And() | masks.Or():
                self.add(mask.left, plane)
                self.add(mask.right, plane)
                self.step(AND if isinstance(mask, masks.And) else OR)
            case masks.Not():
                self.add(mask.mask, plane)
                self.step(NOT)
            case masks.Full():
                self.step(WINDOW, OPEN, OPEN)
            case masks.Causal():
                self.step(WINDOW, OPEN, 0)
            case masks.Window():
                before, after = (OPEN if side is None else side for side in (mask.before, mask.after))
                self.step(WINDOW, before, after)
            case masks.Dilated():
                self.step(DILATED, mask.step * (mask.width // 2), mask.step)
            case masks.Lengths() | masks.Prefix():
                limit = mask.lengths if isinstance(mask, masks.Lengths) else torch.as_tensor(mask.p, device="cpu")
                limit = limit.reshape(-1).contiguous()
                self.step(BELOW, 0, 0, limit, strides=(int(limit.numel() > 1),))
            case masks.Global():
                self.step(GLOBAL, mask.positions.numel(), 0, mask.positions.contiguous())
            case masks.Documents():
                self._documents(mask, plane)
            case masks.Blocks():
                layout = four(mask.layout).view(torch.uint8)
                self.step(BLOCKS, mask.size, 0, layout, strides=(*_steps(layout)[:2], *layout.stride()[2:]))
            case _:
                assert isinstance(mask, masks.Dense)
                table = four(mask.tensor).view(torch.uint8)
                self.step(DENSE, 0, 0, table, strides=_steps(table))

    def _documents(self, mask: masks.Documents, plane: Plane) -> None:
        """Ids of keys and queries, and for each query the span of keys with its id, and whether all of it has it."""
        first, past = plane.key_start, plane.key_start + plane.keys
        ids = mask.key_ids if mask.key_ids.ndim == 2 else mask.key_ids.unsqueeze(0)
        keys = ids[:, first:past].contiguous()
        queries = mask.query_rows(plane, slice(0, plane.queries)).contiguous()
        spans = torch.zeros((max(len(keys), len(queries)), plane.queries, 3), dtype=torch.int64, device="cpu")
        if spans.numel() and keys.numel():
            runs = mask.runs(plane.strips(1))
            start, stop, kind = runs.edges[..., 1], runs.edges[..., 2], runs.kinds[..., 1]
            spans[..., 0] = (start - first).reshape(-1, plane.queries)
            spans[..., 1] = (stop - first).reshape(-1, plane.queries)
            spans[..., 2] = (kind == FULL).reshape(-1, plane.queries)
        strides = tuple(0 if len(t) == 1 else t.stride(0) for t in (keys, queries, spans))
        self.step(DOCUMENTS, 0, 0, keys, queries, spans, strides=strides)


def closed(mask: masks.Mask) -> bool:
    """Whether every leaf has a closed form or a table."""
    return all(isinstance(leaf, CLOSED) for leaf in mask.leaves())


def program(mask: masks.Mask, plane: Plane) -> Program:
    """The steps of a whole mask; none for Full."""
    found = Program()
    if not isinstance(mask, masks.Full):
        found.add(mask, plane)
    return found


def _steps(table: Tensor) -> tuple[int, ...]:
    return tuple(0 if size == 1 else stride for size, stride in zip(table.shape, table.stride(), strict=True))
