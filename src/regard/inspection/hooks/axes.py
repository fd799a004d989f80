"""Axes: where each axis of a tensor comes from, followed through views, copies and products.

An axis consists of pieces, (size, mark), outermost first, because a view may merge axes. A layout is what is stored for
a storage: pairs (stride, mark), largest stride first. A view of the storage has the pieces that its strides reach, so
that views need no rules.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

# marks of a piece
FEATURE = 1  # made by a linear layer: heads and channels; all other axes are batch axes or tokens
ROW, COLUMN = 2, 4  # of a product of two activations: of its first and of its second factor
QUERY, KEY = 8, 16  # of weights: the softmax is over the keys
ROLES = ROW | COLUMN | QUERY | KEY

Pieces = tuple[tuple[int, int], ...]
Axes = tuple[Pieces, ...]
Layout = tuple[tuple[int, int], ...]


def is_strided(tensor: Tensor) -> bool:
    """Whether a tensor has sizes and strides; nested and sparse tensors do not."""
    return not tensor.is_nested and tensor.layout == torch.strided


def axes_of(tensor: Tensor, layout: Layout | None) -> Axes | None:
    """The pieces of every axis; None if the strides do not tell."""
    if not is_strided(tensor):
        return None
    if layout is None:
        return tuple(((size, 0),) if size != 1 else () for size in tensor.shape)
    axes: list[Pieces] = []
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        if size == 1:
            axes.append(())
        elif stride == 0:
            axes.append(((size, 0),))
        else:
            pieces = _pieces(size, stride, layout)
            if pieces is None:
                return None
            axes.append(pieces)
    return tuple(axes)


def _pieces(size: int, stride: int, layout: Layout) -> Pieces | None:
    """An axis as the strides of the layout split it."""
    pieces: list[tuple[int, int]] = []
    while size > 1:
        above, mark = 0, 0
        for known, known_mark in layout:
            if known <= stride:
                mark = known_mark
                break
            above = known
        count = size
        if above and size * stride > above:
            count = above // stride
            if count * stride != above or size % count:
                return None
        if pieces and pieces[0][1] == mark:
            pieces[0] = (pieces[0][0] * count, mark)
        else:
            pieces.insert(0, (count, mark))
        size, stride = size // count, above
    return tuple(pieces)


def layout_of(tensor: Tensor, axes: Axes | None) -> Layout | None:
    """The layout of a storage that was made for this tensor; None if no axis is marked."""
    if axes is None or not is_strided(tensor):
        return None
    found = []
    marked = 0
    for pieces, stride in zip(axes, tensor.stride(), strict=True):
        for size, mark in reversed(pieces):
            if stride:
                found.append((stride, mark))
                marked |= mark
            stride *= size
    return tuple(sorted(found, reverse=True)) if marked else None


def resized(axes: Axes, shape: Sequence[int]) -> Axes:
    """The axes of a result with as many axes, of which some may have other sizes. One that has another size and several
    marks has none."""
    result: list[Pieces] = []
    for pieces, size in zip(axes, shape, strict=True):
        if prod(count for count, _ in pieces) == size:
            result.append(pieces)
        else:
            result.append(((size, pieces[0][1] if len(pieces) == 1 else 0),) if size != 1 else ())
    return tuple(result)


def broadcast(axes: Axes, shape: Sequence[int]) -> Axes | None:
    """The axes of an elementwise result; an axis that is repeated has no mark. None if there were more axes."""
    return resized(((),) * (len(shape) - len(axes)) + axes, shape) if len(axes) <= len(shape) else None


def merged(axes: Axes, tensor: Tensor) -> Layout | None:
    """The layout of a contiguous copy with the same numbers in the same order and other axes."""
    found, stride, marked = [], 1, 0
    for size, mark in reversed([piece for pieces in axes for piece in pieces]):
        found.append((stride, mark))
        stride, marked = stride * size, marked | mark
    return tuple(reversed(found)) if marked and stride == tensor.numel() and tensor.is_contiguous() else None


def marks(pieces: Pieces) -> int:
    """All marks of an axis."""
    joined = 0
    for _, mark in pieces:
        joined |= mark
    return joined


def arranged(tensor: Tensor, axes: Axes, place: Callable[[int, int], int]) -> Tensor:
    """The tensor with four axes: `place` of an axis and a mark tells to which of them a piece goes."""
    pieces = [(size, place(number, mark)) for number, axis in enumerate(axes) for size, mark in axis]
    order = sorted(range(len(pieces)), key=lambda number: pieces[number][1])
    shape = [prod(size for size, where in pieces if where == number) for number in range(4)]
    return tensor.reshape([size for size, _ in pieces]).permute(order).reshape(shape)


def richer(one: Pieces, other: Pieces) -> Pieces:
    """Of the pieces of one axis in two factors those that show more features; a factor may repeat its heads."""
    sizes = [prod(size for size, mark in pieces if mark & FEATURE) for pieces in (one, other)]
    return other if not one or (other and sizes[1] > sizes[0]) else one


class Product(NamedTuple):
    """The letters of an einsum of two factors."""

    first: str
    second: str
    out: str

    def axes(self, first: Axes, second: Axes, parameter: int | None) -> Axes:
        """The axes of the result, with rows and columns marked. If one of the factors is the weight of a linear layer,
        `parameter` is its number, and the axes keep their marks."""
        known = (dict(zip(self.first, first, strict=True)), dict(zip(self.second, second, strict=True)))
        result = []
        for letter in self.out:
            one, other = known[0].get(letter), known[1].get(letter)
            if parameter is None:
                if one is None or other is None:
                    role = COLUMN if one is None else ROW
                    result.append(tuple((size, mark & FEATURE | role) for size, mark in one or other or ()))
                else:
                    result.append(tuple((size, mark & FEATURE) for size, mark in richer(one, other)))
                continue
            active = known[1 - parameter].get(letter)
            weight = known[parameter].get(letter)
            if active is None:
                result.append(tuple((size, FEATURE) for size, _ in weight or ()))
            else:
                result.append(active or weight or ())
        return tuple(result)

    def contracted(self, number: int) -> list[int]:
        """The axes of a factor that are summed with the other."""
        own, other = (self.first, self.second)[:: 1 if number == 0 else -1]
        return [axis for axis, letter in enumerate(own) if letter in other and letter not in self.out]


MATRIX_PRODUCTS = ("mm", "bmm", "matmul", "mv", "dot", "addmm", "baddbmm", "baddbmm_", "addmv", "_addmm_activation")
DISTANCES = ("cdist", "_cdist_forward", "_euclidean_dist")  # of the rows of two tensors
BATCH = "ABCDEFGHIJKLMNOPQRSTUVW"  # letters of batch axes


def product_of(name: str, args: Any, factors: Sequence[Tensor]) -> Product | None:
    """The letters of an operator that multiplies two tensors; None if it is of another kind."""
    if len(factors) != 2:
        return None
    if name == "einsum":
        return _einsum(args[0], factors)
    one, other = (factor.ndim for factor in factors)
    if name == "linear" and other == 2:
        lead = BATCH[: one - 1]
        return Product(f"{lead}y", "zy", f"{lead}z")
    if name in DISTANCES:
        lead = BATCH[: max(one, other) - 2]
        return Product(f"{lead[len(lead) - one + 2 :]}xy", f"{lead[len(lead) - other + 2 :]}zy", f"{lead}xz")
    if name not in MATRIX_PRODUCTS or not one or not other:
        return None
    lead = BATCH[: max(one, other, 2) - 2]
    first = lead[len(lead) - max(one - 2, 0) :] + ("xy" if one > 1 else "y")
    second = lead[len(lead) - max(other - 2, 0) :] + ("yz" if other > 1 else "y")
    return Product(first, second, lead + "x" * (one > 1) + "z" * (other > 1))


def _einsum(equation: str, factors: Sequence[Tensor]) -> Product | None:
    """An einsum of two factors without a repeated letter."""
    given, arrow, out = equation.replace(" ", "").partition("->")
    terms = given.split(",")
    if len(terms) != 2:
        return None
    # letters that no equation has, for the axes of an ellipsis
    spread = [factor.ndim - len(term.replace("...", "")) for factor, term in zip(factors, terms, strict=True)]
    hidden = "".join(map(chr, range(0x3B1, 0x3B1 + max([0, *spread]))))
    named = [
        term.replace("...", hidden[len(hidden) - max(count, 0) :]) for term, count in zip(terms, spread, strict=True)
    ]
    if any(
        len(term) != factor.ndim or len(set(term)) != len(term) for term, factor in zip(named, factors, strict=True)
    ):
        return None
    if not arrow:
        letters = "".join(named)
        single = sorted(letter for letter in set(letters) if letters.count(letter) == 1 and letter not in hidden)
        return Product(named[0], named[1], hidden + "".join(single))
    return Product(named[0], named[1], out.replace("...", hidden))
