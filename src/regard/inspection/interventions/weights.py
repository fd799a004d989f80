"""Changes of what heads attend to. Each is an exact change of the spec, so a capture shows the weights it gives."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from regard import checks
from regard.inspection.capture import Capture
from regard.inspection.hooks.draft import Draft
from regard.inspection.interventions.change import Change, Site
from regard.inspection.interventions.parts import column, masked, part, still_open, unsunk, warmed
from regard.inspection.matrix import AttentionMatrix
from regard.spec import biases
from regard.spec.masks import Dense, Full

EVEN = 1e30  # a temperature at which all visible keys weigh the same, to the last bit


@dataclass(frozen=True, eq=False, repr=False)
class Temperature(Change):
    """Logits are divided by `value`, and by the temperature that the model has."""

    value: float

    def __post_init__(self) -> None:
        checks.positive("Temperature", self.value)

    def applied(self, draft: Draft, site: Site) -> Draft:
        return warmed(still_open(draft, site, self), site, lambda own: own * self.value)


@dataclass(frozen=True, eq=False, repr=False)
class Uniform(Change):
    """All keys that a query sees weigh the same."""

    def applied(self, draft: Draft, site: Site) -> Draft:
        draft = masked(unsunk(draft, site), site, Full(), self)
        return warmed(draft, site, lambda own: torch.full_like(own, EVEN))


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
        weights = part(given, draft, site, "the pattern").to(call.query.device, draft.asked.dtype)
        weights = weights[(None,) * (4 - weights.ndim)]
        wanted = (*call.query.shape[:3], draft.keys)
        if any(size not in (1, full) for size, full in zip(weights.shape, wanted, strict=True)):
            raise ValueError(f"the pattern is {tuple(weights.shape)}, the call (batch, head, query, key) is {wanted}")
        if bool((weights < 0).any()) or not bool(weights.isfinite().all()):
            raise ValueError("the pattern has weights below 0, or not finite")
        chosen = column(site.heads, weights.device)
        total = weights.sum(-1, keepdim=True)
        logits = torch.where(weights > 0, (weights / total).log() * EVEN, -torch.inf)
        bias = torch.where(chosen, logits, _added(draft))
        draft = warmed(unsunk(draft, site), site, lambda own: torch.full_like(own, EVEN))
        sure = biases.Dense(bias)
        draft = draft.with_spec(site.heads, bias=sure, mask=draft.asked.mask | Dense(chosen))
        one = torch.ones((), dtype=total.dtype, device=total.device)
        scale = torch.where(chosen, total, one if draft.scale is None else draft.scale)
        final = site.heads if draft.final is None else draft.final | site.heads
        return replace(draft, scale=scale, final=final)


def _added(draft: Draft) -> Tensor:
    """What the spec adds to the logits, (batch or 1, head or 1, query or 1, key or 1)."""
    plane = draft.asked.plane
    total = torch.zeros((1, 1, 1, 1, 1), dtype=draft.asked.dtype, device=plane.device)
    for term in () if draft.asked.bias is None else draft.asked.bias.terms():
        total = total + term.values(plane.all)
    if total.shape[1:3] == (1, 1):
        return total.squeeze(2)
    return total.expand(-1, plane.kv_heads, plane.group, -1, -1).flatten(1, 2)
