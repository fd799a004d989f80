"""The passes of a ring: keys go round, and every process computes its rows forward, backward and by key."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.engine.request import Request
from regard.engine.ring.link import Link, Pending
from regard.engine.ring.local import MergedRows, local_rows, needed_statistics, received_in
from regard.engine.ring.shards import Rectangle, Route, RowRange, Shards
from regard.spec.normalizers import Softmax
from regard.spec.plane import Selection

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class Exchange:
    """A tensor (…, row, width) of this process that goes from one division of its rows to another."""

    tensor: Tensor
    source: Shards
    target: Shards

    @property
    def row_size(self) -> int:
        """Numbers in one row, over all heads of the batch."""
        return self.tensor.shape[:-2].numel() * self.tensor.shape[-1]


def exchange(link: Link, jobs: Sequence[Exchange]) -> list[Tensor]:
    """Every tensor as the target divides it. All have one dtype; each pair of processes exchanges one message."""
    if all(job.source == job.target for job in jobs):
        return [job.tensor for job in jobs]
    me, others = link.rank, [rank for rank in range(link.world) if rank != link.rank]
    incoming = {rank: [job.source.moves(job.target, rank, me) for job in jobs] for rank in others}
    sizes = {
        rank: [move.length * job.row_size for job, moves in zip(jobs, by_job, strict=True) for move in moves]
        for rank, by_job in incoming.items()
    }
    receives = [(rank, jobs[0].tensor.new_empty(sum(sizes[rank]))) for rank in others]
    sends = []
    for rank in others:
        outgoing = [(job, move) for job in jobs for move in job.source.moves(job.target, me, rank)]
        sends.append((rank, _packed([job.tensor[..., move.taken, :] for job, move in outgoing])))
    pending = link.start(sends, receives)
    del sends
    moved = []
    for job in jobs:
        *batch_heads, _, width = job.tensor.shape
        moved.append(job.tensor.new_empty((*batch_heads, job.target.lengths[me], width)))
        for move in job.source.moves(job.target, me, me):
            moved[-1][..., move.put, :] = job.tensor[..., move.taken, :]
    pending.wait()
    for rank, message in receives:
        parts = iter(message.split(sizes[rank]))
        for tensor, moves in zip(moved, incoming[rank], strict=True):
            for move in moves:
                rows = tensor[..., move.put, :]
                rows.copy_(next(parts).view(rows.shape))
    return moved


def _packed(parts: Sequence[Tensor]) -> Tensor:
    """One message for all parts."""
    return (
        torch.cat([part.reshape(-1) for part in parts]) if parts else torch.empty(0, device="cpu", dtype=torch.float32)
    )


@dataclass(frozen=True, eq=False)
class KeyBlock:
    """Rows of some spans of the keys of one process, or sums over them. `tensors` are by span, then by tensor.

    `buffer` is the message that all tensors are parts of; empty for a process's own keys.
    """

    source: int
    spans: tuple[RowRange, ...]
    tensors: tuple[Tensors, ...]
    buffer: Tensor

    @classmethod
    def empty(cls, source: int, spans: tuple[RowRange, ...], like: Sequence[Tensor]) -> "KeyBlock":
        """A block to receive rows of these spans, in the shapes of `like` otherwise."""
        shapes = [(*tensor.shape[:-2], span.length, tensor.shape[-1]) for span in spans for tensor in like]
        sizes = [torch.Size(shape).numel() for shape in shapes]
        buffer = like[0].new_empty(sum(sizes))
        parts = [part.view(shape) for part, shape in zip(buffer.split(sizes), shapes, strict=True)] if shapes else []
        step = len(like)
        by_span = tuple(tuple(parts[first : first + step]) for first in range(0, len(parts), step))
        return cls(source, spans, by_span, buffer)

    def sliced(self, columns: RowRange) -> Tensors:
        """The rows of a span that lies in one of these."""
        for span, tensors in zip(self.spans, self.tensors, strict=True):
            if span.start <= columns.start and columns.stop <= span.stop:
                return tuple(tensor[..., columns.within(span), :] for tensor in tensors)
        raise KeyError(columns)


@dataclass(frozen=True, eq=False)
class RingCall:
    """A request whose plane is the whole and whose tensors are this process's shard; the shards, and the route."""

    request: Request
    queries: Shards
    keys: Shards
    route: Route
    link: Link
    engine: str

    @property
    def returns_lse(self) -> bool:
        """Whether the rows' lse is returned or merged with a sink, and may get a gradient."""
        return "lse" in self.request.aux or self.request.sink is not None

    def at(self, rows: RowRange) -> slice:
        """Where rows that this process computes lie in its tensors."""
        return self.route.queries.at(self.link.rank, rows)

    def rows(self, query: Tensor, rows: RowRange) -> Tensor:
        """Some rows of a (…, query, width) tensor of this process."""
        return query[..., self.at(rows), :]

    def rectangles(self, block: KeyBlock) -> tuple[Rectangle, ...]:
        """What this process computes with these keys."""
        return self.route.rectangles[self.link.rank][block.source]

    def own_keys(self, span: RowRange, tensors: Sequence[Tensor]) -> Tensors:
        """The rows of a span of keys that lies in this process's shard."""
        at = self.route.keys.at(self.link.rank, span)
        return tuple(tensor[..., at, :] for tensor in tensors)


def key_blocks(call: RingCall, *tensors: Tensor) -> Iterator[KeyBlock]:
    """One round of keys: own keys first, then at step t those of the process t places before this one.

    The next block is under way while one is computed.
    """
    link, columns = call.link, call.route.columns
    me, world = link.rank, link.world
    own = tuple(call.own_keys(span, tensors) for span in columns[me][me])
    block = KeyBlock(me, columns[me][me], own, tensors[0].new_empty(0))
    for step in range(1, world):
        reader, source = (me + step) % world, (me - step) % world
        following = KeyBlock.empty(source, columns[me][source], tensors)
        message = _packed([part for span in columns[reader][me] for part in call.own_keys(span, tensors)])
        pending = link.start([(reader, message)], [(source, following.buffer)])
        del message
        yield block
        pending.wait()
        block = following
    yield block


def blocks_with_sums(
    call: RingCall, tensors: Tensors, totals: Sequence[Tensor], returned: bool = True
) -> Iterator[tuple[KeyBlock, KeyBlock]]:
    """The blocks of `key_blocks`, each with zeros shaped like `totals` to add to.

    If `returned`, the sums go back to the process that holds the keys, a step behind the keys, and are added to its
    `totals`.
    """
    link, columns = call.link, call.route.columns
    pending: tuple[Pending, KeyBlock] | None = None

    def add(sums: KeyBlock) -> None:
        for span, parts in zip(sums.spans, sums.tensors, strict=True):
            for total, part in zip(call.own_keys(span, totals), parts, strict=True):
                total += part

    for step, block in enumerate(key_blocks(call, *tensors)):
        sums = KeyBlock.empty(block.source, block.spans, totals)
        sums.buffer.zero_()
        yield block, sums
        if pending is not None:
            pending[0].wait()
            add(pending[1])
            pending = None
        if returned and step == 0:
            add(sums)
        elif returned:
            reader = (link.rank + step) % link.world
            incoming = KeyBlock.empty(reader, columns[reader][link.rank], totals)
            pending = link.start([(block.source, sums.buffer)], [(reader, incoming.buffer)]), incoming
            del incoming
    if pending is not None:
        pending[0].wait()
        add(pending[1])


def forward(call: RingCall, query: Tensor, key: Tensor, value: Tensor) -> list[MergedRows]:
    """All spans of this process's rows, each merged over all keys."""
    request, statistics = call.request, needed_statistics(call.request.aux)
    spans = [span for span in call.route.queries.spans[call.link.rank] if span.length]
    merged = [MergedRows(request, span, statistics) for span in spans]
    for block in key_blocks(call, key, value):
        for part in call.rectangles(block):
            tensors = _widened(request, call.rows(query, part.rows), *block.sliced(part.columns))
            local = local_rows(rectangle(request, tensors, part, statistics), call.engine)
            target = next(one for one in merged if (part.rows & one.rows).length)
            target.add(local, part.rows, part.columns)
    return merged


@dataclass(frozen=True, eq=False)
class RowGradients:
    """Results of all rows and the gradients that arrived for them; those of lse and entropy only if these are used."""

    out: Tensor
    lse: Tensor
    entropy: Tensor
    d_out: Tensor
    d_lse: Tensor | None
    d_entropy: Tensor | None


def backward(
    call: RingCall, inputs: Tensors, rows: RowGradients, tensors: Tensors, needed: tuple[bool, bool]
) -> tuple[list[Tensor], list[Tensor]]:
    """Gradients of query, key and value, and this process's share of those of the spec's tensors.

    `needed`: whether those of the query, and of key and value, are needed.
    """
    query, *keys = inputs
    totals = [torch.zeros_like(tensor, dtype=call.request.dtype) for tensor in inputs]
    shared = [torch.zeros_like(tensor, dtype=torch.float64) for tensor in tensors]
    for block, sums in blocks_with_sums(call, tuple(keys), totals[1:], returned=needed[1]):
        for part in call.rectangles(block):
            widened = _widened(call.request, call.rows(query, part.rows), *block.sliced(part.columns))
            leaves = tuple(
                tensor.detach().requires_grad_(need)
                for tensor, need in zip(widened, (needed[0], needed[1], needed[1]), strict=True)
            )
            gradients = _gradients(call, part, leaves, tensors, rows)
            targets = [call.rows(totals[0], part.rows), *sums.sliced(part.columns), *shared]
            for total, gradient in zip(targets, gradients, strict=True):
                if gradient is not None:
                    total += gradient
    return totals, shared


def _gradients(
    call: RingCall, part: Rectangle, leaves: Tensors, tensors: Tensors, rows: RowGradients
) -> list[Tensor | None]:
    """Compute one rectangle again, with its graph, and send the gradients through it.

    A rectangle's share s of a row is e^(its lse − the row's), so the row's gradients reach the rectangle's output as
    s·dO, its entropy as s·dH, and its lse as

        s · ((out − O)·dO + d_lse + dH · (entropy − ln s − H)).
    """
    aux = () if rows.d_entropy is None else ("entropy",)
    at = call.at(part.rows)
    with torch.enable_grad():
        local = local_rows(rectangle(call.request, leaves, part, aux), call.engine)
    logs = local.lse - rows.lse[..., at]
    share = torch.where(logs.isfinite(), logs.exp(), 0.0)
    d_out, out, whole = rows.d_out[..., at, :], local.rows.out.detach(), rows.out[..., at, :]
    finite = out.isfinite() & whole.isfinite()  # no gradient flows through a non-finite result
    share = share.to(out.dtype)
    sound = share.unsqueeze(-1) * torch.where(finite, d_out, 0.0)
    rest = torch.where(finite, out - whole, 0.0)
    d_lse = (sound * rest).sum(-1).double()
    if rows.d_lse is not None:
        d_lse = d_lse + share * rows.d_lse[..., at]
    outputs, grads = [local.rows.out, local.rows.state], [sound, d_lse]
    if rows.d_entropy is not None:
        d_entropy = share * rows.d_entropy[..., at]
        known = torch.where(share > 0, local.rows.entropy.detach() - logs - rows.entropy[..., at], 0.0)
        grads[1] = d_lse + d_entropy * known
        outputs.append(local.rows.entropy)
        grads.append(d_entropy)
    pairs = [
        (output, grad.to(output.dtype)) for output, grad in zip(outputs, grads, strict=True) if output.requires_grad
    ]
    targets = [tensor for tensor in (*leaves, *tensors) if tensor.requires_grad]
    if not pairs or not targets:
        return [None] * (len(leaves) + len(tensors))
    ends, starts = zip(*pairs, strict=True)
    gradients = iter(torch.autograd.grad(ends, targets, starts, allow_unused=True))
    return [next(gradients) if tensor.requires_grad else None for tensor in (*leaves, *tensors)]


def received(call: RingCall, query: Tensor, key: Tensor, lse: Tensor) -> Tensor:
    """Σ over all queries of the weights, (batch, kv head, group, key) of the keys that this process computes with.

    `lse` is that of this process's rows, sink included.
    """
    plane = call.request.plane
    size = (plane.batch, plane.kv_heads, plane.group, key.shape[-2], 1)
    total = torch.zeros(size, dtype=call.request.dtype, device=key.device)
    for block, sums in blocks_with_sums(call, (key,), [total]):
        for part in call.rectangles(block):
            (columns,) = block.sliced(part.columns)
            tensors = _widened(call.request, call.rows(query, part.rows), columns, columns[..., :0])
            rows = received_in(rectangle(call.request, tensors, part), lse[..., call.at(part.rows)], call.engine)
            (by_key,) = sums.sliced(part.columns)
            by_key += rows.unsqueeze(-1)
    return total.squeeze(-1)


def _widened(request: Request, *tensors: Tensor) -> Tensors:
    """In the accumulating precision: results and gradients of parts must not be rounded before they are added."""
    return tuple(tensor.to(request.dtype) for tensor in tensors)


def rectangle(request: Request, tensors: Tensors, part: Rectangle, aux: tuple[str, ...] = ()) -> Request:
    """The call of one rectangle alone, whose tensors these are; without the sink, which is counted once."""
    selection = Selection(rows=slice(*part.rows), columns=slice(*part.columns), queries=request.plane.queries)
    query, key, value = tensors
    return replace(
        request,
        query=query,
        key=key,
        value=value,
        mask=request.mask.sliced(selection),
        bias=None if request.bias is None else request.bias.sliced(selection),
        normalizer=Softmax(),
        aux=aux,
        plane=request.plane.sliced(selection),
    )
