"""Partial: attention over some of the keys, and the one function that joins two."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Partial:
    """`out` (…, query, d_v) and `lse` (…, query), the natural log of the summed e^(logit/τ).

    A query that saw no key has out = 0 and lse = −inf.
    """

    out: Tensor
    lse: Tensor


def merge(left: Partial, right: Partial) -> Partial:
    """Combine attention over two disjoint sets of keys into attention over both.

    Two queries that saw no key merge into a third. The order changes only rounding.
    """
    if left.lse.shape != right.lse.shape:
        raise ValueError(
            "merge joins two parts of the same queries, "
            f"got lse {tuple(left.lse.shape)} and {tuple(right.lse.shape)}; split the keys, not the queries"
        )
    # −inf minus −inf is NaN, so a row that saw no key is shifted by 0 instead
    top = torch.maximum(left.lse, right.lse).detach()
    shift = torch.where(top == -torch.inf, 0.0, top)
    share_left, share_right = (left.lse - shift).exp(), (right.lse - shift).exp()
    total = share_left + share_right
    empty = total == 0
    lse = torch.where(empty, -torch.inf, shift + torch.where(empty, 1.0, total).log())
    total = torch.where(empty, 1.0, total).unsqueeze(-1)
    out = left.out * (share_left.unsqueeze(-1) / total) + right.out * (share_right.unsqueeze(-1) / total)
    return Partial(out, lse)
