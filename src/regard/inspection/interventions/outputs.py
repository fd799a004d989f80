"""Changes of the outputs of heads, whatever they attend to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from regard.inspection.hooks.call import ModuleNames
from regard.inspection.hooks.intercept import intercepting
from regard.inspection.hooks.modified_call import Modification, ModifiedCall
from regard.inspection.interventions.change import Change, Site


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
            return None if running is None else Modification(running.path, lambda call: noted(call, running.path))

        def noted(modified: ModifiedCall, path: str) -> ModifiedCall:
            def note(out: Tensor) -> Tensor:
                total = out.detach().to(torch.float64).sum((0, 2))
                sums[path] = sums[path] + total if path in sums else total
                counts[path] = counts.get(path, 0) + out.shape[0] * out.shape[2]
                return out

            return modified.with_outputs(torch.zeros_like(modified.heads), note)

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
