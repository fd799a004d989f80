"""The reference engine: dense, plain torch, any precision. It defines what is right.

logits  = score(q, k) + bias
weights = normalizer(logits / τ)          hidden pairs take no part
output  = dropout(weights) · v
"""

import torch
from torch import Tensor

from regard.engine.poison import finite_values, guarded, poisoned
from regard.engine.request import Aux, Request, Result
from regard.spec.forms import weights_times_values
from regard.spec.normalizers import Softmax

NAME = "reference"


def supports(request: Request) -> str | None:
    """Everything."""
    return None


def run(request: Request) -> Result:
    """Attention by the formula, query × key numbers at a time."""
    logits, visible = _logits(request)
    x = torch.where(visible, logits / request.temperatures, -torch.inf)
    weights, state = _softmax(x, request) if isinstance(request.normalizer, Softmax) else _by_rows(x, request)

    dropped = weights
    if request.dropout is not None:
        dropped = weights * request.dropout.factors(request.plane.all, weights.dtype)
    value, raw = finite_values(request.value.to(request.dtype))
    out = weights_times_values(torch.where(visible, dropped, 0.0), value)
    if raw is not None:
        bad = poisoned(visible.expand_as(weights), raw)
        out = torch.where(bad == 0, out, bad)
    return Result(out.to(request.query.dtype), state, _aux(request, logits, visible, weights, state))


def _logits(request: Request) -> tuple[Tensor, Tensor]:
    """score + bias, and which pairs are visible; a hidden pair's logit is 0 here."""
    pairs = request.plane.all
    size = (*request.query.shape[:-1], request.plane.keys)
    visible = request.mask.visible(pairs).expand(size)
    query, key, _, poison = guarded(request.score, request.query.to(request.dtype), request.key.to(request.dtype))
    logits = request.score.formula(query, key, pairs)
    if poison is not None:
        raw = request.score.formula(request.query.to(request.dtype), request.key.to(request.dtype), pairs)
        logits = torch.where(poison.pairs(pairs), raw.detach(), logits)
    visible = visible & (logits != -torch.inf)
    logits = torch.where(visible, logits, 0.0)
    if request.bias is not None:
        bias = request.bias.values(pairs).to(request.dtype)
        visible = visible & (bias != -torch.inf)
        logits = logits + torch.where(visible, bias, 0.0)
    return torch.where(visible, logits, 0.0), visible


def _softmax(x: Tensor, request: Request) -> tuple[Tensor, Tensor]:
    """e^(x − lse), with the sink as one more term of the sum."""
    if request.sink is not None:
        x = torch.cat([x, request.sink.unsqueeze(-1).expand(*x.shape[:-1], 1)], -1)
    top = x.detach().amax(-1, keepdim=True) if x.shape[-1] else x.new_full((*x.shape[:-1], 1), -torch.inf)
    sound = top.isfinite()
    safe = torch.where(sound, x, -torch.inf)
    powers = (safe - torch.where(sound, top, 0.0)).exp()
    total = powers.sum(-1, keepdim=True)
    some = total > 0
    lse = torch.where(some, top + torch.where(some, total, 1.0).log(), top)
    weights = powers / torch.where(some, total, 1.0)
    # a row that saw NaN or +Inf has no weights; no gradient passes through it
    weights = torch.where(sound | (top == -torch.inf), weights, torch.nan)
    return weights[..., : request.plane.keys], torch.where(sound | (top == -torch.inf), lse, torch.nan).squeeze(-1)


def _by_rows(x: Tensor, request: Request) -> tuple[Tensor, Tensor]:
    bad = (x.isnan() | (x == torch.inf)).any(-1, keepdim=True)
    weights, state = request.normalizer.weights(torch.where(bad, -torch.inf, x))
    return torch.where(bad, torch.nan, weights), state


def _aux(request: Request, logits: Tensor, visible: Tensor, weights: Tensor, state: Tensor) -> Aux:
    """The statistics, each as it is defined."""
    pairs = request.plane.all
    empty = ~visible.any(-1)
    hidden = torch.where(visible, logits, -torch.inf).detach()
    fixed = torch.where(visible, weights, 0.0).detach()
    found: dict[str, Tensor] = {}
    for name in request.aux:
        if name == "lse":
            found[name] = state
        elif name == "entropy":
            some = visible & (weights != 0)
            found[name] = -torch.where(some, weights * torch.where(some, weights, 1.0).log(), 0.0).sum(-1)
        elif name == "peak":
            found[name] = fixed.amax(-1) if fixed.shape[-1] else fixed.sum(-1)
        elif name == "peak_at":
            best = hidden.argmax(-1) if hidden.shape[-1] else torch.full_like(empty, -1, dtype=torch.int64)
            found[name] = torch.where(empty, -1, best)
        elif name == "received":
            found[name] = fixed.sum(-2)
        elif name == "distance":
            found[name] = (fixed * (pairs.i - pairs.j).abs()).sum(-1)
        elif name == "max_logit":
            found[name] = hidden.amax(-1) if hidden.shape[-1] else hidden.sum(-1) - torch.inf
    return Aux(**found)
