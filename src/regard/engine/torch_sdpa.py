"""The sdpa engine: a thin call of torch's own fused attention, for what it serves exactly as asked."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from regard.engine.request import Aux, Request, Result
from regard.spec.normalizers import Softmax
from regard.spec.steps import Band, DotProduct, MaskStep, PairTable, shows_everything

NAME = "sdpa"


def supports(request: Request) -> str | None:
    """None, or why torch's function cannot do this."""
    if _product(request) is None:
        return f"torch computes q·k·scale only, not {request.score!r}"
    if not isinstance(request.normalizer, Softmax) or request.normalizer.sink is not None:
        return f"torch has a plain softmax only, not {request.normalizer!r}"
    if isinstance(request.temperature, Tensor):
        return "torch takes its scale as one number, not a temperature as a tensor"
    if request.dropout is not None:
        return "torch draws another dropout pattern"
    if request.aux:
        return f"torch returns the output only, not {', '.join(request.aux)}"
    if request.bias is not None and _table(request.bias.steps()) is None:
        return f"torch takes a bias as a dense tensor only, not {request.bias!r}"
    start, steps = request.plane.starts, request.mask.steps(request.plane)
    if _causal(steps):
        if request.bias is not None:
            return "torch takes a causal flag or a dense bias, not both"
        if start.numel() > 1 or int(start) != 0:
            return "torch's causal rule starts at the top left, the queries here do not stand at 0"
    elif not shows_everything(steps) and _table(steps) is None:
        return f"torch takes a mask as a dense tensor only, not {request.mask!r}"
    return None


def _product(request: Request) -> DotProduct | None:
    """The score as a dot product of the inputs as they are; None if it is another."""
    match request.score.steps():
        case (DotProduct(plain=True) as step,):
            return step
    return None


def _causal(steps: tuple[MaskStep, ...]) -> bool:
    return len(steps) == 1 and isinstance(steps[0], Band) and (steps[0].before, steps[0].after) == (None, 0)


def _table(steps: tuple[Any, ...]) -> Tensor | None:
    """The tensor of a mask or bias that is one table of pairs; None if it is another."""
    return steps[0].tensor if len(steps) == 1 and isinstance(steps[0], PairTable) else None


def run(request: Request) -> Result:
    """Call torch; there is no row state to give back."""
    query, key, value = request.query.flatten(1, 2), request.key.squeeze(2), request.value.squeeze(2)
    product = _product(request)
    assert product is not None
    assert isinstance(request.temperature, float)
    out = scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=_added(request),
        is_causal=_causal(request.mask.steps(request.plane)),
        scale=product.factor(query.shape[-1]) / request.temperature,
        enable_gqa=request.plane.group > 1,
    )
    out = out.unflatten(1, (request.plane.kv_heads, request.plane.group))
    return Result(out, out.new_full(out.shape[:-1], torch.nan), Aux())


def _added(request: Request) -> Tensor | None:
    """Mask and bias as torch's attn_mask; the bias is divided by τ like the scores."""
    visible = _table(request.mask.steps(request.plane))
    if request.bias is None:
        return visible
    table = _table(request.bias.steps())
    assert table is not None
    assert isinstance(request.temperature, float)
    bias = (table / request.temperature).to(request.query.dtype)
    return bias if visible is None else torch.where(visible, bias, -torch.inf)
