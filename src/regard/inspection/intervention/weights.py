"""Changes of what heads attend to. Each is an exact change of the spec, so a capture shows the weights it gives."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard import checks
from regard.inspection.capture import Capture
from regard.inspection.intervention.change import Change, Site
from regard.inspection.intervention.places import not_low, start_of, visible
from regard.inspection.listening.draft import Draft
from regard.inspection.matrix import AttentionMatrix
from regard.spec import biases
from regard.spec.masks import Dense, Full, RowWhere
from regard.spec.masks import Mask as AnyMask
from regard.spec.normalizers import Hard, Softmax
from regard.spec.plane import Pairs, Plane

EVEN = 1e30  # a temperature at which all visible keys weigh the same, to the last bit


@dataclass(frozen=True, eq=False, repr=False)
class Temperature(Change):
    """Logits are divided by `value`, and by the temperature that the model has."""

    value: float

    def __post_init__(self) -> None:
        checks.positive("Temperature", self.value)

    def applied(self, draft: Draft, site: Site) -> Draft:
        return _warmer(_open(draft, site, self), site, lambda own: own * self.value)


@dataclass(frozen=True, eq=False, repr=False)
class Mask(Change):
    """Pairs that `mask` hides are hidden as well: one of regard.masks, which speaks of absolute positions, or a bool
    tensor (True = visible) that broadcasts to (batch, head, query, key), or holds the rows and columns of all positions
    of a generation."""

    mask: AnyMask | Tensor
    absolute: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.mask, Tensor):
            if self.mask.dtype != torch.bool or not 2 <= self.mask.ndim <= 4:
                raise TypeError(
                    "Mask takes a bool tensor (True = visible) of 2 to 4 axes, the last two (query, key), got "
                    f"{checks.dtype(self.mask)} of shape {checks.shape(self.mask)}"
                )
        elif not isinstance(self.mask, AnyMask):
            raise TypeError(f"Mask takes one of regard.masks or a bool tensor, got {type(self.mask).__name__}")

    def applied(self, draft: Draft, site: Site) -> Draft:
        table = self.mask.tensor if isinstance(self.mask, Dense) else self.mask
        if isinstance(table, Tensor):
            shown: AnyMask = Dense(_part(table.to(draft.call.query.device), draft, site, "the mask"))
            return _masked(draft, site, shown, self)
        placed = _placed(draft) if table.positional_for(draft.queries) else draft
        return _masked(placed, site, Shifted(table, site.first) if site.first else table, self)


@dataclass(frozen=True, eq=False, repr=False)
class Forbid(Change):
    """Keys that may not be read, by any query: absolute positions, or a bool tensor (key,) or (batch, key) that is True
    where reading is forbidden (`Forbid(ids == 5)`); keys past its end may be read."""

    keys: int | tuple[int, ...] | Tensor
    absolute: ClassVar[bool] = True

    def __init__(self, keys: int | Iterable[int] | Tensor) -> None:
        object.__setattr__(self, "keys", _positions(keys))

    def applied(self, draft: Draft, site: Site) -> Draft:
        device = draft.call.query.device
        if isinstance(self.keys, Tensor):
            table = torch.atleast_2d(self.keys).to(device)[:, site.first : site.first + draft.keys]
            if len(table) not in (1, draft.call.query.shape[0]):
                raise ValueError(
                    f"Forbid has {len(table)} rows, the call has a batch of {draft.call.query.shape[0]}; give one row "
                    "for all, or one for each"
                )
            forbidden = torch.nn.functional.pad(table, (0, draft.keys - table.shape[1]))
        else:
            places = torch.arange(site.first, site.first + draft.keys, device=device)
            forbidden = torch.isin(places, torch.tensor(self.keys, device=device)).unsqueeze(0)
        return _masked(draft, site, Dense(~forbidden[:, None, None, :]), self)


@dataclass(frozen=True, eq=False, repr=False)
class Uniform(Change):
    """All keys that a query sees weigh the same."""

    def applied(self, draft: Draft, site: Site) -> Draft:
        draft = _masked(_unsunk(draft, site), site, Full(), self)
        return _warmer(draft, site, lambda own: torch.full_like(own, EVEN))


@dataclass(frozen=True, eq=False, repr=False)
class Previous(Change):
    """All weight on the key before the query; on the query's own where that is hidden, as it is from the first."""

    def applied(self, draft: Draft, site: Site) -> Draft:
        draft = _unsunk(_open(draft, site, self), site)
        target = _target(draft)

        def one(b: Tensor, h: Tensor, row: Tensor, column: Tensor) -> Tensor:
            batch = b if len(target) > 1 else torch.zeros_like(b)
            head = h if target.shape[1] > 1 else torch.zeros_like(h)
            return target[batch, head, row] == column

        return _masked(draft, site, RowWhere(one), self)


@dataclass(frozen=True, eq=False, repr=False)
class Pattern(Change):
    """Weights of another run, used as they are, hidden keys included: a Capture that has layers of the same names, an
    AttentionMatrix or a tensor of weights with the axes (query, key) or (batch, head, query, key); axes of 1 broadcast.
    Rows and columns are absolute positions."""

    weights: Capture | AttentionMatrix | Tensor
    absolute: ClassVar[bool] = True

    def __post_init__(self) -> None:
        given = self.weights
        if not isinstance(given, Capture | AttentionMatrix | Tensor):
            raise TypeError(
                f"Pattern takes a Capture, an AttentionMatrix or a tensor of weights, got {type(given).__name__}"
            )
        if not isinstance(given, Capture) and given.ndim not in (2, 4):
            raise ValueError(
                "Pattern's weights must be (query, key) or (batch, head, query, key), so that batch rows are not taken "
                f"for heads, got shape {tuple(given.shape)}"
            )

    def applied(self, draft: Draft, site: Site) -> Draft:
        given = self.weights[site.layer] if isinstance(self.weights, Capture) else self.weights
        call = draft.call
        weights = _part(given, draft, site, "the pattern").to(call.query.device, draft.asked.dtype)
        weights = weights[(None,) * (4 - weights.ndim)]
        wanted = (*call.query.shape[:3], draft.keys)
        if any(size not in (1, full) for size, full in zip(weights.shape, wanted, strict=True)):
            raise ValueError(f"the pattern is {tuple(weights.shape)}, the call (batch, head, query, key) is {wanted}")
        if bool((weights < 0).any()) or not bool(weights.isfinite().all()):
            raise ValueError("the pattern has weights below 0, or not finite")
        chosen = _column(site.heads, weights.device)
        total = weights.sum(-1, keepdim=True)
        logits = torch.where(weights > 0, (weights / total).log() * EVEN, -torch.inf)
        bias = torch.where(chosen, logits, _added(draft))
        draft = _warmer(_unsunk(draft, site), site, lambda own: torch.full_like(own, EVEN))
        sure = biases.Dense(bias)
        draft = draft.with_spec(site.heads, bias=sure, mask=draft.asked.mask | Dense(chosen))
        one = torch.ones((), dtype=total.dtype, device=total.device)
        scale = torch.where(chosen, total, one if draft.scale is None else draft.scale)
        final = site.heads if draft.final is None else draft.final | site.heads
        return replace(draft, scale=scale, final=final)


@dataclass(frozen=True, eq=False, repr=False)
class Shifted(AnyMask):
    """A mask over keys of which the first stands at `first`, for a call that counts them from 0."""

    mask: AnyMask
    first: int

    @property
    def positional(self) -> bool:
        return self.mask.positional

    def visible(self, pairs: Pairs) -> Tensor:
        return self.mask.visible(Pairs(self._moved(pairs.plane), pairs.rows, pairs.columns))

    def check(self, plane: Plane) -> None:
        self.mask.check(self._moved(plane))

    def _moved(self, plane: Plane) -> Plane:
        return replace(plane, starts=plane.starts + self.first, key_start=plane.key_start + self.first)


def _open(draft: Draft, site: Site, change: Change) -> Draft:
    """Refuse to change weights that were given."""
    if draft.final is not None and bool((draft.final & site.heads).any()):
        raise ValueError(f"{change!r} comes after a Pattern, whose weights are used as they are; put the Pattern last")
    return draft


def _masked(draft: Draft, site: Site, shown: AnyMask, change: Change) -> Draft:
    """The mask as well, for the chosen heads; where added numbers stand for −inf, they hide."""
    draft = _open(draft, site, change)
    for term in () if draft.asked.bias is None else draft.asked.bias.terms():
        if isinstance(term, biases.Dense) and not bool((not_low(term.tensor) | term.tensor.isneginf()).all()):
            shown = shown & Dense(not_low(term.tensor))
    if not bool(site.heads.all()):
        shown = shown | Dense(~_column(site.heads, draft.call.query.device))
    found = draft.with_spec(site.heads, mask=draft.asked.mask & shown)
    found.asked  # noqa: B018  (checks that it fits)
    return found


def _warmer(draft: Draft, site: Site, change: Callable[[Tensor], Tensor]) -> Draft:
    """Other temperatures for the chosen heads."""
    own, query = draft.call.spec["temperature"], draft.call.query
    each = torch.as_tensor(own, dtype=draft.asked.dtype, device=query.device).expand(len(site.heads))
    warm = torch.where(site.heads.to(each.device), change(each), each)
    if not isinstance(own, Tensor) and bool((warm == warm[0]).all()):
        return draft.with_spec(site.heads, temperature=float(warm[0]))
    return draft.with_spec(site.heads, temperature=warm)


def _unsunk(draft: Draft, site: Site) -> Draft:
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


def _placed(draft: Draft) -> Draft:
    """With the queries' positions said."""
    return draft.with_spec(torch.zeros_like(draft.heads), query_start=start_of(_base(draft)))


def _base(draft: Draft) -> Draft:
    """The call before any change: its mask tells where queries stand."""
    return Draft.of(draft.original)


def _target(draft: Draft) -> Tensor:
    """The key of each query for `Previous`, (batch or 1, head or 1, query); −1 if it sees neither."""
    seen = visible(draft)
    seen = seen.expand(-1, draft.asked.plane.kv_heads, draft.asked.plane.group, -1, -1).flatten(1, 2)
    start = torch.as_tensor(start_of(_base(draft)), device=seen.device).reshape(-1, 1, 1, 1)
    own = start + torch.arange(draft.queries, device=seen.device).view(-1, 1)
    seen = seen.expand(max(len(seen), len(own)), -1, -1, -1)

    def sees(place: Tensor) -> Tensor:
        inside = (place >= 0) & (place < draft.keys)
        index = place.clamp(0, max(0, draft.keys - 1)).expand(*seen.shape[:3], 1)
        return inside & seen.gather(-1, index)

    if not bool((sees(own) | sees(own - 1) | ~seen.any(-1, keepdim=True)).all()):
        raise ValueError("a query sees other keys, but neither its own nor the one before; it has no previous token")
    found = torch.where(sees(own - 1), own - 1, torch.where(sees(own), own, -1))
    return found.squeeze(-1)


def _added(draft: Draft) -> Tensor:
    """What the spec adds to the logits, (batch or 1, head or 1, query or 1, key or 1)."""
    plane = draft.asked.plane
    total = torch.zeros((1, 1, 1, 1, 1), dtype=draft.asked.dtype, device=plane.device)
    for term in () if draft.asked.bias is None else draft.asked.bias.terms():
        total = total + term.values(plane.all)
    if total.shape[1:3] == (1, 1):
        return total.squeeze(2)
    return total.expand(-1, plane.kv_heads, plane.group, -1, -1).flatten(1, 2)


def _part(table: Any, draft: Draft, site: Site, what: str) -> Tensor:
    """The rows and columns of the call; all of them if it has no more, or only one."""
    sizes = []
    start = start_of(_base(draft)) if table.shape[-2] not in (1, draft.queries) or site.first else 0
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


def _column(heads: Tensor, device: torch.device) -> Tensor:
    return heads.to(device).view(1, -1, 1, 1)


def _positions(keys: Any) -> Any:
    if isinstance(keys, Tensor) and keys.dtype == torch.bool:
        if keys.ndim not in (1, 2):
            raise ValueError(f"Forbid takes bools (key,) or (batch, key), got shape {checks.shape(keys)}")
        return keys
    listed = keys.tolist() if isinstance(keys, Tensor) else [keys] if isinstance(keys, int) else list(keys)
    if not listed:
        raise ValueError("Forbid has no positions; name at least one")
    return tuple(checks.whole("a position of Forbid", key, 0) for key in listed)
