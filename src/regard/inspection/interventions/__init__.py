"""Interventions: change attention inside a running model, and measure the effect on its output.

A change is a value: of what heads attend to, as an exact change of the spec that a capture shows, or of their outputs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from regard import checks
from regard.inspection import pair_tables
from regard.inspection.capture import Capture
from regard.inspection.hooks.call import ModuleNames
from regard.inspection.hooks.intercept import intercepting
from regard.inspection.hooks.modified_call import Modification, ModifiedCall
from regard.inspection.interventions.base import (
    Change,
    Site,
    column,
    masked,
    not_final,
    start_of,
    table_part,
    visible,
    with_temperature,
    without_sink,
)
from regard.inspection.interventions.block import Intervention, intervene
from regard.inspection.interventions.effect import effect
from regard.inspection.matrix import AttentionMatrix
from regard.spec import biases
from regard.spec.masks import Dense, Full, RowWhere
from regard.spec.masks import Mask as AnyMask
from regard.spec.plane import Pairs, Plane

__all__ = [
    "Ablate",
    "Average",
    "Change",
    "Forbid",
    "Intervention",
    "Mask",
    "Pattern",
    "Previous",
    "Temperature",
    "Uniform",
    "effect",
    "intervene",
]


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

    def applied(self, modified: ModifiedCall, site: Site) -> ModifiedCall:
        table = self.mask.tensor if isinstance(self.mask, Dense) else self.mask
        if isinstance(table, Tensor):
            shown: AnyMask = Dense(table_part(table.to(modified.call.query.device), modified, site, "the mask"))
            return masked(modified, site, shown, self)
        if table.positional_for(modified.queries):  # the spec says where the first query stands
            modified = modified.with_spec(torch.zeros_like(modified.heads), query_start=start_of(modified))
        return masked(modified, site, ShiftedMask(table, site.first) if site.first else table, self)

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
        positions: tuple[int, ...] | Tensor
        if isinstance(keys, Tensor) and keys.dtype == torch.bool:
            if keys.ndim not in (1, 2):
                raise ValueError(f"Forbid takes bools (key,) or (batch, key), got shape {checks.shape(keys)}")
            positions = keys
        else:
            listed = keys.tolist() if isinstance(keys, Tensor) else [keys] if isinstance(keys, int) else list(keys)
            if not listed:
                raise ValueError("Forbid has no positions; name at least one")
            positions = tuple(checks.whole("a position of Forbid", key, 0) for key in listed)
        object.__setattr__(self, "keys", positions)

    def applied(self, modified: ModifiedCall, site: Site) -> ModifiedCall:
        device = modified.call.query.device
        if isinstance(self.keys, Tensor):
            table = torch.atleast_2d(self.keys).to(device)[:, site.first : site.first + modified.keys]
            batch = modified.call.query.shape[0]
            if len(table) not in (1, batch):
                raise ValueError(
                    f"Forbid has {len(table)} rows, the call has a batch of {batch}; give one row for all, or one for "
                    "each"
                )
            forbidden = torch.nn.functional.pad(table, (0, modified.keys - table.shape[1]))
        else:
            places = torch.arange(site.first, site.first + modified.keys, device=device)
            forbidden = torch.isin(places, torch.tensor(self.keys, device=device, dtype=torch.int64)).unsqueeze(0)
        return masked(modified, site, Dense(~forbidden[:, None, None, :]), self)

    def check(self, reach: int) -> None:
        if isinstance(self.keys, Tensor):
            if self.keys.shape[-1] > reach:
                raise ValueError(f"Forbid speaks of {self.keys.shape[-1]} keys, and there were {reach}")
        elif max(self.keys) >= reach:
            raise ValueError(f"Forbid names position {max(self.keys)}, and there were {reach} keys, 0 to {reach - 1}")


@dataclass(frozen=True, eq=False, repr=False)
class Previous(Change):
    """All weight on the key before the query; on the query's own where that is hidden, as it is from the first."""

    def applied(self, modified: ModifiedCall, site: Site) -> ModifiedCall:
        modified = without_sink(not_final(modified, site, self), site)
        target = _previous_key(modified)

        def one(b: Tensor, h: Tensor, row: Tensor, column: Tensor) -> Tensor:
            batch = b if len(target) > 1 else torch.zeros_like(b)
            head = h if target.shape[1] > 1 else torch.zeros_like(h)
            return target[batch, head, row] == column

        return masked(modified, site, RowWhere(one), self)


@dataclass(frozen=True, eq=False, repr=False)
class ShiftedMask(AnyMask):
    """A mask of absolute positions, for a call whose first key has position `first`."""

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


def _previous_key(modified: ModifiedCall) -> Tensor:
    """The key of each query for `Previous`, (batch or 1, head or 1, query); −1 if it sees neither."""
    seen = visible(modified)
    seen = seen.expand(-1, modified.request.plane.kv_heads, modified.request.plane.group, -1, -1).flatten(1, 2)
    start = torch.as_tensor(start_of(modified), device=seen.device).reshape(-1, 1, 1, 1)
    own = start + torch.arange(modified.queries, device=seen.device).view(-1, 1)
    seen = seen.expand(max(len(seen), len(own)), -1, -1, -1)

    def sees(place: Tensor) -> Tensor:
        inside = (place >= 0) & (place < modified.keys)
        index = place.clamp(0, max(0, modified.keys - 1)).expand(*seen.shape[:3], 1)
        return inside & seen.gather(-1, index)

    if not bool((sees(own) | sees(own - 1) | ~seen.any(-1, keepdim=True)).all()):
        raise ValueError("a query sees other keys, but neither its own nor the one before; it has no previous token")
    return torch.where(sees(own - 1), own - 1, torch.where(sees(own), own, -1)).squeeze(-1)


EVEN = 1e30  # a temperature at which all visible keys weigh the same, to the last bit


@dataclass(frozen=True, eq=False, repr=False)
class Temperature(Change):
    """Logits are divided by `value`, and by the temperature that the model has."""

    value: float

    def __post_init__(self) -> None:
        checks.positive("Temperature", self.value)

    def applied(self, modified: ModifiedCall, site: Site) -> ModifiedCall:
        return with_temperature(not_final(modified, site, self), site, lambda own: own * self.value)


@dataclass(frozen=True, eq=False, repr=False)
class Uniform(Change):
    """All keys that a query sees weigh the same."""

    def applied(self, modified: ModifiedCall, site: Site) -> ModifiedCall:
        modified = masked(without_sink(modified, site), site, Full(), self)
        return with_temperature(modified, site, lambda own: torch.full_like(own, EVEN))


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

    def applied(self, modified: ModifiedCall, site: Site) -> ModifiedCall:
        given = self.weights[site.layer] if isinstance(self.weights, Capture) else self.weights
        call = modified.call
        weights = table_part(given, modified, site, "the pattern").to(call.query.device, modified.request.dtype)
        weights = weights[(None,) * (4 - weights.ndim)]
        shape = (*call.query.shape[:3], modified.keys)
        if any(size not in (1, full) for size, full in zip(weights.shape, shape, strict=True)):
            raise ValueError(f"the pattern is {tuple(weights.shape)}, the call (batch, head, query, key) is {shape}")
        if bool((weights < 0).any()) or not bool(weights.isfinite().all()):
            raise ValueError("the pattern has weights below 0, or not finite")
        chosen = column(site.heads, weights.device)
        total = weights.sum(-1, keepdim=True)
        logits = torch.where(weights > 0, (weights / total).log() * EVEN, -torch.inf)
        bias = torch.where(chosen, logits, pair_tables.added(modified.request))
        modified = with_temperature(without_sink(modified, site), site, lambda own: torch.full_like(own, EVEN))
        modified = modified.with_spec(site.heads, bias=biases.Dense(bias), mask=modified.request.mask | Dense(chosen))
        one = torch.ones((), dtype=total.dtype, device=total.device)
        scale = torch.where(chosen, total, one if modified.scale is None else modified.scale)
        final = site.heads if modified.final is None else modified.final | site.heads
        return replace(modified, scale=scale, final=final)


@dataclass(frozen=True, eq=False, repr=False)
class Ablate(Change):
    """The output of the head is zero (ablation)."""

    def applied(self, modified: ModifiedCall, site: Site) -> ModifiedCall:
        return modified.with_outputs(site.heads, torch.zeros_like)


@dataclass(frozen=True, eq=False, repr=False)
class Average(Change):
    """The output of the head is its mean: over the positions of the call, each batch row its own; or, made by
    `Average.over(model, *inputs)`, over all positions and rows of another run."""

    means: Mapping[str, Tensor] | None = None

    @classmethod
    def over(cls, model: nn.Module, *inputs: Any, **kw: Any) -> Self:
        """The means of `model(*inputs, **kw)`, one vector for each head of each layer."""
        names, sums = ModuleNames(model), dict[str, Tensor]()
        counts: dict[str, int] = {}

        def modify() -> Modification | None:
            running = names.running()
            if running is None:
                return None
            path = running.path

            def add(out: Tensor) -> Tensor:
                total = out.detach().to(torch.float64).sum((0, 2))
                sums[path] = sums[path] + total if path in sums else total
                counts[path] = counts.get(path, 0) + out.shape[0] * out.shape[2]
                return out

            return Modification(path, lambda call: call.with_outputs(torch.zeros_like(call.heads), add))

        with intercepting(model, modify=modify):
            model(*inputs, **kw)
        if not sums:
            raise ValueError(f"{type(model).__name__} made no call of attention that can be intercepted")
        return cls({path: total / counts[path] for path, total in sums.items()})

    def applied(self, modified: ModifiedCall, site: Site) -> ModifiedCall:
        return modified.with_outputs(site.heads, self._mean(modified, site))

    def _mean(self, modified: ModifiedCall, site: Site) -> Any:
        if self.means is None:
            if modified.queries == 1:
                raise ValueError(
                    "the mean over one position is that position itself; take it over another run with "
                    "Average.over(model, *inputs)"
                )
            return lambda out: out.mean(-2, keepdim=True).expand_as(out)
        if site.layer not in self.means:
            raise ValueError(f"its mean is not known, only those of {', '.join(self.means)}")
        mean = self.means[site.layer]

        def expanded(out: Tensor) -> Tensor:
            if mean.shape != (out.shape[1], out.shape[-1]):
                raise ValueError(
                    f"the means are of {mean.shape[0]} heads of width {mean.shape[1]}, the layer has {out.shape[1]} of "
                    f"width {out.shape[-1]}"
                )
            return mean.to(out).unsqueeze(-2).expand_as(out)

        return expanded

    def __repr__(self) -> str:
        return "Average()" if self.means is None else f"Average(over another run, {len(self.means)} layers)"
