"""What a layer is given and what a call adds: parts of a spec, the modules that make them, and how two are joined."""

from functools import reduce
from operator import add
from typing import TypeVar

from torch import Tensor, nn

from regard.arrays import Array
from regard.spec.biases import Bias
from regard.spec.biases import Dense as DenseBias
from regard.spec.masks import Causal, Mask
from regard.spec.masks import Dense as DenseMask

AnyMask = Mask | Tensor | Array | str | None
AnyBias = Bias | Tensor | Array | None
Made = TypeVar("Made")


def made(part: Made | nn.Module) -> Made:
    """The part itself, or the one that a module makes of its parameters."""
    if isinstance(part, nn.Module):
        value: Made = part()
        return value
    return part


def both(left: AnyMask, right: AnyMask) -> AnyMask:
    """What both masks show; None shows all."""
    for mask in (left, right):
        if isinstance(mask, str) and mask != "causal":
            raise ValueError(
                f"mask={mask!r} is not known; the one short name is 'causal', the others are in regard.masks"
            )
    if left is None or right is None:
        return right if left is None else left
    return _mask(left) & _mask(right)


def _mask(mask: Mask | Tensor | Array | str) -> Mask:
    if isinstance(mask, str):
        return Causal()
    return mask if isinstance(mask, Mask) else DenseMask(mask)  # type: ignore[arg-type]


def added(*biases: AnyBias) -> AnyBias:
    """The sum of what is given."""
    given = [bias for bias in biases if bias is not None]
    if len(given) <= 1:
        return given[0] if given else None
    total: Bias = reduce(
        add,
        [bias if isinstance(bias, Bias) else DenseBias(bias) for bias in given],  # type: ignore[arg-type]
    )
    return total
