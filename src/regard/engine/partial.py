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

    Two queries that saw no key merge into a third; one that saw NaN is NaN in both results, and no gradient
    passes through it. The order changes only rounding.
    """
    if left.lse.shape != right.lse.shape:
        raise ValueError(
            "merge joins two parts of the same queries, "
            f"got lse {tuple(left.lse.shape)} and {tuple(right.lse.shape)}; split the keys, not the queries"
        )
    bad = left.lse.isnan() | right.lse.isnan()
    lse_left, lse_right = (torch.where(bad, -torch.inf, part.lse) for part in (left, right))
    # −inf minus −inf is NaN, so a row that saw no key is shifted by 0 instead
    top = torch.maximum(lse_left, lse_right).detach()
    shift = torch.where(top == -torch.inf, 0.0, top)
    share_left, share_right = (lse_left - shift).exp(), (lse_right - shift).exp()
    total = share_left + share_right
    empty = total == 0
    total = torch.where(empty, 1.0, total)
    lse = torch.where(empty, -torch.inf, shift + total.log())
    out = _shared(left.out, share_left / total) + _shared(right.out, share_right / total)
    # a choice, not a product by 0: whatever gradient arrives at a row that one part did not see stays away from it
    out = torch.where((lse_right == -torch.inf).unsqueeze(-1), left.out, out)
    out = torch.where((lse_left == -torch.inf).unsqueeze(-1), right.out, out)
    return Partial(torch.where(bad.unsqueeze(-1), torch.nan, out), torch.where(bad, torch.nan, lse))


def _shared(out: Tensor, share: Tensor) -> Tensor:
    """out · share; what is not finite in `out` stays as it is, and the gradient does not see it."""
    finite = out.isfinite()
    return torch.where(finite, torch.where(finite, out, 0.0) * share.unsqueeze(-1), out.detach())
