"""Partial: attention over some of the keys, the function that merges two, and attention over chunks of keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.engine import context
from regard.engine.attend import attend, run
from regard.engine.request import Request, request
from regard.spec.dropout import drawn
from regard.spec.normalizers import Normalizer, Softmax

if TYPE_CHECKING:
    from regard.engine.ring import Ring


@dataclass(frozen=True, eq=False)
class Partial:
    """`out` (…, query, d_v) and `lse` (…, query), the natural log of the summed e^(logit/τ).

    A query that saw no key has out = 0 and lse = −inf.
    """

    out: Tensor
    lse: Tensor


def merge(left: Partial, right: Partial) -> Partial:
    """Combine attention over two disjoint sets of keys into attention over both.

    Two queries that saw no key merge into a third; one that saw NaN is NaN in both results, and no gradient
    passes through it. The order changes only rounding.
    """
    if left.lse.shape != right.lse.shape:
        raise ValueError(
            "merge joins two parts of the same queries, "
            f"got lse {tuple(left.lse.shape)} and {tuple(right.lse.shape)}; split the keys, not the queries"
        )
    bad = left.lse.isnan() | right.lse.isnan()
    lse_left, lse_right = (torch.where(bad, -torch.inf, part.lse) for part in (left, right))
    # −inf minus −inf is NaN, so a row that saw no key is shifted by 0 instead
    top = torch.maximum(lse_left, lse_right).detach()
    shift = torch.where(top == -torch.inf, 0.0, top)
    share_left, share_right = (lse_left - shift).exp(), (lse_right - shift).exp()
    total = share_left + share_right
    empty = total == 0
    total = torch.where(empty, 1.0, total)
    lse = torch.where(empty, -torch.inf, shift + total.log())
    out = _shared(left.out, share_left / total) + _shared(right.out, share_right / total)
    # a choice, not a product by 0: whatever gradient arrives at a row that one part did not see stays away from it
    out = torch.where((lse_right == -torch.inf).unsqueeze(-1), left.out, out)
    out = torch.where((lse_left == -torch.inf).unsqueeze(-1), right.out, out)
    return Partial(torch.where(bad.unsqueeze(-1), torch.nan, out), torch.where(bad, torch.nan, lse))


def _shared(out: Tensor, share: Tensor) -> Tensor:
    """out · share; what is not finite in `out` stays as it is, and the gradient does not see it."""
    finite = out.isfinite()
    return torch.where(finite, torch.where(finite, out, 0.0) * share.unsqueeze(-1), out.detach())


@dataclass(frozen=True, eq=False)
class KeyChunk:
    """Keys and values (batch, head, length, width) whose first stands at absolute position `start`."""

    key: Tensor
    value: Tensor
    start: int = 0


def attend_chunks(
    query: Tensor, chunks: Sequence[KeyChunk], *, normalizer: Normalizer, engine: "str | Ring" = "auto", **spec: Any
) -> Tensor:
    """`attend` over the keys of all chunks; they share no position, and `query_start` must be given.

    Pieces are merged by their lse, so more than one needs a Softmax; its sink is counted once.
    """
    if context.autocast_enabled(query):
        low = [
            KeyChunk(context.to_autocast(chunk.key), context.to_autocast(chunk.value), chunk.start) for chunk in chunks
        ]
        with context.autocast_disabled(query.device):
            return attend_chunks(context.to_autocast(query), low, normalizer=normalizer, engine=engine, **spec)
    if len(chunks) == 1 and chunks[0].start == 0:
        out: Tensor = attend(query, chunks[0].key, chunks[0].value, normalizer=normalizer, engine=engine, **spec)
        return out
    if not isinstance(engine, str):
        raise ValueError("a Ring takes keys that begin at 0 and lie in one piece; leave out the cache and query_start")
    if len(chunks) == 1 and context.exporting_onnx():
        from regard.engine.onnx import attend_exported

        chunk, spec = chunks[0], {**spec, "normalizer": normalizer}
        exported = attend_exported(query, chunk.key, chunk.value, spec, key_start=chunk.start)
        assert isinstance(exported, Tensor)
        return exported
    if len(chunks) == 1:
        checked = _chunk_request(query, chunks[0], normalizer, (), spec)
        return checked.shapes.unfold(run(checked, engine).out)
    if not isinstance(normalizer, Softmax):
        raise ValueError(
            f"keys that lie apart are merged by their lse, which {normalizer!r} has not; "
            "use Softmax, or a cache that keeps every key"
        )
    spec["dropout"] = drawn(spec["dropout"]) or 0.0
    partials = []
    for chunk in chunks:  # without the sink
        checked = _chunk_request(query, chunk, Softmax(), ("lse",), spec)
        result = run(checked, engine)
        assert result.aux.lse is not None
        out, lse = checked.shapes.unfold(result.out), checked.shapes.unfold(result.aux.lse)
        partials.append(Partial(out.to(lse.dtype), lse))
    merged = reduce(merge, partials)
    if normalizer.sink is not None:
        sink = torch.as_tensor(normalizer.sink, dtype=merged.lse.dtype, device=query.device)
        nothing = Partial(torch.zeros_like(merged.out), sink.reshape(-1, 1).expand_as(merged.lse))
        merged = merge(merged, nothing)
    return merged.out.to(query.dtype)


def _chunk_request(
    query: Tensor, chunk: KeyChunk, normalizer: Normalizer, aux: tuple[str, ...], spec: dict[str, Any]
) -> Request:
    return request(query, chunk.key, chunk.value, normalizer=normalizer, aux=aux, key_start=chunk.start, **spec)
