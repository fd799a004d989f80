"""Mask: which pairs may see each other (True = visible), and how masks combine with `&`, `|`, `~`."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.spec.masks.count import count_visible
from regard.spec.masks.runs import MIXED, Runs, cut
from regard.spec.part import Part
from regard.spec.plane import Pairs, Plane, Strips


class Mask(Part):
    """A set of visible pairs over absolute positions i (query) and j (key)."""

    @property
    def positional(self) -> bool:
        """Whether the answer depends on where the queries stand (so `query_start` must be known)."""
        return True

    def visible(self, pairs: Pairs) -> Tensor:
        """True where the pair is visible; broadcasts to (batch, kv head, group, query, key)."""
        raise NotImplementedError(f"{type(self).__name__} must define visible(pairs)")

    def runs(self, strips: Strips) -> Runs:
        """The same in closed form: intervals of keys per strip of queries."""
        return cut(strips, (MIXED,))

    def check(self, plane: Plane) -> None:
        """Raise if this mask does not fit the sizes of the call."""

    def leaves(self) -> Iterator["Mask"]:
        """The masks this one is made of."""
        yield self

    def pairs(
        self,
        queries: int,
        keys: int | None = None,
        *,
        batch: int = 1,
        heads: int = 1,
        query_start: int | Tensor | None = None,
    ) -> int:
        """Exact number of visible pairs, over all batch rows and heads."""
        return count_visible(self, plane_of(self, queries, keys, batch, heads, query_start))

    def show(self, queries: int = 16, keys: int | None = None, *, query_start: int | None = None) -> None:
        """Print a picture of the mask in the terminal."""
        from regard.show.mask import print_mask

        print_mask(self, plane_of(self, queries, keys, 1, 1, query_start))

    def __and__(self, other: "Mask") -> "Mask":
        return And(self, _mask(other))

    def __or__(self, other: "Mask") -> "Mask":
        return Or(self, _mask(other))

    def __invert__(self) -> "Mask":
        return Not(self)


@dataclass(frozen=True, eq=False, repr=False)
class And(Mask):
    """Visible in both."""

    left: Mask
    right: Mask

    @property
    def positional(self) -> bool:
        return self.left.positional or self.right.positional

    def visible(self, pairs: Pairs) -> Tensor:
        return self.left.visible(pairs) & self.right.visible(pairs)

    def runs(self, strips: Strips) -> Runs:
        return self.left.runs(strips) & self.right.runs(strips)

    def check(self, plane: Plane) -> None:
        self.left.check(plane)
        self.right.check(plane)

    def leaves(self) -> Iterator[Mask]:
        yield from self.left.leaves()
        yield from self.right.leaves()

    def __repr__(self) -> str:
        return f"{_bracketed(self.left, Or)} & {_bracketed(self.right, Or)}"


@dataclass(frozen=True, eq=False, repr=False)
class Or(And):
    """Visible in at least one."""

    def visible(self, pairs: Pairs) -> Tensor:
        return self.left.visible(pairs) | self.right.visible(pairs)

    def runs(self, strips: Strips) -> Runs:
        return self.left.runs(strips) | self.right.runs(strips)

    def __repr__(self) -> str:
        return f"{self.left!r} | {self.right!r}"


@dataclass(frozen=True, eq=False, repr=False)
class Not(Mask):
    """Visible where the other is not."""

    mask: Mask

    @property
    def positional(self) -> bool:
        return self.mask.positional

    def visible(self, pairs: Pairs) -> Tensor:
        return ~self.mask.visible(pairs)

    def runs(self, strips: Strips) -> Runs:
        return ~self.mask.runs(strips)

    def check(self, plane: Plane) -> None:
        self.mask.check(plane)

    def leaves(self) -> Iterator[Mask]:
        yield from self.mask.leaves()

    def __repr__(self) -> str:
        return f"~{_bracketed(self.mask, And)}"


def plane_of(
    mask: Mask, queries: int, keys: int | None, batch: int, heads: int, query_start: int | Tensor | None
) -> Plane:
    """A plane of the given sizes, for looking at a mask without tensors."""
    keys = queries if keys is None else keys
    start = max(keys - queries, 0) if query_start is None else query_start
    plane = Plane(batch, heads, 1, queries, keys, torch.as_tensor(start, dtype=torch.int64).reshape(-1).cpu())
    mask.check(plane)
    return plane


def _mask(other: object) -> Mask:
    if not isinstance(other, Mask):
        raise TypeError(
            f"masks combine with masks, got {type(other).__name__}; wrap a bool tensor as masks.Dense(tensor)"
        )
    return other


def _bracketed(mask: Mask, kinds: type[Mask]) -> str:
    return f"({mask!r})" if isinstance(mask, kinds) else repr(mask)
