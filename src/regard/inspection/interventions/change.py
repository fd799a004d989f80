"""Change: what is done to the attention of some heads of a layer."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from regard.inspection.hooks.draft import Draft
from regard.spec.part import Part


@dataclass(frozen=True, eq=False)
class Site:
    """Where a change takes place: a layer, some of its heads (a bool for each), and the absolute position of the first
    key, which is not 0 where a cache has let go of keys."""

    layer: str
    heads: Tensor
    first: int = 0


class Change(Part):
    """A small frozen value that turns a call of attention into another."""

    absolute: ClassVar[bool] = False  # whether it speaks of absolute positions

    def applied(self, draft: Draft, site: Site) -> Draft:
        """The call with the change. Raises ValueError, with the reason, where it cannot be made exactly."""
        raise NotImplementedError(f"{type(self).__name__} must define applied(draft, site)")

    def check(self, reach: int) -> None:
        """Raise, after all calls, if it spoke of positions past the last key, which stood before `reach`."""
