"""Parts: how changes change the spec of some heads, and leave that of the others alone."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.inspection.hooks.draft import Draft
from regard.inspection.interventions.change import Change, Site
from regard.inspection.interventions.places import not_low, start_of
from regard.spec import biases
from regard.spec.masks import Dense, Mask
from regard.spec.normalizers import Hard, Softmax


def still_open(draft: Draft, site: Site, change: Change) -> Draft:
    """Refuse to change weights that were given."""
    if draft.final is not None and bool((draft.final & site.heads).any()):
        raise ValueError(f"{change!r} comes after a Pattern, whose weights are used as they are; put the Pattern last")
    return draft


def masked(draft: Draft, site: Site, shown: Mask, change: Change) -> Draft:
    """The mask as well, for the chosen heads; where added numbers stand for −inf, they hide."""
    draft = still_open(draft, site, change)
    for term in () if draft.asked.bias is None else draft.asked.bias.terms():
        if isinstance(term, biases.Dense) and not bool((not_low(term.tensor) | term.tensor.isneginf()).all()):
            shown = shown & Dense(not_low(term.tensor))
    if not bool(site.heads.all()):
        shown = shown | Dense(~column(site.heads, draft.call.query.device))
    found = draft.with_spec(site.heads, mask=draft.asked.mask & shown)
    found.asked  # noqa: B018  (checks that it fits)
    return found


def warmed(draft: Draft, site: Site, change: Callable[[Tensor], Tensor]) -> Draft:
    """Other temperatures for the chosen heads."""
    own, query = draft.call.spec["temperature"], draft.call.query
    each = torch.as_tensor(own, dtype=draft.asked.dtype, device=query.device).expand(len(site.heads))
    warm = torch.where(site.heads.to(each.device), change(each), each)
    if not isinstance(own, Tensor) and bool((warm == warm[0]).all()):
        return draft.with_spec(site.heads, temperature=float(warm[0]))
    return draft.with_spec(site.heads, temperature=warm)


def unsunk(draft: Draft, site: Site) -> Draft:
    """No sink, and no other normalizer, for the chosen heads."""
    normalizer: Any = draft.call.spec["normalizer"]
    if bool(site.heads.all()):
        return draft.with_spec(site.heads, normalizer=Softmax())
    if isinstance(normalizer, Hard):
        raise ValueError("its normalizer is Hard, which some heads cannot be spared; change all heads of the layer")
    if not isinstance(normalizer, Softmax) or normalizer.sink is None:
        return draft
    sink = torch.as_tensor(normalizer.sink, dtype=draft.asked.dtype, device=draft.call.query.device)
    sink = torch.where(site.heads.to(sink.device), -torch.inf, sink.expand(len(site.heads)))
    return draft.with_spec(site.heads, normalizer=Softmax(sink))


def base(draft: Draft) -> Draft:
    """The call before any change: its mask tells where queries stand."""
    return Draft.of(draft.original)


def part(table: Any, draft: Draft, site: Site, what: str) -> Tensor:
    """The rows and columns of the call; all of them if it has no more, or only one."""
    sizes = []
    start = start_of(base(draft)) if table.shape[-2] not in (1, draft.queries) or site.first else 0
    for axis, count, begin in ((-2, draft.queries, start), (-1, draft.keys, 0)):
        size = table.shape[axis]
        whole = size == 1 or (size == count and not site.first)
        if not whole and not isinstance(begin, int):
            raise ValueError("its batch rows stand at different places")
        first = 0 if whole else begin + site.first
        stop = size if whole else first + count
        if stop > size:
            kind = "queries" if axis == -2 else "keys"
            raise ValueError(f"{what} has {size} {kind}, the call's stand at {first} to {stop - 1}")
        sizes.append(slice(first, stop))
    found: Tensor = table[(..., *sizes)]
    return found


def column(heads: Tensor, device: torch.device) -> Tensor:
    """A bool for each head, (1, head, 1, 1)."""
    return heads.to(device).view(1, -1, 1, 1)
