"""NativeCall: a request lowered to one call of the native kernels: mask bytecode, tensors and the C struct."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.engine.arguments import FULL
from regard.engine.native.library import DTYPES, FORMS, Call, MaskOp, Strided, address, plain
from regard.engine.native.lowering import Biases, LoweredScore, kernel_step, lower_biases, lower_score
from regard.engine.native.row_blocks import RowBlockMask
from regard.engine.request import Request
from regard.spec import steps
from regard.spec.dropout import Dropout
from regard.spec.masks import Mask
from regard.spec.masks.documents import id_spans
from regard.spec.plane import Plane
from regard.spec.steps import DotProduct

OPEN = 1 << 60  # a side of a band without end
WINDOW, DILATED, BELOW, GLOBAL, DOCUMENTS, BLOCKS, DENSE, AND, OR, NOT = 1, 2, 3, 4, 5, 6, 7, 10, 11, 12
COMBINE = {steps.Combine.AND: AND, steps.Combine.OR: OR, steps.Combine.NOT: NOT}


class Operation(NamedTuple):
    """One operation of mask bytecode: code, two numbers, the tensors it points into, and their strides."""

    code: int
    a: int = 0
    b: int = 0
    data: tuple[Tensor, ...] = ()
    strides: tuple[int, ...] = ()

    def struct(self) -> MaskOp:
        """The C struct. Addresses are taken now: a storage may have moved since."""
        pointers = [address(tensor) for tensor in self.data] + [None] * (3 - len(self.data))
        return MaskOp(self.code, self.a, self.b, *pointers, *self.strides)


def program(mask: Mask, plane: Plane) -> tuple[Operation, ...]:
    """The bytecode of a mask that is `closed`; no operation for one that hides nothing."""
    lowered = mask.steps(plane)
    return () if steps.shows_everything(lowered) else tuple(map(_operation, lowered))


def _operation(step: steps.MaskStep) -> Operation:
    match step:
        case steps.Combine():
            return Operation(COMBINE[step])
        case steps.Band():
            before, after = (OPEN if side is None else side for side in (step.before, step.after))
            return Operation(WINDOW, before, after)
        case steps.DilatedBand():
            return Operation(DILATED, step.reach, step.step)
        case steps.Below():
            limits = step.limits.reshape(-1).contiguous()
            return Operation(BELOW, data=(limits,), strides=(int(limits.numel() > 1),))
        case steps.Among():
            return Operation(GLOBAL, step.positions.numel(), data=(step.positions.contiguous(),))
        case steps.SameId():
            # ids of keys and queries; for each query the span of keys with its id, and whether all of the span has it
            keys, queries = step.keys.contiguous(), step.queries.contiguous()
            spans = torch.zeros((max(len(keys), len(queries)), queries.shape[1], 3), dtype=torch.int64, device="cpu")
            if spans.numel() and keys.numel():
                start, stop, solid = id_spans(keys, queries, 1)
                spans[..., 0], spans[..., 1], spans[..., 2] = start, torch.maximum(start, stop), solid
            data = (keys, queries, spans)
            return Operation(DOCUMENTS, data=data, strides=tuple(_strides(ids)[0] for ids in data))
        case steps.BlockTable():
            layout = step.layout.view(torch.uint8)
            return Operation(BLOCKS, step.size, data=(layout,), strides=(*_strides(layout)[:2], *layout.stride()[2:]))
        case steps.PairTable():
            table = step.tensor.view(torch.uint8)
            return Operation(DENSE, data=(table,), strides=_strides(table))
    raise TypeError(f"the kernels call no functions; a mask that lowers to {step!r} must name its `functions`")


def _strides(table: Tensor) -> tuple[int, ...]:
    return tuple(0 if size == 1 else stride for size, stride in zip(table.shape, table.stride(), strict=True))


# query, key, value, τ per head, table over offsets, dense bias, sink per head, v per head
Inputs = tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None, Tensor | None]


class NotFiniteError(Exception):
    """A query, a key or a result was not finite; the results were thrown away."""


@dataclass(frozen=True, eq=False)
class NativeCall:
    """Everything about a call that is not a differentiable tensor."""

    plane: Plane
    program: tuple[Operation, ...]
    mask: Mask
    scale: float
    cap: float = 0.0
    phi: str | None = None
    dropout: Dropout | None = None
    aux: frozenset[str] = frozenset()
    slopes: Tensor | None = None
    bias_hides: bool = False
    finite: bool = False  # the inputs are known to be finite: results are taken as they come
    buffers: tuple[Tensor, ...] = ()

    def stored(self) -> "NativeCall":
        """The call as backward keeps it: without a table that can be made again."""
        if not isinstance(self.mask, RowBlockMask):
            return self
        empty = self.mask.tensor.new_zeros((1, 1, 1, 1))
        return replace(self, mask=replace(self.mask, tensor=empty), program=())

    def restored(self) -> "NativeCall":
        """The call as it ran."""
        if not isinstance(self.mask, RowBlockMask):
            return self
        mask = replace(self.mask, tensor=self.mask.again())
        return replace(self, mask=mask, program=program(mask, self.plane))

    def call(self, inputs: Inputs, owners: list[Any]) -> Call:
        """The C struct; `owners` keep the memory that it points to."""
        query, key, value, tau, table, dense, sink, weights = inputs
        plane = self.plane
        dtype = torch.promote_types(query.dtype, torch.float32)
        starts = plane.starts.expand(plane.batch).contiguous()
        ops = (MaskOp * len(self.program))(*[operation.struct() for operation in self.program])
        owners += [self, inputs, starts, ops]
        call = Call(
            dtype=DTYPES[query.dtype],
            batch=plane.batch,
            kv_heads=plane.kv_heads,
            group=plane.group,
            queries=plane.queries,
            keys=plane.keys,
            d_key=query.shape[-1],
            d_value=value.shape[-1],
            threads=torch.get_num_threads(),
            query=Strided.of(query),
            key=Strided.of(key),
            value=Strided.of(value),
            form=0 if self.phi is None else FORMS[self.phi],
            scale=self.scale,
            cap=self.cap,
            query_start=address(starts),
            key_start=plane.key_start,
            mask=ops,
            mask_ops=len(ops),
            keep_scale=1.0,
        )
        names = ("temperature", "slopes", "offset_table", "sink", "v")
        for name, tensor in zip(names, (tau, self.slopes, table, sink, weights), strict=True):
            if tensor is not None:
                tensor = tensor.to(dtype).contiguous()
                owners.append(tensor)
                setattr(call, name, address(tensor))
        if table is not None:
            call.reach, call.offset_heads = table.shape[1] // 2, table.shape[0]
        if dense is not None:
            call.dense_bias = Strided.of(dense)
        if self.dropout is not None:
            call.seed, call.drop_below = self.dropout.seed % 2**64, int(self.dropout.p * 2**32)
            call.keep_scale = 1.0 / (1.0 - self.dropout.p)
        return call


def lower_request(
    request: Request, finite: bool, score: LoweredScore | None = None
) -> tuple[NativeCall, Inputs, Biases]:
    """The call, its tensors, and the biases by kind."""
    if not finite and torch.is_grad_enabled() and _unseen_could_show(request):
        raise NotFiniteError
    score = lower_score(request) if score is None else score
    biases = lower_biases(request.bias, request.plane, request.dtype)
    query, key, value = plain(score.query), plain(score.key), plain(score.value)
    sinks = None if request.sink is None else request.sink.reshape(-1).expand(request.plane.heads)
    given = (temperatures(request), biases.table, biases.dense, sinks, score.v)
    tau, table, dense, sink, v = (None if tensor is None else plain(tensor) for tensor in given)
    return native_call(request, score, biases, finite), (query, key, value, tau, table, dense, sink, v), biases


def _unseen_could_show(request: Request) -> bool:
    """Whether a number that is not finite could reach a gradient past the kernels, which skip what nobody sees.

    A score that projects gets zeros back for hidden keys, and the projection's gradient would multiply them with NaN.
    """
    step = kernel_step(request.score)
    if isinstance(step, DotProduct) and step.plain:
        return False
    if not any(part.requires_grad for part in (request.query, request.key, *request.score.parameters.values())):
        return False
    return not all(bool(torch.isfinite(part.detach().sum())) for part in (request.query, request.key))


def native_call(request: Request, score: LoweredScore, biases: Biases, finite: bool) -> NativeCall:
    """The call without its tensors."""
    return NativeCall(
        plane=request.plane,
        program=() if request.mask is FULL else program(request.mask, request.plane),  # FULL: no mask was given
        mask=request.mask,
        scale=score.scale,
        cap=score.cap,
        phi=score.phi,
        dropout=request.dropout,
        aux=frozenset(request.aux),
        slopes=biases.slopes,
        bias_hides=request.bias is not None and request.bias.hides,
        finite=finite,
        buffers=request.buffers,
    )


def temperatures(request: Request) -> Tensor | None:
    """τ of every query head; None for 1."""
    tau = request.temperature
    if isinstance(tau, Tensor):
        return tau.to(request.dtype).reshape(-1).expand(request.plane.heads)
    return None if tau == 1.0 else torch.full((request.plane.heads,), tau, dtype=request.dtype, device="cpu")
