"""Handwritten attention: products and a softmax that a model computes itself, as an AttentionCall with its weights.

The weights are those that the softmax returned. Their axes become (batch, head, query, key) by where they come from:
keys are what the softmax is over, queries the axis of the other factor of the scores, heads what a view splits from the
features of a linear layer. Other axes are batch axes.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from regard.inspection.hooks.axes import COLUMN, FEATURE, KEY, QUERY, ROLES, ROW, Axes, Product, arranged, marks, richer
from regard.inspection.hooks.call import AttentionCall

SOFTMAX, CHANNELS = "its own softmax", "its own softmax, over channels"
MIXED, CHANGED = ", then mixed heads", ", then changed weights"  # between the softmax and the product with the values
LOST = "its softmax was too many others ago when its result was multiplied with values"
FUNCTION = "its weights are the {} of its scores, not a softmax"
SUMS = "its weights do not add up to 1 where it multiplies them with values, as if it divided by their sum after that"
REARRANGED = "its scores or weights are rearranged, so that it is not known which axis is that of the keys"
OTHER_AXIS = "its softmax is not over the axis that it adds up in the product with the values"


@dataclass(frozen=True, eq=False)
class Factors:
    """The two factors of scores, without copies, and the pieces of their axes if they are known."""

    tensors: tuple[Tensor, Tensor]
    axes: tuple[Axes | None, Axes | None]
    product: Product | None


@dataclass(eq=False)
class Weights:
    """What a softmax made of scores, until it is multiplied with values.

    `tensor` shares the memory of the result. `axis` is the number of the axis that the softmax is over, `axes` the
    pieces of all axes, None if they are not known. `key_factor` is the number of the factor that holds the keys.
    `function` is its name; exponentials have to be divided by a sum before they are weights: `divided`.
    """

    tensor: Tensor | None
    axis: int
    axes: Axes | None
    factors: Factors | None
    key_factor: int
    function: str
    divided: bool
    reported: bool = field(default=False, init=False)

    def refusal(self) -> str | None:
        """Why these weights cannot be reported; None if they can."""
        if self.function not in ("softmax", "exp"):
            return FUNCTION.format(self.function)
        if self.tensor is None:
            return LOST
        if self.axes is None:
            return REARRANGED
        return SUMS if self.function == "exp" and not self._adds_up() else None

    def product_refusal(self, shape: torch.Size, summed: list[int], axes: Axes | None) -> str | None:
        """Why a product does not sum over the keys; None if it does. `shape` and `axes` are those of the factor that
        was made of the weights, `summed` the numbers of the axes that are added up."""
        assert self.tensor is not None
        assert self.axes is not None
        keys = self.tensor.shape[self.axis]
        if axes is None:
            return None if [shape[axis] for axis in summed] == [keys] else REARRANGED
        known = bool(marks(self.axes[self.axis]) & KEY) or keys == 1
        over = known and all(marks(axes[axis]) & KEY or shape[axis] == 1 for axis in summed)
        return None if over else OTHER_AXIS

    def _adds_up(self) -> bool:
        """Whether every row adds up to 1, as far as rounding allows, or to 0."""
        assert self.tensor is not None
        sums = self.tensor.double().sum(self.axis)
        allowed = (self.tensor.shape[self.axis] + 16) * torch.finfo(self.tensor.dtype).eps
        return bool((((sums - 1.0).abs() <= allowed) | (sums == 0.0)).all())

    def call(self, after: str) -> AttentionCall:
        """The call. `after` says what was done between the softmax and the product with the values."""
        assert self.tensor is not None
        assert self.axes is not None
        axes, axis = self.axes, self.axis
        channels = bool(marks(axes[axis]) & FEATURE) and _all_features(axes)
        head = _head_axis(axes, axis, channels)

        def place(number: int, mark: int) -> int:
            if number == axis or mark & KEY:
                return 3
            if mark & QUERY:
                return 2 if channels or not mark & FEATURE or _all_features(axes) else 1
            return 1 if mark & FEATURE or number == head else 0

        weights = arranged(self.tensor, axes, place)
        batch, heads, queries, keys = weights.shape
        query = torch.empty((batch, heads, queries, 0), dtype=weights.dtype, device=weights.device)
        key = self._key(batch, heads, keys)
        if key is None:
            key = torch.empty((batch, heads, keys, 0), dtype=weights.dtype, device=weights.device)
        mechanism = (CHANNELS if channels else SOFTMAX) + after
        return AttentionCall(query, key, {}, mechanism, exact=weights, channels=channels)

    def _key(self, batch: int, heads: int, keys: int) -> Tensor | None:
        """The keys, (batch, kv head, key, width), which tell whether a call continues another; None if not known."""
        if self.factors is None or self.factors.product is None or self.axes is None:
            return None
        number = self.key_factor
        own, other, product = self.factors.axes[number], self.factors.axes[1 - number], self.factors.product
        if own is None or other is None:
            return None
        summed = product.contracted(number)
        letters, others = (product.first, product.second)[:: 1 if number == 0 else -1]
        shared = [axis for axis, letter in enumerate(letters) if letter in others and axis not in summed]
        axes = tuple(
            richer(pieces, other[others.index(letters[axis])]) if pieces and axis in shared else pieces
            for axis, pieces in enumerate(own)
        )
        features = any(marks(axes[axis]) & FEATURE for axis in shared)
        head = shared[-1] if len(shared) > 1 and not features else None

        def place(axis: int, mark: int) -> int:
            if axis in summed:
                return 3
            if axis not in shared:
                return 2
            return 1 if mark & FEATURE or axis == head else 0

        key = arranged(self.factors.tensors[number], axes, place)
        fits = key.shape[0] == batch and key.shape[1] and heads % key.shape[1] == 0 and key.shape[2] == keys
        return key if fits else None


def weights_of(
    out: Tensor, axis: int, axes: Axes | None, factors: Factors | None, function: str
) -> tuple[Weights, Axes | None]:
    """What a softmax over an axis returned, and its axes with queries and keys marked."""
    axis %= max(1, out.ndim)
    role = 0 if axes is None else marks(axes[axis]) & ROLES
    if axes is not None and role in (ROW, COLUMN, QUERY, KEY):  # the latter two of a softmax of weights
        axes = tuple(
            tuple(
                (size, mark & FEATURE | (KEY if mark & role else QUERY if mark & ROLES else 0)) for size, mark in pieces
            )
            for pieces in axes
        )
    return Weights(out, axis, axes, factors, int(role != ROW), function, function != "exp"), axes


def _all_features(axes: Axes) -> bool:
    """Whether all queries are features."""
    found = [mark for pieces in axes for _, mark in pieces if mark & QUERY]
    return bool(found) and all(mark & FEATURE for mark in found)


def _head_axis(axes: Axes, axis: int, channels: bool) -> int | None:
    """Where no piece is known to be of heads: the last of several leading axes."""
    if any(mark & FEATURE and not mark & (QUERY | KEY) for pieces in axes for _, mark in pieces):
        return None
    if not channels and not _all_features(axes) and any(m & FEATURE and m & QUERY for p in axes for _, m in p):
        return None
    rest = [number for number in range(len(axes)) if number != axis and not marks(axes[number]) & QUERY]
    if not any(marks(pieces) & QUERY for pieces in axes):  # a single query
        single = [number for number in rest if not axes[number]]
        rest = [number for number in rest if not single or number != single[-1]]
    return rest[-1] if len(rest) > 1 else None
