"""The passes of a ring: keys go round, and every process computes its rows forward, backward and by key."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.engine.request import Request
from regard.engine.ring.link import Link, Pending
from regard.engine.ring.local import MergedRows, local_rows, needed_statistics, received_in
from regard.engine.ring.shards import Rectangle, Route, Shards, Span
from regard.spec.normalizers import Softmax
from regard.spec.plane import Selection


@dataclass(frozen=True, eq=False)
class Exchange:
    """A tensor (…, row, width) of this process that goes from one division of its rows to another."""

    tensor: Tensor
    source: Shards
    target: Shards


def exchange(link: Link, jobs: Sequence[Exchange]) -> list[Tensor]:
    """Every tensor as the target divides it. All have one dtype, and travel in one message for each pair."""
    if all(job.source == job.target for job in jobs):
        return [job.tensor for job in jobs]
    me, others = link.rank, [rank for rank in range(link.world) if rank != link.rank]
    sends = [(rank, _packed([_rows(job, me, rank) for job in jobs])) for rank in others]
    receives = [(rank, jobs[0].tensor.new_empty(sum(_sizes(jobs, rank, me)))) for rank in others]
    pending = link.start(sends, receives)
    found = [_target(job, me) for job in jobs]
    for job, tensor in zip(jobs, found, strict=True):
        for move in job.source.moves(job.target, me, me):
            tensor[..., move.put, :] = job.tensor[..., move.taken, :]
    pending.wait()
    for rank, message in receives:
        parts = message.split(_sizes(jobs, rank, me))
        for job, tensor, part in zip(jobs, found, parts, strict=True):
            moves = job.source.moves(job.target, rank, me)
            lengths = [move.length * _width(job.tensor) for move in moves]
            for move, piece in zip(moves, part.split(lengths), strict=True):
                tensor[..., move.put, :] = piece.view(tensor[..., move.put, :].shape)
    return found


def _target(job: Exchange, rank: int) -> Tensor:
    *lanes, _, width = job.tensor.shape
    return job.tensor.new_empty((*lanes, job.target.lengths[rank], width))


def _rows(job: Exchange, source: int, target: int) -> list[Tensor]:
    return [job.tensor[..., move.taken, :] for move in job.source.moves(job.target, source, target)]


def _sizes(jobs: Sequence[Exchange], source: int, target: int) -> list[int]:
    return [
        sum(move.length for move in job.source.moves(job.target, source, target)) * _width(job.tensor) for job in jobs
    ]


def _width(tensor: Tensor) -> int:
    """Numbers of one row, over all lanes."""
    return tensor.shape[:-2].numel() * tensor.shape[-1]


def _packed(parts: Sequence[Sequence[Tensor]]) -> Tensor:
    flat = [piece.reshape(-1) for part in parts for piece in part]
    return torch.cat(flat) if flat else torch.empty(0, device="cpu", dtype=torch.float32)


@dataclass(frozen=True, eq=False)
class KeyBlock:
    """Keys of another process, or of this one: of each tensor the rows of some spans."""

    source: int
    spans: tuple[Span, ...]
    tensors: tuple[tuple[Tensor, ...], ...]  # by span, then by tensor

    def cut(self, columns: Span) -> tuple[Tensor, ...]:
        """The rows of a span that one of these holds."""
        for span, tensors in zip(self.spans, self.tensors, strict=True):
            if span.start <= columns.start and columns.stop <= span.stop:
                return tuple(tensor[..., columns.within(span), :] for tensor in tensors)
        raise KeyError(columns)


class KeyRound:
    """One round of keys: at step t every process works with those of the process t places before it."""

    def __init__(self, link: Link, route: Route, tensors: Sequence[Tensor]) -> None:
        self.link, self.route, self.tensors = link, route, tuple(tensors)

    def __iter__(self) -> Iterator[KeyBlock]:
        """Own keys first; the next are under way while one block is computed."""
        carried, pending = self._own(), Pending(self.link, [], [])
        for step in range(self.link.world):
            after = self._next(step + 1) if step + 1 < self.link.world else (None, pending)
            yield carried
            after[1].wait()
            if after[0] is not None:
                carried = after[0]

    def _own(self) -> KeyBlock:
        me = self.link.rank
        spans = self.route.columns(me, me)
        return KeyBlock(me, spans, tuple(self.held(span) for span in spans))

    def held(self, span: Span) -> tuple[Tensor, ...]:
        """The rows of a span that lies in this process's shard."""
        for held, at in self.route.keys.placed(self.link.rank):
            if (span & held).length == span.length:
                rows = slice(at.start + span.start - held.start, at.start + span.stop - held.start)
                return tuple(tensor[..., rows, :] for tensor in self.tensors)
        raise KeyError(span)

    def _next(self, step: int) -> tuple[KeyBlock, Pending]:
        me, world = self.link.rank, self.link.world
        reader, source = (me + step) % world, (me - step) % world
        send = _packed([self.held(span) for span in self.route.columns(reader, me)])
        spans = self.route.columns(me, source)
        buffer, tensors = receive_buffer(self.tensors, spans)
        return KeyBlock(source, spans, tensors), self.link.start([(reader, send)], [(source, buffer)])


def receive_buffer(like: Sequence[Tensor], spans: Sequence[Span]) -> tuple[Tensor, tuple[tuple[Tensor, ...], ...]]:
    """One buffer for rows of these spans of all tensors, and the parts of it."""
    shapes = [(*tensor.shape[:-2], span.length, tensor.shape[-1]) for span in spans for tensor in like]
    sizes = [torch.Size(shape).numel() for shape in shapes]
    buffer = like[0].new_empty(sum(sizes))
    parts = [part.view(shape) for part, shape in zip(buffer.split(sizes), shapes, strict=True)] if shapes else []
    step = len(like)
    return buffer, tuple(tuple(parts[first : first + step]) for first in range(0, len(parts), step))


Three = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class RingCall:
    """A request whose plane is the whole and whose tensors are this process's shard; how they lie, and the way."""

    request: Request
    queries: Shards
    keys: Shards
    route: Route
    link: Link
    engine: str

    @property
    def tells_lse(self) -> bool:
        """Whether someone looks at the rows' lse, and may send a gradient for it."""
        return "lse" in self.request.aux or self.request.sink is not None

    @property
    def parts(self) -> list[tuple[Span, slice]]:
        """Spans of rows that this process computes, and where they lie in its tensors."""
        return [(span, at) for span, at in self.route.queries.placed(self.link.rank) if span.length]

    def rectangles(self, carried: KeyBlock) -> tuple[Rectangle, ...]:
        """What to compute with these keys."""
        return self.route.rectangles[self.link.rank][carried.source]

    def rows(self, query: Tensor, rows: Span) -> Tensor:
        """Some rows of a (…, query, width) tensor of this process."""
        return query[..., self.at(rows), :]

    def at(self, rows: Span) -> slice:
        """Where rows that it computes lie in its tensors."""
        for span, at in self.parts:
            if (rows & span).length == rows.length:
                return slice(at.start + rows.start - span.start, at.start + rows.stop - span.start)
        raise KeyError(rows)


def forward(call: RingCall, query: Tensor, key: Tensor, value: Tensor) -> list[MergedRows]:
    """All parts of this process's rows, merged."""
    request, statistics = call.request, needed_statistics(call.request.aux)
    found = [MergedRows(request, span, statistics) for span, _ in call.parts]
    for carried in KeyRound(call.link, call.route, (key, value)):
        for part in call.rectangles(carried):
            tensors = _wide(request, call.rows(query, part.rows), *carried.cut(part.columns))
            local = local_rows(rectangle(request, tensors, part.rows, part.columns, statistics), call.engine)
            home = next(one for one in found if (part.rows & one.rows).length)
            home.add(local, part.rows, part.columns)
    return found


@dataclass(frozen=True, eq=False)
class RowGradients:
    """Results of all rows, and the gradients that came for them: of the output, and if asked of lse and entropy."""

    out: Tensor
    lse: Tensor
    entropy: Tensor
    d_out: Tensor
    d_lse: Tensor | None
    d_entropy: Tensor | None


def backward(
    call: RingCall, inputs: Three, rows: RowGradients, tensors: tuple[Tensor, ...], needed: tuple[bool, bool]
) -> tuple[list[Tensor], list[Tensor]]:
    """Gradients of query, key and value, and this process's share of those of the spec's tensors.

    `needed`: whether those of the query, and of key and value, are needed.
    """
    query, key, value = inputs
    totals = [torch.zeros_like(tensor, dtype=call.request.dtype) for tensor in inputs]
    shared = [torch.zeros_like(tensor, dtype=torch.float64) for tensor in tensors]
    returns = GradientReturns(call, totals[1:])
    for carried in KeyRound(call.link, call.route, (key, value)):
        buffer, places = receive_buffer(totals[1:], carried.spans)
        buffer.zero_()
        home = KeyBlock(carried.source, carried.spans, places)
        for part in call.rectangles(carried):
            leaves = _leaves(_wide(call.request, call.rows(query, part.rows), *carried.cut(part.columns)), needed)
            found = _gradients(call, part, leaves, tensors, rows)
            sums = [call.rows(totals[0], part.rows), *home.cut(part.columns), *shared]
            for total, grad in zip(sums, found, strict=True):
                if grad is not None:
                    total += grad
        if needed[1]:
            returns.send(carried, buffer, places)
    returns.finish()
    return totals, shared


def _gradients(
    call: RingCall, part: Rectangle, leaves: Three, tensors: tuple[Tensor, ...], rows: RowGradients
) -> list[Tensor | None]:
    """One rectangle again with its graph. A part's share s of a row is e^(its lse − the row's), so the row's gradients
    reach the part's output as s·dO, its entropy as s·dH, and its lse as

        s · ((out − O)·dO + d_lse + dH · (entropy − ln s − H)).
    """
    aux = () if rows.d_entropy is None else ("entropy",)
    at = call.at(part.rows)
    with torch.enable_grad():
        local = local_rows(rectangle(call.request, leaves, part.rows, part.columns, aux), call.engine)
    logs = local.lse - rows.lse[..., at]
    share = torch.where(logs.isfinite(), logs.exp(), 0.0)
    d_out, out, whole = rows.d_out[..., at, :], local.rows.out.detach(), rows.out[..., at, :]
    finite = out.isfinite() & whole.isfinite()  # nothing flows through a result that is not
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
    pairs = [(output, grad) for output, grad in zip(outputs, grads, strict=True) if output.requires_grad]
    wanted_ = [tensor for tensor in (*leaves, *tensors) if tensor.requires_grad]
    if not pairs or not wanted_:
        return [None] * (len(leaves) + len(tensors))
    ends, starts = [end for end, _ in pairs], [grad.to(end.dtype) for end, grad in pairs]
    given = iter(torch.autograd.grad(ends, wanted_, starts, allow_unused=True))
    return [next(given) if tensor.requires_grad else None for tensor in (*leaves, *tensors)]


class GradientReturns:
    """Gradients of keys and values on their way home, a step behind the keys themselves."""

    def __init__(self, call: RingCall, totals: list[Tensor]) -> None:
        self.call, self.totals, self.step = call, totals, 0
        self._pending: tuple[KeyBlock, list[Tensor]] | None = None

    def send(self, carried: KeyBlock, buffer: Tensor, places: tuple[tuple[Tensor, ...], ...]) -> None:
        """Give back what was found for these keys; take what another process found for this one's."""
        link, route = self.call.link, self.call.route
        if self.step == 0:
            self._add(KeyBlock(link.rank, carried.spans, places))
        else:
            self.finish()
            reader = (link.rank + self.step) % link.world
            spans = route.columns(reader, link.rank)
            incoming, parts = receive_buffer(self.totals, spans)
            self._under_way = link.start([(carried.source, buffer)], [(reader, incoming)])
            self._pending = KeyBlock(reader, spans, parts), [buffer, incoming]
        self.step += 1

    def finish(self) -> None:
        """Wait for what is under way, and add it."""
        if self._pending is not None:
            self._under_way.wait()
            self._add(self._pending[0])
            self._pending = None

    def _add(self, carried: KeyBlock) -> None:
        own = KeyRound(self.call.link, self.call.route, self.totals)
        for span, parts in zip(carried.spans, carried.tensors, strict=True):
            for total, part in zip(own.held(span), parts, strict=True):
                total += part


def received(call: RingCall, query: Tensor, key: Tensor, lse: Tensor) -> Tensor:
    """Σ over all queries of the weights, (batch, kv head, group, key) of the keys that this process computes with.

    `lse` is that of this process's rows, sink included.
    """
    plane, total_keys = call.request.plane, key.shape[-2]
    size = (plane.batch, plane.kv_heads, plane.group, total_keys, 1)
    totals = [torch.zeros(size, dtype=call.request.dtype, device=key.device)]
    returns = GradientReturns(call, totals)
    for carried in KeyRound(call.link, call.route, (key,)):
        buffer, places = receive_buffer(totals, carried.spans)
        buffer.zero_()
        home = KeyBlock(carried.source, carried.spans, places)
        for part in call.rectangles(carried):
            (columns,) = carried.cut(part.columns)
            tensors = _wide(call.request, call.rows(query, part.rows), columns, columns[..., :0])
            block = rectangle(call.request, tensors, part.rows, part.columns)
            (sums,) = home.cut(part.columns)
            sums += received_in(block, lse[..., call.at(part.rows)], call.engine).unsqueeze(-1)
        returns.send(carried, buffer, places)
    returns.finish()
    return totals[0].squeeze(-1)


def _wide(request: Request, *tensors: Tensor) -> Three:
    """In the accumulating precision: results and gradients of parts must not be rounded before they are added."""
    query, key, value = (tensor.to(request.dtype) for tensor in tensors)
    return query, key, value


def _leaves(tensors: Three, needed: tuple[bool, bool]) -> Three:
    query, key, value = tensors
    return (
        query.detach().requires_grad_(needed[0]),
        key.detach().requires_grad_(needed[1]),
        value.detach().requires_grad_(needed[1]),
    )


def rectangle(request: Request, tensors: Three, rows: Span, columns: Span, aux: tuple[str, ...] = ()) -> Request:
    """The call of these rows and columns alone, without the sink, which is counted once; `tensors` are its own."""
    selection = Selection(rows=slice(*rows), columns=slice(*columns), queries=request.plane.queries)
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
