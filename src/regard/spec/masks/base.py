"""Mask: which pairs may see each other (True = visible), and how masks combine with `&`, `|`, `~`."""

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from regard.spec.masks.count import count_visible
from regard.spec.masks.extent import Extent, picture_plane, plane_of
from regard.spec.masks.runs import MIXED, Runs, cut
from regard.spec.part import Part
from regard.spec.plane import SAME_FOR_ALL, Pairs, Plane, RowBlocks
from regard.spec.serialize import register
from regard.spec.steps import Combine, Function, MaskStep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["And", "Mask", "Not", "Or", "plane_of"]

OPERATORS: dict[Combine, Callable[..., Any]] = {
    Combine.AND: operator.and_,
    Combine.OR: operator.or_,
    Combine.NOT: operator.invert,
}


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

    def runs(self, row_blocks: RowBlocks) -> Runs:
        """The same in closed form: intervals of keys for each block of query rows."""
        return cut(row_blocks, (MIXED,))

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

        print_mask(self, picture_plane(self, queries, keys, query_start), batch_row=batch_row, head=head)

    def figure(
        self,
        queries: int | None = None,
        keys: int | None = None,
        *,
        query_start: int | Tensor | None = None,
        batch_row: int = 0,
        head: int = 0,
    ) -> "Figure":
        """The same picture as a matplotlib figure of its own."""
        from regard.plot.figure import finished
        from regard.plot.mask import figure_of

        plane = picture_plane(self, queries, keys, query_start)
        return finished(figure_of(self, plane, batch_row=batch_row, head=head))

    def __and__(self, other: "Mask") -> "Mask":
        return And(self, _mask(other))

    def __or__(self, other: "Mask") -> "Mask":
        return Or(self, _mask(other))

    def __invert__(self) -> "Mask":
        return Not(self)

    def __bool__(self) -> bool:
        raise TypeError("a mask is neither true nor false; write & for and, | for or, ~ for not")


class _Combination(Mask):
    """What `And`, `Or` and `Not` share."""

    axes = SAME_FOR_ALL

    @property
    def combines(self) -> tuple[Combine, tuple[Mask, ...]]:
        raise NotImplementedError

    @property
    def masks(self) -> tuple[Mask, ...]:
        """The masks that are combined."""
        return self.combines[1]

    @property
    def positional(self) -> bool:
        return any(mask.positional for mask in self.masks)

    def positional_for(self, queries: int) -> bool:
        return any(mask.positional_for(queries) for mask in self.masks)

    @property
    def extent(self) -> Extent:
        return Extent(*map(max, zip(*(mask.extent for mask in self.masks), strict=True)))

    def visible(self, pairs: Pairs) -> Tensor:
        how, masks = self.combines
        result: Tensor = OPERATORS[how](*(mask.visible(pairs) for mask in masks))
        return result

    def runs(self, row_blocks: RowBlocks) -> Runs:
        how, masks = self.combines
        result: Runs = OPERATORS[how](*(mask.runs(row_blocks) for mask in masks))
        return result

    def steps(self, plane: Plane) -> tuple[MaskStep, ...]:
        """The steps of all masks that are combined, then how; none if one of them has none."""
        how, masks = self.combines
        each = [mask.steps(plane) for mask in masks]
        return (*(step for steps in each for step in steps), how) if all(each) else ()

    def check(self, plane: Plane) -> None:
        for mask in self.masks:
            mask.check(plane)

    def leaves(self) -> Iterator[Mask]:
        for mask in self.masks:
            yield from mask.leaves()

    @property
    def functions(self) -> tuple[Function, ...]:
        return tuple(fn for mask in self.masks for fn in mask.functions)


@register
@dataclass(frozen=True, eq=False, repr=False)
class And(_Combination):
    """Visible in both."""

    left: Mask
    right: Mask

    @property
    def combines(self) -> tuple[Combine, tuple[Mask, ...]]:
        return Combine.AND, (self.left, self.right)

    def __repr__(self) -> str:
        # brackets wherever a reader could doubt, and where `eval` would group differently
        left = repr(self.left) if isinstance(self.left, And) else _bracketed(self.left)
        return f"{left} & {_bracketed(self.right)}"


@register
@dataclass(frozen=True, eq=False, repr=False)
class Or(_Combination):
    """Visible in at least one."""

    left: Mask
    right: Mask

    @property
    def combines(self) -> tuple[Combine, tuple[Mask, ...]]:
        return Combine.OR, (self.left, self.right)

    def __repr__(self) -> str:
        left = repr(self.left) if isinstance(self.left, Or) else _bracketed(self.left)
        return f"{left} | {_bracketed(self.right)}"


@register
@dataclass(frozen=True, eq=False, repr=False)
class Not(_Combination):
    """Visible where the other is not."""

    mask: Mask

    @property
    def combines(self) -> tuple[Combine, tuple[Mask, ...]]:
        return Combine.NOT, (self.mask,)

    def __repr__(self) -> str:
        return f"~{_bracketed(self.mask)}"


def _mask(other: object) -> Mask:
    if not isinstance(other, Mask):
        raise TypeError(
            f"masks combine with masks, got {type(other).__name__}; wrap a bool tensor as masks.Dense(tensor)"
        )
    return other


def _bracketed(mask: Mask) -> str:
    return f"({mask!r})" if isinstance(mask, (And, Or)) else repr(mask)
