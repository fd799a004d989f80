"""The weights a model is asked for: as numbers, or as a handle on them."""

from typing import Any, Literal

import torch
from torch import Tensor

from regard.engine import context
from regard.engine.request import Request, Spec, request
from regard.inspection.matrix import AttentionMatrix, matrix
from regard.inspection.matrix.gradients import needed


def asked(kwargs: dict[str, Any]) -> bool:
    """Whether the model collects attentions: it says so, or hooks that record outputs are waiting for them."""
    from transformers.utils.output_capturing import _active_collector

    if kwargs.get("output_attentions"):
        return True
    collected = _active_collector.get()
    return collected is not None and any("attentions" in name for name in collected)


def weights(query: Tensor, key: Tensor, spec: Spec, how: Literal["dense", "matrix"]) -> Tensor | AttentionMatrix:
    """Weights before dropout: (batch, head, query, key) in the query's dtype, or a handle that builds none."""
    if how == "matrix":
        return matrix(query, key, **spec)
    options: dict[str, Any] = {"mask": None, "bias": None, **spec}
    call = request(query, key, key[..., :0], **options, temperature=1.0, dropout=0.0, aux=())
    with context.autocast_disabled(query.device):
        found = _formula(call) if needed(call) else matrix(query, key, **spec).dense(limit=None)
    return found.to(query.dtype)


def _formula(call: Request) -> Tensor:
    """The weights with their graph, which a handle's numbers do not have."""
    pairs = call.plane.all
    logits = call.score.formula(call.query.to(call.dtype), call.key.to(call.dtype), pairs)
    for term in () if call.bias is None else call.bias.terms():
        logits = logits + term.values(pairs).to(call.dtype)
    logits = torch.where(call.mask.visible(pairs), logits, -torch.inf)
    if call.sink is not None:
        logits = torch.cat([logits, call.sink.unsqueeze(-1).expand(*logits.shape[:-1], 1)], -1)
    some = (logits > -torch.inf).any(-1, keepdim=True)
    found = torch.softmax(torch.where(some, logits, 0.0), -1)[..., : call.plane.keys]
    return torch.where(some, found, 0.0).flatten(1, 2)
