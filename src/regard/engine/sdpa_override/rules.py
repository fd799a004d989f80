"""What the masks of nn.MultiheadAttention say, as parts of a spec."""

from dataclasses import dataclass
from functools import reduce
from operator import add, and_

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.engine.autocast import lowered
from regard.engine.sdpa_override.arguments import Arguments
from regard.engine.sdpa_override.projections import MISFIT
from regard.spec.biases import Bias
from regard.spec.biases import Dense as DenseBias
from regard.spec.masks import Causal, Mask
from regard.spec.masks import Dense as DenseMask


@dataclass(frozen=True, eq=False)
class Rules:
    """Which pairs are visible, what is added to them, and whether the zero key is a sink of 0 instead of a key."""

    mask: Mask | None
    bias: Bias | None
    sink: bool


def rules_of(asked: Arguments, keys: int) -> Rules:
    """The rules for `keys` keys, those at the end learned ones that no mask speaks of."""
    if not _fits(asked):
        raise ValueError(MISFIT)
    if asked.trusts_causal:  # which hides keys at the end, a zero key too
        return Rules(Causal(), None, sink=False)
    sink = asked.add_zero_attn and not asked.need_weights
    more = keys - len(asked.key) if asked.static_k is None else 0
    more += asked.add_zero_attn and not sink
    parts = [_padding(asked.key_padding_mask, more), _pairs(asked, more)]
    masks = [part for part in parts if isinstance(part, Mask)]
    biases = [part for part in parts if isinstance(part, Bias)]
    return Rules(
        mask=reduce(and_, masks) if masks else None,
        bias=reduce(add, biases) if biases else None,
        sink=sink,
    )


def _padding(given: Tensor | None, more: int) -> Mask | Bias | None:
    """A float one is a mask as well, if it holds 0 and −inf only: nn.MultiheadAttention makes such from a bool one."""
    if given is None:
        return None
    hidden = given if given.dtype == torch.bool else given == -torch.inf
    if given.dtype == torch.bool or (not given.requires_grad and bool((hidden | (given == 0)).all())):
        return DenseMask(pad(~hidden, (0, more), value=True).view(-1, 1, 1, given.shape[-1] + more))
    return DenseBias(pad(lowered(given), (0, more)).view(-1, 1, 1, given.shape[-1] + more))


def _pairs(asked: Arguments, more: int) -> Mask | Bias | None:
    given = asked.attn_mask
    if given is None:
        return None
    if asked.is_causal and not more and _causal(given):
        return Causal()
    if given.ndim == 3:
        given = given.unflatten(0, (-1, asked.num_heads))
    if given.dtype == torch.bool:
        return DenseMask(pad(~given, (0, more), value=True))
    return DenseBias(pad(lowered(given), (0, more)))


def _causal(given: Tensor) -> bool:
    """Whether the hint is true of this mask."""
    if given.ndim != 2 or given.requires_grad:
        return False
    if given.dtype == torch.bool:
        return torch.equal(given, torch.ones_like(given).triu_(1))
    return torch.equal(given, torch.full_like(given, -torch.inf).triu_(1))


def _fits(asked: Arguments) -> bool:
    """Whether torch would take the masks."""
    pairs, padding = asked.attn_mask, asked.key_padding_mask
    if any(mask is not None and mask.dtype != torch.bool and not mask.is_floating_point() for mask in (pairs, padding)):
        return False
    batch = tuple(asked.query.shape[1:-1])
    if pairs is None and asked.is_causal:
        return False
    if padding is not None and padding.shape != (*batch, len(asked.key)):
        return False
    all_heads = asked.num_heads * (batch[0] if batch else 1)
    size = (len(asked.query), len(asked.key))
    return pairs is None or pairs.shape in (size, (all_heads, *size))
