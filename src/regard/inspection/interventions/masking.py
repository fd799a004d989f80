"""Changes of which keys heads see."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard import checks
from regard.inspection.hooks.draft import Draft
from regard.inspection.interventions.change import Change, Site
from regard.inspection.interventions.parts import base, masked, part, still_open, unsunk
from regard.inspection.interventions.places import start_of, visible
from regard.spec.masks import Dense, RowWhere
from regard.spec.masks import Mask as AnyMask
from regard.spec.plane import Pairs, Plane


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
            shown: AnyMask = Dense(part(table.to(draft.call.query.device), draft, site, "the mask"))
            return masked(draft, site, shown, self)
        placed = _placed(draft) if table.positional_for(draft.queries) else draft
        return masked(placed, site, Shifted(table, site.first) if site.first else table, self)

    def check(self, reach: int) -> None:
        if isinstance(self.mask, Tensor) and self.mask.shape[-1] > reach:
            raise ValueError(f"Mask speaks of {self.mask.shape[-1]} keys, and there were {reach}")


@dataclass(frozen=True, eq=False, repr=False)
class Forbid(Change):
    """Keys that may not be read, by any query: absolute positions, or a bool tensor (key,) or (batch, key) that is True
    where reading is forbidden (`Forbid(ids == 5)`); keys past its end may be read."""

    keys: tuple[int, ...] | Tensor
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
            forbidden = torch.isin(places, torch.tensor(self.keys, device=device, dtype=torch.int64)).unsqueeze(0)
        return masked(draft, site, Dense(~forbidden[:, None, None, :]), self)

    def check(self, reach: int) -> None:
        if isinstance(self.keys, Tensor):
            if self.keys.shape[-1] > reach:
                raise ValueError(f"Forbid speaks of {self.keys.shape[-1]} keys, and there were {reach}")
        elif max(self.keys) >= reach:
            raise ValueError(f"Forbid names position {max(self.keys)}, and there were {reach} keys, 0 to {reach - 1}")


@dataclass(frozen=True, eq=False, repr=False)
class Previous(Change):
    """All weight on the key before the query; on the query's own where that is hidden, as it is from the first."""

    def applied(self, draft: Draft, site: Site) -> Draft:
        draft = unsunk(still_open(draft, site, self), site)
        target = _target(draft)

        def one(b: Tensor, h: Tensor, row: Tensor, column: Tensor) -> Tensor:
            batch = b if len(target) > 1 else torch.zeros_like(b)
            head = h if target.shape[1] > 1 else torch.zeros_like(h)
            return target[batch, head, row] == column

        return masked(draft, site, RowWhere(one), self)


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


def _placed(draft: Draft) -> Draft:
    """With the queries' positions said."""
    return draft.with_spec(torch.zeros_like(draft.heads), query_start=start_of(base(draft)))


def _target(draft: Draft) -> Tensor:
    """The key of each query for `Previous`, (batch or 1, head or 1, query); −1 if it sees neither."""
    seen = visible(draft)
    seen = seen.expand(-1, draft.asked.plane.kv_heads, draft.asked.plane.group, -1, -1).flatten(1, 2)
    start = torch.as_tensor(start_of(base(draft)), device=seen.device).reshape(-1, 1, 1, 1)
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


def _positions(keys: Any) -> Any:
    if isinstance(keys, Tensor) and keys.dtype == torch.bool:
        if keys.ndim not in (1, 2):
            raise ValueError(f"Forbid takes bools (key,) or (batch, key), got shape {checks.shape(keys)}")
        return keys
    listed = keys.tolist() if isinstance(keys, Tensor) else [keys] if isinstance(keys, int) else list(keys)
    if not listed:
        raise ValueError("Forbid has no positions; name at least one")
    return tuple(checks.whole("a position of Forbid", key, 0) for key in listed)
