"""Change: what an intervention does to some heads of a layer, and how the spec of a call is changed for those alone."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard.inspection.hooks.call import AttentionCall
from regard.inspection.hooks.modified_call import ModifiedCall
from regard.spec import biases
from regard.spec.masks import Dense, Full, Mask
from regard.spec.normalizers import Hard, Softmax
from regard.spec.part import Part


@dataclass(frozen=True, eq=False)
class Site:
    """Where a change applies: a layer, some of its heads (a bool for each), and the absolute position of the first key,
    which is above 0 where a cache has dropped keys."""

    layer: str
    heads: Tensor
    first: int = 0


class Change(Part):
    """A frozen value that turns an attention call into another."""

    absolute: ClassVar[bool] = False  # whether it depends on absolute positions

    def applied(self, modified: ModifiedCall, site: Site) -> ModifiedCall:
        """The call with the change. Raises ValueError, with the reason, if it cannot be made exactly."""
        raise NotImplementedError(f"{type(self).__name__} must define applied(modified, site)")

    def check(self, reach: int) -> None:
        """Raise, after all calls, if it names positions from `reach` on, where no call had a key."""


LOW = 0.5  # an added number below this share of its type's lowest hides a pair


def start_of(modified: ModifiedCall) -> int | Tensor:
    """The position of the first query among the keys: as the call says if it depends on positions; else by the corner
    of a causal mask; else so that the last query stands at the last key. The call before any change decides."""
    modified = ModifiedCall.of(modified.original)
    spec, request = modified.call.spec, modified.request
    bias, score = request.bias, request.score
    if request.mask.positional_for(modified.queries) or score.positional or (bias is not None and bias.positional):
        given: Any = spec.get("query_start")
        return modified.keys - modified.queries if given is None else given
    if (corner := _corner(modified)) is not None:
        return corner
    if modified.queries > modified.keys:
        raise ValueError("it has more queries than keys, and nothing says where they stand")
    return modified.keys - modified.queries


def visible(modified: ModifiedCall) -> Tensor:
    """Which pairs are visible, (batch or 1, kv head or 1, group or 1, query, key)."""
    request = modified.request
    pairs = request.plane.all
    seen = request.mask.visible(pairs)
    for term in () if request.bias is None else request.bias.terms():
        seen = seen & not_low(term.values(pairs))
    return seen[(None,) * (5 - seen.ndim)].expand(-1, -1, -1, modified.queries, modified.keys)


def not_low(added: Tensor) -> Tensor:
    """False where an added number hides its pair: −inf, or about the lowest number of its type."""
    return added > LOW * torch.finfo(added.dtype).min


def _corner(modified: ModifiedCall) -> int | Tensor | None:
    """The position of the first query, if each query sees one key more than the query before."""
    request = modified.request
    if isinstance(request.mask, Full) and request.bias is None:
        return None
    seen = visible(modified)
    last = modified.keys - 1 - seen.flip(-1).int().argmax(-1)
    starts = last - torch.arange(modified.queries, device=last.device)
    there = seen.any(-1)
    rows: list[int] = []
    for start, rows_with_keys in zip(starts, there, strict=True):
        different = start[rows_with_keys].unique()
        if different.numel() > 1:
            return None
        rows.append(int(different) if different.numel() else modified.keys - modified.queries)
    return rows[0] if len(set(rows)) == 1 else torch.tensor(rows, device="cpu", dtype=torch.int64)


class DroppedKeys:
    """Counts the keys that the cache of each layer has dropped, from call to call."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Tensor, int]] = {}

    def first(self, layer: str, call: AttentionCall) -> int:
        """The absolute position of the first key. A call continues the one before if its keys, without the last one for
        each query, are the last keys of that one."""
        key, queries = call.key.detach(), call.query.shape[-2]
        keys, first = key.shape[-2], 0
        if layer in self._last:
            old, before = self._last[layer]
            cached = keys - queries
            if 1 <= cached <= old.shape[-2]:
                both = [old[..., old.shape[-2] - cached :, :], key[..., :cached, :]]
                if (
                    min(old.ndim, key.ndim) > 2
                ):  # models may repeat the keys of a group in one call, and not in the next
                    heads = max(each.shape[-3] for each in both)
                    both = [each.repeat_interleave(heads // max(1, each.shape[-3]), -3) for each in both]
                if torch.equal(*both):
                    first = before + old.shape[-2] - cached
        self._last[layer] = (key, first)
        return first


def not_final(modified: ModifiedCall, site: Site, change: Change) -> ModifiedCall:
    """Refuse to change weights that a Pattern has set."""
    if modified.final is not None and bool((modified.final & site.heads).any()):
        raise ValueError(f"{change!r} comes after a Pattern, whose weights are used as they are; put the Pattern last")
    return modified


def masked(modified: ModifiedCall, site: Site, shown: Mask, change: Change) -> ModifiedCall:
    """With another mask as well, for the chosen heads; biases that stand for −inf hide too."""
    modified = not_final(modified, site, change)
    for term in () if modified.request.bias is None else modified.request.bias.terms():
        if isinstance(term, biases.Dense) and not bool((not_low(term.tensor) | term.tensor.isneginf()).all()):
            shown = shown & Dense(not_low(term.tensor))
    if not bool(site.heads.all()):
        shown = shown | Dense(~column(site.heads, modified.call.query.device))
    result = modified.with_spec(site.heads, mask=modified.request.mask & shown)
    result.request  # noqa: B018  (checks that it fits)
    return result


def with_temperature(modified: ModifiedCall, site: Site, change: Callable[[Tensor], Tensor]) -> ModifiedCall:
    """With other temperatures for the chosen heads."""
    own, query = modified.call.spec["temperature"], modified.call.query
    each = torch.as_tensor(own, dtype=modified.request.dtype, device=query.device).expand(len(site.heads))
    new = torch.where(site.heads.to(each.device), change(each), each)
    if not isinstance(own, Tensor) and bool((new == new[0]).all()):
        return modified.with_spec(site.heads, temperature=float(new[0]))
    return modified.with_spec(site.heads, temperature=new)


def without_sink(modified: ModifiedCall, site: Site) -> ModifiedCall:
    """With a softmax without a sink for the chosen heads."""
    normalizer: Any = modified.call.spec["normalizer"]
    if bool(site.heads.all()):
        return modified.with_spec(site.heads, normalizer=Softmax())
    if isinstance(normalizer, Hard):
        raise ValueError("its normalizer is Hard, which some heads cannot be spared; change all heads of the layer")
    if not isinstance(normalizer, Softmax) or normalizer.sink is None:
        return modified
    sink = torch.as_tensor(normalizer.sink, dtype=modified.request.dtype, device=modified.call.query.device)
    sink = torch.where(site.heads.to(sink.device), -torch.inf, sink.expand(len(site.heads)))
    return modified.with_spec(site.heads, normalizer=Softmax(sink))


def table_part(table: Any, modified: ModifiedCall, site: Site, what: str) -> Tensor:
    """The rows and columns of a table at the positions of the call; all if it has as many as the call, or one."""
    sizes = []
    start = start_of(modified) if table.shape[-2] not in (1, modified.queries) or site.first else 0
    for axis, count, begin in ((-2, modified.queries, start), (-1, modified.keys, 0)):
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
    part: Tensor = table[(..., *sizes)]
    return part


def column(heads: Tensor, device: torch.device) -> Tensor:
    """A bool for each head, (1, head, 1, 1)."""
    return heads.to(device).view(1, -1, 1, 1)
