"""The sdpa engine: a thin call of torch's own fused attention, for what it serves exactly as asked."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from regard.engine.arguments import changed_part
from regard.engine.request import Aux, Request, Result
from regard.spec.biases import Dense as DenseBias
from regard.spec.masks import Causal, Full
from regard.spec.masks import Dense as DenseMask
from regard.spec.normalizers import Softmax
from regard.spec.scores import Dot, ScaledDot

NAME = "sdpa"


def supports(request: Request) -> str | None:
    """None, or why torch's function cannot do this."""
    if not isinstance(request.score, Dot | ScaledDot):
        return f"torch computes q·k·scale only, not {request.score!r}"
    if not isinstance(request.normalizer, Softmax) or request.normalizer.sink is not None:
        return f"torch has a plain softmax only, not {request.normalizer!r}"
    if isinstance(request.temperature, Tensor):
        return "torch takes its scale as one number, not a temperature as a tensor"
    if request.dropout is not None:
        return "torch draws another dropout pattern"
    if request.aux:
        return f"torch returns the output only, not {', '.join(request.aux)}"
    if request.bias is not None and not isinstance(request.bias, DenseBias):
        return f"torch takes a bias as a dense tensor only, not {request.bias!r}"
    start = request.plane.starts
    if isinstance(request.mask, Causal):
        if request.bias is not None:
            return "torch takes a causal flag or a dense bias, not both"
        if start.numel() > 1 or int(start) != 0:
            return "torch's causal rule starts at the top left, the queries here do not stand at 0"
    elif not isinstance(request.mask, Full | DenseMask):
        return f"torch takes a mask as a dense tensor only, not {request.mask!r}"
    return changed_part(request.score, request.mask, request.bias)


def run(request: Request) -> Result:
    """Call torch; there is no row state to give back."""
    query, key, value = request.query.flatten(1, 2), request.key.squeeze(2), request.value.squeeze(2)
    factor = request.score.factor(query.shape[-1]) if isinstance(request.score, ScaledDot) else 1.0
    assert isinstance(request.temperature, float)
    causal = isinstance(request.mask, Causal)
    out = scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=_added(request),
        is_causal=causal,
        scale=factor / request.temperature,
        enable_gqa=request.plane.group > 1,
    )
    out = out.unflatten(1, (request.plane.kv_heads, request.plane.group))
    return Result(out, out.new_full(out.shape[:-1], torch.nan), Aux())


def _added(request: Request) -> Tensor | None:
    """Mask and bias as torch's attn_mask; the bias is divided by τ like the scores."""
    visible = request.mask.tensor if isinstance(request.mask, DenseMask) else None
    if request.bias is None:
        return visible
    assert isinstance(request.bias, DenseBias)
    assert isinstance(request.temperature, float)
    bias = (request.bias.tensor / request.temperature).to(request.query.dtype)
    return bias if visible is None else torch.where(visible, bias, -torch.inf)
