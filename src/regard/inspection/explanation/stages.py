"""Stages: everything between query, key and output that the reference engine computes on its way, kept."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.engine.request import Request
from regard.spec.forms import weights_times_values
from regard.spec.normalizers import Softmax


@dataclass(frozen=True, eq=False)
class Stages:
    """All are (batch, kv head, group, query, key), `output` is (…, query, d_v), `state` (…, query).

    `masked` is True where the mask alone shows the pair, `visible` where score and bias do not hide it either;
    `exponents` are the logits over τ, −inf where hidden.
    """

    scores: Tensor
    masked: Tensor
    visible: Tensor
    bias: Tensor | None
    logits: Tensor
    exponents: Tensor
    weights: Tensor
    state: Tensor
    factors: Tensor | None
    dropped: Tensor
    output: Tensor


def stages(asked: Request) -> Stages:
    """The formula of the reference engine, operation by operation, for finite inputs."""
    pairs = asked.plane.all
    size = (*asked.query.shape[:-1], asked.plane.keys)
    scores = asked.score.formula(asked.query.to(asked.dtype), asked.key.to(asked.dtype), pairs).expand(size)
    masked = asked.mask.visible(pairs).expand(size)
    visible = masked & (scores != -torch.inf)
    logits = torch.where(visible, scores, 0.0)
    bias = None
    if asked.bias is not None:
        bias = asked.bias.values(pairs).to(asked.dtype).expand(size)
        visible = visible & (bias != -torch.inf)
        logits = logits + torch.where(visible, bias, 0.0)
    logits = torch.where(visible, logits, 0.0)
    exponents = torch.where(visible, logits / asked.temperatures, -torch.inf)
    if isinstance(asked.normalizer, Softmax):
        weights, state = _softmax(exponents, asked)
    else:
        weights, state = asked.normalizer.rows(exponents)
    factors = None if asked.dropout is None else asked.dropout.factors(pairs, weights.dtype)
    dropped = weights if factors is None else weights * factors
    output = weights_times_values(torch.where(visible, dropped, 0.0), asked.value.to(asked.dtype))
    return Stages(scores, masked, visible, bias, logits, exponents, weights, state, factors, dropped, output)


def _softmax(x: Tensor, asked: Request) -> tuple[Tensor, Tensor]:
    """e^(x − lse) and the lse, the sink as one more term; computed from the largest down, so nothing overflows."""
    if asked.sink is not None:
        x = torch.cat([x, asked.sink.unsqueeze(-1).expand(*x.shape[:-1], 1)], -1)
    top = x.amax(-1, keepdim=True)
    powers = (x - torch.where(top == -torch.inf, 0.0, top)).exp()
    total = powers.sum(-1, keepdim=True)
    some = total > 0
    total = torch.where(some, total, 1.0)
    lse = torch.where(some, top + total.log(), top)
    return (powers / total)[..., : asked.plane.keys], lse.squeeze(-1)
