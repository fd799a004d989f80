"""Places: where the queries and keys of a call stand, as far as it tells."""

import torch
from torch import Tensor

from regard.inspection.hooks.call import Call
from regard.inspection.hooks.draft import Draft
from regard.spec.masks import Full

LOW = 0.5  # an added number below this share of its type's least hides a pair


def start_of(draft: Draft) -> int | Tensor:
    """Where the first query stands among the keys: as the call says if it looks at positions; else where a causal mask
    has its corner; else so that the last query stands at the last key."""
    spec, asked = draft.call.spec, draft.asked
    bias, score = asked.bias, asked.score
    if asked.mask.positional_for(draft.queries) or score.positional or (bias is not None and bias.positional):
        given = spec.get("query_start")
        return draft.keys - draft.queries if given is None else given
    corner = _corner(draft)
    if corner is not None:
        return corner
    if draft.queries > draft.keys:
        raise ValueError("it has more queries than keys, and nothing says where they stand")
    return draft.keys - draft.queries


def visible(draft: Draft) -> Tensor:
    """Which pairs take part, (batch or 1, kv head or 1, group or 1, query, key)."""
    asked = draft.asked
    pairs = asked.plane.all
    seen = asked.mask.visible(pairs)
    for term in () if asked.bias is None else asked.bias.terms():
        seen = seen & not_low(term.values(pairs))
    return seen[(None,) * (5 - seen.ndim)].expand(-1, -1, -1, draft.queries, draft.keys)


def not_low(added: Tensor) -> Tensor:
    """False where an added number hides its pair: −inf, or the least number of its type, give or take."""
    return added > LOW * torch.finfo(added.dtype).min


def _corner(draft: Draft) -> int | Tensor | None:
    """The start, if each query's last key is one further than that of the query before."""
    asked = draft.asked
    if isinstance(asked.mask, Full) and asked.bias is None:
        return None
    seen = visible(draft)
    last = draft.keys - 1 - seen.flip(-1).int().argmax(-1)
    starts = last - torch.arange(draft.queries, device=last.device)
    there = seen.any(-1)
    rows: list[int] = []
    for found, some in zip(starts, there, strict=True):
        known = found[some].unique()
        if known.numel() > 1:
            return None
        rows.append(int(known) if known.numel() else draft.keys - draft.queries)
    return rows[0] if len(set(rows)) == 1 else torch.tensor(rows, device="cpu", dtype=torch.int64)


class Track:
    """How many keys the cache of each layer has let go of, told from call to call."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Tensor, int]] = {}

    def first(self, layer: str, call: Call) -> int:
        """The absolute position of the first key. A call goes on from the one before if all its keys, but one for each
        query, are the last of those."""
        key, queries = call.key.detach(), call.query.shape[-2]
        keys, first = key.shape[-2], 0
        if layer in self._last:
            old, before = self._last[layer]
            known = keys - queries
            if 1 <= known <= old.shape[-2]:
                tail, same = _repeated(old[..., old.shape[-2] - known :, :], key[..., :known, :])
                if torch.equal(tail, same):
                    first = before + old.shape[-2] - known
        self._last[layer] = (key, first)
        return first


def _repeated(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Keys of both with as many heads: models may repeat those of a group in one call, and not in the next."""
    if min(one.ndim, other.ndim) < 3:
        return one, other
    heads = max(one.shape[-3], other.shape[-3])
    first, second = (each.repeat_interleave(heads // max(1, each.shape[-3]), -3) for each in (one, other))
    return first, second
