"""Changes of what heads put out, whatever they attend to."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from regard.inspection.hooks.altered import Wanted
from regard.inspection.hooks.draft import Draft
from regard.inspection.hooks.names import Names
from regard.inspection.hooks.taps import altering
from regard.inspection.interventions.change import Change, Site


@dataclass(frozen=True, eq=False, repr=False)
class Ablate(Change):
    """The head puts out zeros."""

    def applied(self, draft: Draft, site: Site) -> Draft:
        return replace(draft, outputs=(*draft.outputs, (site.heads, torch.zeros_like)))


@dataclass(frozen=True, eq=False, repr=False)
class Average(Change):
    """The head puts out its mean: over the positions of the call, each batch row its own; or, made by
    `Average.over(model, *inputs)`, over all positions and rows of another run."""

    means: Mapping[str, Tensor] | None = None

    @classmethod
    def over(cls, model: nn.Module, *inputs: Any, **kw: Any) -> Self:
        """The means of `model(*inputs, **kw)`, one vector for each head of each layer."""
        names, sums = Names(model), dict[str, Tensor]()
        counts: dict[str, int] = {}

        def listen() -> Wanted | None:
            place = names.running()
            return None if place is None else Wanted(place.path, lambda draft: _noted(draft, place.path))

        def _noted(draft: Draft, path: str) -> Draft:
            def note(out: Tensor) -> Tensor:
                total = out.detach().to(torch.float64).sum((0, 2))
                sums[path] = sums[path] + total if path in sums else total
                counts[path] = counts.get(path, 0) + out.shape[0] * out.shape[2]
                return out

            return replace(draft, outputs=(*draft.outputs, (torch.zeros_like(draft.heads), note)))

        with altering(model, listen):
            model(*inputs, **kw)
        if not sums:
            raise ValueError(f"{type(model).__name__} made no call of attention that can be heard")
        return cls({path: total / counts[path] for path, total in sums.items()})

    def applied(self, draft: Draft, site: Site) -> Draft:
        return replace(draft, outputs=(*draft.outputs, (site.heads, self._mean(draft, site))))

    def _mean(self, draft: Draft, site: Site) -> Any:
        if self.means is None:
            if draft.queries == 1:
                raise ValueError(
                    "the mean over one position is that position itself; take it over another run with "
                    "Average.over(model, *inputs)"
                )
            return lambda out: out.mean(-2, keepdim=True).expand_as(out)
        if site.layer not in self.means:
            raise ValueError(f"its mean is not known, only those of {', '.join(self.means)}")
        mean = self.means[site.layer]
        return lambda out: _fitting(mean, out).to(out).unsqueeze(-2).expand_as(out)

    def __repr__(self) -> str:
        return "Average()" if self.means is None else f"Average(over another run, {len(self.means)} layers)"


def _fitting(mean: Tensor, out: Tensor) -> Tensor:
    if mean.shape != (out.shape[1], out.shape[-1]):
        raise ValueError(
            f"the means are of {mean.shape[0]} heads of width {mean.shape[1]}, the layer has {out.shape[1]} of "
            f"width {out.shape[-1]}"
        )
    return mean
