"""The flex engine as the others see it: what it supports, and a call that runs it."""

import torch

from regard.engine.arguments import tensors_of
from regard.engine.flex.call import has_triton
from regard.engine.flex.lowering import attention
from regard.engine.flex.masks import unknown
from regard.engine.flex.trial import mask_refused, score_refused, tried
from regard.engine.native.lowering import unknown_bias
from regard.engine.partial import Partial, merge
from regard.engine.request import Aux, Request, Result
from regard.engine.transforms import unanswered
from regard.spec.closures import captured_tensors
from regard.spec.normalizers import Softmax
from regard.spec.steps import DotProduct

NAME = "flex"


def supports(request: Request) -> str | None:
    """None, or why FlexAttention cannot do this."""
    device, shapes = request.query.device, request.shapes
    if device.type not in ("cuda", "cpu"):
        return f"it runs on CUDA, and on a CPU when asked for; the inputs are on {device}"
    if not (steps := request.score.steps()) or not isinstance(steps[0], DotProduct):
        return f"FlexAttention's scores are q′·k′, and {request.score!r} does not lower to that"
    if (term := unknown_bias(request.bias)) is not None:
        return f"{term!r} has no form that FlexAttention takes"
    if (leaf := unknown(request.mask)) is not None:
        return f"{leaf!r} has no form that FlexAttention takes; masks.Where(function) has one"
    if not isinstance(request.normalizer, Softmax):
        return f"FlexAttention has a softmax only, not {request.normalizer!r}"
    if request.dropout is not None:
        return "FlexAttention has no dropout"
    if more := [name for name in request.aux if name != "lse"]:
        return f"FlexAttention returns the output and lse only, not {', '.join(more)}"
    if 0 in (shapes.batch, shapes.heads, shapes.queries, shapes.keys):
        return "FlexAttention needs at least one query and one key"
    if device.type == "cpu" and needs_gradients(request):
        return "FlexAttention has no gradients on a CPU; use torch.no_grad() for the output alone"
    if device.type == "cuda" and request.query.dtype == torch.float64:
        return "FlexAttention's kernels take float32, bfloat16 and float16, not float64"
    if device.type == "cuda" and not has_triton():
        return "FlexAttention's kernels need Triton, which is not installed"
    return unanswered() or _unasked(request)


def needs_gradients(request: Request) -> bool:
    """Whether any tensor of the call needs a gradient."""
    if not torch.is_grad_enabled():
        return False
    parts = (request.score, request.bias, request.normalizer, request.temperature)
    tensors = [request.query, request.key, request.value]
    tensors += [tensor for part in parts for _, tensor in tensors_of("", part)]
    tensors += [tensor for fn in request.score.functions for tensor in captured_tensors(fn)]
    return any(tensor.requires_grad for tensor in tensors)


def _unasked(request: Request) -> str | None:
    """Why a user's function cannot be asked pair by pair. On a CPU it is asked only when it runs."""
    return None if request.query.device.type == "cpu" else _refused(request)


def _refused(request: Request) -> str | None:
    device = request.query.device
    reasons = [mask_refused(fn, device) for fn in request.mask.functions]
    reasons += [score_refused(fn, device) for fn in request.score.functions]
    return next((reason for reason in reasons if reason is not None), None)


def _not_compiled(request: Request, failure: Exception) -> str | None:
    """None, or what torch's compiler says of a user's function."""
    named = [*request.mask.functions, *request.score.functions]
    if not named or not type(failure).__module__.startswith(("torch._dynamo", "torch._inductor")):
        return None
    names = ", ".join(getattr(fn, "__name__", type(fn).__name__) for fn in named)
    line = " ".join(str(failure).split("\n\n")[0].split()) or type(failure).__name__
    return f"torch's compiler refuses a function of this spec ({names}): {line}"


def run(request: Request) -> Result:
    """Lower and call torch; a sink is merged in behind."""
    tried(request.score, request.mask, request.plane, request.dtype)
    try:
        found, lse = attention(request, needs_gradients(request))
    except Exception as failure:  # torch's compiler has errors of many kinds
        if (reason := _refused(request) or _not_compiled(request, failure)) is not None:
            raise ValueError(f"engine 'flex' cannot do this: {reason}; take engine='tiled'") from failure
        raise
    heads = (request.plane.kv_heads, request.plane.group)
    out = found.unflatten(1, heads)
    if lse is None:
        return Result(out.to(request.query.dtype), out.new_full(out.shape[:-1], torch.nan, dtype=request.dtype), Aux())
    rows = Partial(out, lse.unflatten(1, heads))
    if request.sink is not None:
        rows = merge(rows, Partial(out.new_zeros(()).expand_as(out), request.sink.expand_as(rows.lse)))
    return Result(rows.out.to(request.query.dtype), rows.lse, Aux(lse=rows.lse if "lse" in request.aux else None))
