"""Rows between processes: shards that are exchanged, and blocks of keys that go round the ring."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.engine.ring.link import Link, Pending
from regard.engine.ring.route import Route
from regard.engine.ring.shards import Shards, Span


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
