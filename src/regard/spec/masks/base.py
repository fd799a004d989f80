"""Mask: which pairs may see each other (True = visible), and how masks combine with `&`, `|`, `~`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from regard.spec.masks.count import count_visible
from regard.spec.masks.extent import Extent, plane_of
from regard.spec.masks.runs import MIXED, Runs, cut
from regard.spec.part import Part
from regard.spec.plane import SAME_FOR_ALL, Pairs, Plane, Strips
from regard.spec.serialize import register
from regard.spec.steps import Combine, Function, MaskStep

__all__ = ["And", "Mask", "Not", "Or", "plane_of"]


class Mask(Part):
    """A set of visible pairs over absolute positions i (query) and j (key).

    A mask of one's own defines `visible`; `runs` lets engines skip what is hidden, `steps` lets the native engine and
    FlexAttention run it without asking pair by pair.
    """

    family = "masks"
    definitions = ("visible",)
    derived = ("runs", "steps", "combines", "symbols")
    ragged: ClassVar[bool] = False  # whether the keys end at different places, so that no default start fits

    @property
    def positional(self) -> bool:
        """Whether the answer may depend on where the queries stand (so `query_start` must be known)."""
        return True

    def positional_for(self, queries: int) -> bool:
        """The same for a call with that many queries."""
        return self.positional

    @property
    def extent(self) -> Extent:
        """The sizes this mask was made for, as far as it has any."""
        return Extent()

    def visible(self, pairs: Pairs) -> Tensor:
        """True where the pair is visible; broadcasts to (batch, kv head, group, query, key)."""
        raise NotImplementedError(f"{type(self).__name__} must define visible(pairs)")

    def runs(self, strips: Strips) -> Runs:
        """The same in closed form: intervals of keys per strip of queries."""
        return cut(strips, (MIXED,))

    def steps(self, plane: Plane) -> tuple[MaskStep, ...]:
        """The same as primitive steps in postfix order; none where it has only `visible`."""
        return ()

    @property
    def combines(self) -> tuple[Combine, tuple["Mask", ...]] | None:
        """How it combines other masks, and which; None for a mask of its own."""
        return None

    @property
    def functions(self) -> tuple[Function, ...]:
        """The users' functions that its steps hold."""
        return ()

    @property
    def closed(self) -> bool:
        """Whether it lowers to steps without a user's function, which kernels can compute."""
        return all(type(leaf).steps is not Mask.steps and not leaf.functions for leaf in self.leaves())

    def check(self, plane: Plane) -> None:
        """Raise if this mask does not fit the sizes of the call."""

    def leaves(self) -> Iterator["Mask"]:
        """The masks this one is made of."""
        yield self

    def pairs(
        self,
        queries: int | None = None,
        keys: int | None = None,
        *,
        batch: int | None = None,
        heads: int | None = None,
        query_start: int | Tensor | None = None,
    ) -> int:
        """Exact number of visible pairs, over all batch rows and heads.

        There are as many keys as queries if only these are given. What is not given is taken from the
        mask where it has a size of its own. Without a closed form, all pairs that may be visible are looked at.
        """
        return count_visible(self, plane_of(self, queries, keys, batch, heads, query_start))

    def show(
        self,
        queries: int | None = None,
        keys: int | None = None,
        *,
        query_start: int | Tensor | None = None,
        batch_row: int = 0,
        head: int = 0,
    ) -> None:
        """Print a picture of the mask in the terminal; sizes as in `pairs`, 16 queries for a mask that has none."""
        from regard.plot.mask import print_mask

        if queries is None and keys is None and not self.extent.sized:
            queries = 16
        print_mask(self, plane_of(self, queries, keys, None, None, query_start), batch_row=batch_row, head=head)

    def __and__(self, other: "Mask") -> "Mask":
        return And(self, _mask(other))

    def __or__(self, other: "Mask") -> "Mask":
        return Or(self, _mask(other))

    def __invert__(self) -> "Mask":
        return Not(self)

    def __bool__(self) -> bool:
        raise TypeError("a mask is neither true nor false; write & for and, | for or, ~ for not")


def _combined(self: Mask, plane: Plane) -> tuple[MaskStep, ...]:
    """The steps of all masks that are combined, and how; none if one of them has none."""
    assert self.combines is not None
    how, masks = self.combines
    each = [mask.steps(plane) for mask in masks]
    return (*(step for steps in each for step in steps), how) if all(each) else ()


@dataclass(frozen=True, eq=False, repr=False)
class _Two(Mask):
    """What `And` and `Or` share."""

    axes = SAME_FOR_ALL

    left: Mask
    right: Mask

    @property
    def positional(self) -> bool:
        return self.left.positional or self.right.positional

    def positional_for(self, queries: int) -> bool:
        return self.left.positional_for(queries) or self.right.positional_for(queries)

    @property
    def extent(self) -> Extent:
        return Extent(*map(max, self.left.extent, self.right.extent))

    def check(self, plane: Plane) -> None:
        self.left.check(plane)
        self.right.check(plane)

    def leaves(self) -> Iterator[Mask]:
        yield from self.left.leaves()
        yield from self.right.leaves()

    @property
    def functions(self) -> tuple[Function, ...]:
        return self.left.functions + self.right.functions

    def _joined(self, sign: str) -> str:
        """Brackets wherever a reader could doubt, and where `eval` would group differently."""
        left = _bracketed(self.left) if type(self.left) is not type(self) else repr(self.left)
        return f"{left} {sign} {_bracketed(self.right)}"


@register
@dataclass(frozen=True, eq=False, repr=False)
class And(_Two):
    """Visible in both."""

    def visible(self, pairs: Pairs) -> Tensor:
        return self.left.visible(pairs) & self.right.visible(pairs)

    def runs(self, strips: Strips) -> Runs:
        return self.left.runs(strips) & self.right.runs(strips)

    @property
    def combines(self) -> tuple[Combine, tuple[Mask, ...]]:
        return Combine.AND, (self.left, self.right)

    steps = _combined

    def __repr__(self) -> str:
        return self._joined("&")


@register
@dataclass(frozen=True, eq=False, repr=False)
class Or(_Two):
    """Visible in at least one."""

    def visible(self, pairs: Pairs) -> Tensor:
        return self.left.visible(pairs) | self.right.visible(pairs)

    def runs(self, strips: Strips) -> Runs:
        return self.left.runs(strips) | self.right.runs(strips)

    @property
    def combines(self) -> tuple[Combine, tuple[Mask, ...]]:
        return Combine.OR, (self.left, self.right)

    steps = _combined

    def __repr__(self) -> str:
        return self._joined("|")


@register
@dataclass(frozen=True, eq=False, repr=False)
class Not(Mask):
    """Visible where the other is not."""

    axes = SAME_FOR_ALL

    mask: Mask

    @property
    def positional(self) -> bool:
        return self.mask.positional

    def positional_for(self, queries: int) -> bool:
        return self.mask.positional_for(queries)

    @property
    def extent(self) -> Extent:
        return self.mask.extent

    def visible(self, pairs: Pairs) -> Tensor:
        return ~self.mask.visible(pairs)

    def runs(self, strips: Strips) -> Runs:
        return ~self.mask.runs(strips)

    @property
    def combines(self) -> tuple[Combine, tuple[Mask, ...]]:
        return Combine.NOT, (self.mask,)

    steps = _combined

    def check(self, plane: Plane) -> None:
        self.mask.check(plane)

    def leaves(self) -> Iterator[Mask]:
        yield from self.mask.leaves()

    @property
    def functions(self) -> tuple[Function, ...]:
        return self.mask.functions

    def __repr__(self) -> str:
        return f"~{_bracketed(self.mask)}"


def _mask(other: object) -> Mask:
    if not isinstance(other, Mask):
        raise TypeError(
            f"masks combine with masks, got {type(other).__name__}; wrap a bool tensor as masks.Dense(tensor)"
        )
    return other


def _bracketed(mask: Mask) -> str:
    return f"({mask!r})" if isinstance(mask, _Two) else repr(mask)
