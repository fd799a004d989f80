"""Mask bytecode: the steps of a mask as the kernels read them, with the addresses and strides of their tensors."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from regard.engine.native.library import MaskOp, address
from regard.spec import steps
from regard.spec.masks import Mask
from regard.spec.masks.documents import id_spans
from regard.spec.plane import Plane

OPEN = 1 << 60  # a side of a band without end
WINDOW, DILATED, BELOW, GLOBAL, DOCUMENTS, BLOCKS, DENSE, AND, OR, NOT = 1, 2, 3, 4, 5, 6, 7, 10, 11, 12
COMBINE = {steps.Combine.AND: AND, steps.Combine.OR: OR, steps.Combine.NOT: NOT}


@dataclass
class Program:
    """The operations of a mask: code, two numbers, the tensors it points into, and their strides."""

    operations: list[tuple[int, int, int, tuple[Tensor, ...], tuple[int, ...]]] = field(default_factory=list)

    def add(self, code: int, a: int = 0, b: int = 0, *data: Tensor, strides: tuple[int, ...] = ()) -> None:
        """Add one operation."""
        self.operations.append((code, a, b, data, (*strides, *(0,) * (4 - len(strides)))))

    def ops(self) -> list[MaskOp]:
        """The operations as C structs. Addresses are taken now: a storage may have moved since."""
        found = []
        for code, a, b, data, strides in self.operations:
            pointers = [address(tensor) for tensor in data] + [None] * (3 - len(data))
            found.append(MaskOp(code, a, b, *pointers, *strides))
        return found


def program(mask: Mask, plane: Plane) -> Program:
    """The bytecode of a mask that is `closed`; no operation for one that hides nothing."""
    code, lowered = Program(), mask.steps(plane)
    if not steps.shows_everything(lowered):
        for step in lowered:
            _add(code, step)
    return code


def _add(code: Program, step: steps.MaskStep) -> None:
    match step:
        case steps.Combine():
            code.add(COMBINE[step])
        case steps.Band():
            before, after = (OPEN if side is None else side for side in (step.before, step.after))
            code.add(WINDOW, before, after)
        case steps.DilatedBand():
            code.add(DILATED, step.reach, step.step)
        case steps.Below():
            limits = step.limits.reshape(-1).contiguous()
            code.add(BELOW, 0, 0, limits, strides=(int(limits.numel() > 1),))
        case steps.Among():
            code.add(GLOBAL, step.positions.numel(), 0, step.positions.contiguous())
        case steps.SameId():
            _add_ids(code, step)
        case steps.BlockTable():
            layout = step.layout.view(torch.uint8)
            code.add(BLOCKS, step.size, 0, layout, strides=(*_strides(layout)[:2], *layout.stride()[2:]))
        case steps.PairTable():
            table = step.tensor.view(torch.uint8)
            code.add(DENSE, 0, 0, table, strides=_strides(table))
        case _:
            raise TypeError(f"the kernels call no functions; a mask that lowers to {step!r} must name its `functions`")


def _add_ids(code: Program, step: steps.SameId) -> None:
    """Ids of keys and queries, and for each query the span of keys with its id, and whether all of the span has it."""
    keys, queries = step.keys.contiguous(), step.queries.contiguous()
    spans = torch.zeros((max(len(keys), len(queries)), queries.shape[1], 3), dtype=torch.int64, device="cpu")
    if spans.numel() and keys.numel():
        start, stop, solid = id_spans(keys, queries, 1)
        spans[..., 0], spans[..., 1], spans[..., 2] = start, torch.maximum(start, stop), solid
    strides = tuple(0 if len(ids) == 1 else ids.stride(0) for ids in (keys, queries, spans))
    code.add(DOCUMENTS, 0, 0, keys, queries, spans, strides=strides)


def _strides(table: Tensor) -> tuple[int, ...]:
    return tuple(0 if size == 1 else stride for size, stride in zip(table.shape, table.stride(), strict=True))
