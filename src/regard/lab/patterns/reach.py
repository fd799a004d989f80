"""Reach: what a query can know of after several layers of one mask, exactly.

A layer passes on what its keys know, so after L layers query i knows of key j if a path of L visible steps leads from i
to j: the L-th power of the mask, where + is or and · is and.
"""

import torch
from torch import Tensor

from regard.spec.masks import Mask
from regard.spec.masks.base import plane_of


def visible(mask: Mask, length: int) -> Tensor:
    """(query, key), with every token seeing itself, as the residual stream lets it."""
    plane = plane_of(mask, length, length, 1, 1, None)
    seen = mask.visible(plane.all).expand(1, 1, 1, length, length)[0, 0, 0]
    return seen | torch.eye(length, dtype=torch.bool)


def after(first: Tensor, second: Tensor) -> Tensor:
    """What is known after both."""
    return (first.float() @ second.float()) > 0


def known(mask: Mask, length: int, layers: int) -> Tensor:
    """(query, key): what is known after so many layers."""
    found = torch.eye(length, dtype=torch.bool)
    seen = visible(mask, length)
    for _ in range(layers):
        found = after(found, seen)
    return found


def powers(mask: Mask, length: int) -> list[Tensor]:
    """What is known after 1, 2, 4, … layers, until nothing more becomes known."""
    found = [visible(mask, length)]
    while not torch.equal(twice := after(found[-1], found[-1]), found[-1]):
        found.append(twice)
    return found


def layers_needed(mask: Mask, length: int) -> tuple[int, float]:
    """The layers after which nothing more becomes known, and the share of pairs that is known then."""
    found = powers(mask, length)
    layers, so_far = 0, torch.eye(length, dtype=torch.bool)
    for exponent in range(len(found) - 1, -1, -1):
        further = after(so_far, found[exponent])
        if not torch.equal(further, found[-1]):
            layers, so_far = layers + 2**exponent, further
    return layers + 1, float(found[-1].double().mean())
