"""Attention over keys in several chunks, each with its own position, as an evicting KV cache holds them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.engine import context
from regard.engine.attend import attend, run
from regard.engine.partial import Partial, merge
from regard.engine.request import Request, request
from regard.spec.dropout import drawn
from regard.spec.normalizers import Normalizer, Softmax

if TYPE_CHECKING:
    from regard.engine.ring import Ring


@dataclass(frozen=True, eq=False)
class KeyChunk:
    """Keys and values (batch, head, length, width) whose first stands at absolute position `start`."""

    key: Tensor
    value: Tensor
    start: int = 0


def attend_chunks(
    query: Tensor, pieces: Sequence[KeyChunk], *, normalizer: Normalizer, engine: "str | Ring" = "auto", **spec: Any
) -> Tensor:
    """`attend` over the keys of all pieces; they share no position, and `query_start` must be given.

    Pieces are merged by their lse, so more than one needs a Softmax; its sink is counted once.
    """
    if context.autocast_enabled(query):
        low = [
            KeyChunk(context.to_autocast(piece.key), context.to_autocast(piece.value), piece.start) for piece in pieces
        ]
        with context.autocast_disabled(query.device):
            return attend_chunks(context.to_autocast(query), low, normalizer=normalizer, engine=engine, **spec)
    if len(pieces) == 1 and pieces[0].start == 0:
        out: Tensor = attend(query, pieces[0].key, pieces[0].value, normalizer=normalizer, engine=engine, **spec)
        return out
    if not isinstance(engine, str):
        raise ValueError("a Ring takes keys that begin at 0 and lie in one piece; leave out the cache and query_start")
    if len(pieces) == 1:
        asked = _chunk_request(query, pieces[0], normalizer, (), spec)
        return asked.shapes.unfold(run(asked, engine).out)
    if not isinstance(normalizer, Softmax):
        raise ValueError(
            f"keys that lie apart are merged by their lse, which {normalizer!r} has not; "
            "use Softmax, or a cache that keeps every key"
        )
    spec["dropout"] = drawn(spec["dropout"]) or 0.0
    merged = reduce(merge, [_chunk_partial(query, piece, engine, spec) for piece in pieces])
    if normalizer.sink is not None:
        sink = torch.as_tensor(normalizer.sink, dtype=merged.lse.dtype, device=query.device)
        nothing = Partial(torch.zeros_like(merged.out), sink.reshape(-1, 1).expand_as(merged.lse))
        merged = merge(merged, nothing)
    return merged.out.to(query.dtype)


def _chunk_partial(query: Tensor, piece: KeyChunk, engine: str, spec: dict[str, Any]) -> Partial:
    """Attention over one piece, the sink left out."""
    asked = _chunk_request(query, piece, Softmax(), ("lse",), spec)
    found = run(asked, engine)
    assert found.aux.lse is not None
    out = asked.shapes.unfold(found.out)
    return Partial(out.to(found.aux.lse.dtype), asked.shapes.unfold(found.aux.lse))


def _chunk_request(
    query: Tensor, piece: KeyChunk, normalizer: Normalizer, aux: tuple[str, ...], spec: dict[str, Any]
) -> Request:
    return request(query, piece.key, piece.value, normalizer=normalizer, aux=aux, key_start=piece.start, **spec)
