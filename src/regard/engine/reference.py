"""The reference engine: dense, plain torch, any precision. It defines what is right.

logits  = score(q, k) + bias
weights = normalizer(logits / τ)          hidden pairs take no part
output  = dropout(weights) · v
"""

import torch
from torch import Tensor

from regard.engine.nonfinite import (
    divide_by_temperature,
    finite_form,
    finite_rows,
    finite_values,
    nonfinite_contribution,
)
from regard.engine.request import Aux, Request, Result
from regard.spec.forms import weights_times_values
from regard.spec.normalizers import Softmax
from regard.spec.plane import Pairs
from regard.spec.scores import Score
from regard.spec.scores.modified import Wrapped

NAME = "reference"


def supports(request: Request) -> str | None:
    """Everything."""
    return None


def run(request: Request) -> Result:
    """Attention by the formula, query × key numbers at a time."""
    logits, visible = masked_logits(request)
    x = torch.where(visible, divide_by_temperature(logits, request.temperatures), -torch.inf)
    sound = finite_rows(x)
    x = torch.where(sound, x, -torch.inf)
    weights, state = normalize(x, request)

    dropped = weights
    if request.dropout is not None:
        dropped = weights * request.dropout.factors(request.plane.all, weights.dtype)
    value, raw = finite_values(request.value.to(request.dtype))
    out = weights_times_values(torch.where(visible, dropped, 0.0), value)
    if raw is not None:
        bad = nonfinite_contribution(visible, raw)
        out = torch.where(bad == 0, out, bad)
    # a choice, not a product: whatever gradient arrives at a row without weights stops here
    out = torch.where(sound & visible.any(-1, keepdim=True), out, torch.where(sound, 0.0, torch.nan))
    if state.is_floating_point():
        state = torch.where(sound.squeeze(-1), state, torch.nan)
    return Result(out.to(request.query.dtype), state, _aux(request, logits, visible, weights, state, sound))


def masked_logits(request: Request) -> tuple[Tensor, Tensor]:
    """score + bias, and which pairs are visible; a hidden pair's logit is 0 here."""
    pairs = request.plane.all
    visible, bias = mask_and_bias(request)
    visible = visible.expand(*request.query.shape[:-1], request.plane.keys)
    given = request.query.to(request.dtype), request.key.to(request.dtype)
    query, key, _, nonfinite = finite_form(request.score, *given)
    logits = _scores(request.score, query, key, pairs, visible)
    if nonfinite is not None:
        raw = _scores(request.score, *given, pairs, visible).detach()
        logits = torch.where(nonfinite.pairs(pairs), raw, logits)
    visible = visible & (logits != -torch.inf)
    return torch.where(visible, logits + bias, 0.0), visible


def mask_and_bias(request: Request) -> tuple[Tensor, Tensor]:
    """Pairs that neither the mask nor a −inf of the bias hides, and the bias; both broadcast to all pairs."""
    pairs = request.plane.all
    visible = request.mask.visible(pairs)
    bias = torch.zeros((), dtype=request.dtype, device=request.query.device)
    for term in request.bias.terms() if request.bias is not None else ():
        values = term.values(pairs).to(request.dtype)
        visible = visible & (values != -torch.inf)
        bias = bias + values
    return visible, bias


def _scores(score: Score, query: Tensor, key: Tensor, pairs: Pairs, visible: Tensor) -> Tensor:
    """The formula. What a wrapped score does with a hidden pair must not come back as 0 · NaN in a gradient."""
    if isinstance(score, Wrapped):
        inner = _scores(score.score, query, key, pairs, visible)
        return score.change(torch.where(visible, inner, 0.0), pairs)
    return score.formula(query, key, pairs)


def normalize(x: Tensor, request: Request) -> tuple[Tensor, Tensor]:
    """The weights and the row state. Softmax: e^(x − lse) and lse, with the sink as one more term of the sum."""
    if not isinstance(request.normalizer, Softmax):
        return request.normalizer.rows(x)
    if request.sink is not None:
        x = torch.cat([x, request.sink.unsqueeze(-1).expand(*x.shape[:-1], 1)], -1)
    if x.shape[-1] == 0:
        return x, x.sum(-1) - torch.inf
    top = x.detach().amax(-1, keepdim=True)
    shift = torch.where(top == -torch.inf, 0.0, top)
    powers = (x - shift).exp()
    total = powers.sum(-1, keepdim=True)
    empty = total == 0
    total = torch.where(empty, 1.0, total)
    lse = torch.where(empty, -torch.inf, shift + total.log())
    return (powers / total)[..., : request.plane.keys], lse.squeeze(-1)


def _aux(request: Request, logits: Tensor, visible: Tensor, weights: Tensor, state: Tensor, sound: Tensor) -> Aux:
    """The statistics, each as it is defined; NaN for a row that saw NaN or +Inf."""
    pairs = request.plane.all
    visible_logits = torch.where(visible, logits, -torch.inf).detach()
    fixed = torch.where(sound | ~visible, weights, torch.nan).detach()
    statistics: dict[str, Tensor] = {}
    for name in request.aux:
        if name == "lse":
            statistics[name] = state
        elif name == "entropy":
            some = weights != 0
            entropy = -torch.where(some, weights * torch.where(some, weights, 1.0).log(), 0.0).sum(-1)
            statistics[name] = torch.where(sound.squeeze(-1), entropy, torch.nan)
        elif name == "peak":
            statistics[name] = fixed.amax(-1) if fixed.shape[-1] else fixed.sum(-1)
        elif name == "peak_at":
            best = visible_logits.argmax(-1) if visible_logits.shape[-1] else torch.zeros_like(state, dtype=torch.int64)
            statistics[name] = torch.where(visible.any(-1), best, -1)
        elif name == "received":
            statistics[name] = fixed.sum(-2)
        elif name == "distance":
            statistics[name] = (fixed * (pairs.i - pairs.j).abs()).sum(-1)
        elif name == "max_logit":
            statistics[name] = (
                visible_logits.amax(-1) if visible_logits.shape[-1] else visible_logits.sum(-1) - torch.inf
            )
    return Aux(**statistics)
