"""The flex engine: what it supports, how it runs, and what a plan says of it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_mask

from regard.engine.arguments import tensors_of
from regard.engine.context import transform_unsupported
from regard.engine.flex.call import Listing, attention, block_size, blocks_of, has_kernel, has_triton, wants_lse
from regard.engine.flex.mods import unknown
from regard.engine.native.lowering import unknown_bias
from regard.engine.partial import Partial, merge
from regard.engine.request import Aux, Request, Result
from regard.spec.closures import captured_tensors
from regard.spec.forms import called
from regard.spec.masks import Mask
from regard.spec.normalizers import Softmax
from regard.spec.plane import Plane
from regard.spec.scores import Score
from regard.spec.steps import DotProduct, shows_everything

SIDE = 8  # rows and columns that functions are tried on


def check_functions(score: Score, mask: Mask, plane: Plane, precision: torch.dtype) -> None:
    """Raise for functions whose results other engines refuse, with the same error: torch would accept some of them."""
    pairs = plane.pairs(slice(0, min(SIDE, plane.queries)), slice(0, min(SIDE, plane.keys)))
    with torch.no_grad():
        for leaf in mask.leaves():
            if leaf.functions:
                leaf.visible(pairs)
        size = (plane.batch, plane.kv_heads, plane.group, pairs.rows.stop, pairs.columns.stop)
        for fn in score.functions:
            called(fn, torch.zeros(size, dtype=precision, device=plane.device), pairs)


def mask_refused(fn: Callable[..., Any], device: torch.device) -> str | None:
    """None, or why a function of (b, h, i, j) cannot be evaluated for one pair."""
    return _pair_refused(lambda b, h, i, j: torch.as_tensor(fn(b, h, i, j), device=device), fn, device)


def score_refused(fn: Callable[..., Any], device: torch.device) -> str | None:
    """The same for a function of (score, b, h, i, j)."""
    return _pair_refused(lambda score, b, h, i, j: torch.as_tensor(fn(score, b, h, i, j), device=device), fn, device)


def _pair_refused(mod: Callable[..., Tensor], fn: Callable[..., Any], device: torch.device) -> str | None:
    try:
        create_mask(mod, 1, 1, 1, 1, str(device))
    except Exception as failure:  # whatever a user's function may raise
        line = next(iter(str(failure).strip().splitlines()), type(failure).__name__)
        name = getattr(fn, "__name__", type(fn).__name__)
        return f"FlexAttention asks a function pair by pair, and {name} does not answer: {line}"
    return None


def cost(request: Request) -> tuple[int, None]:
    """Pairs whose logit is computed; how much memory that takes, only torch knows."""
    plane = request.plane
    every = plane.batch * plane.heads * plane.queries * plane.keys
    if shows_everything(request.mask.steps(plane)) or not has_kernel(request.query, wants_lse(request)):
        return every, None
    size = block_size(plane)
    blocks = blocks_of(request.mask, plane, size)
    return sum(_pairs(listing, plane, size) for listing in (blocks.partial, blocks.full)), None


def _pairs(listing: Listing, plane: Plane, size: int) -> int:
    batch, heads, rows, columns = listing.blocks.shape
    heights = (plane.queries - torch.arange(rows, device="cpu") * size).clamp(0, size)
    listed = torch.arange(columns, device="cpu") < listing.count.unsqueeze(-1)
    last = (listed & (listing.blocks == (plane.keys - 1) // size)).any(-1)
    widths = listing.count * size - last * (-plane.keys % size)
    batch_heads = (plane.batch // batch) * (plane.heads // heads)
    return int((heights * widths).sum()) * batch_heads


NAME = "flex"


def supports(request: Request) -> str | None:
    """None, or why FlexAttention cannot do this."""
    device, shapes = request.query.device, request.shapes
    if device.type not in ("cuda", "cpu"):
        return f"it runs on CUDA, and on a CPU when asked for; the inputs are on {device}"
    if not (steps := request.score.steps()) or not isinstance(steps[0], DotProduct):
        return f"FlexAttention's scores are q′·k′, and {request.score!r} does not lower to that"
    if request.bias is not None and (term := unknown_bias(request.bias)) is not None:
        return f"{term!r} has no form that FlexAttention takes"
    if (leaf := unknown(request.mask)) is not None:
        return f"{leaf!r} has no form that FlexAttention takes; masks.Where(function) has one"
    if not isinstance(request.normalizer, Softmax):
        return f"FlexAttention has a softmax only, not {request.normalizer!r}"
    if request.dropout is not None:
        return "FlexAttention has no dropout"
    if more := [name for name in request.aux if name != "lse"]:
        return f"FlexAttention returns the output and lse only, not {', '.join(more)}"
    if 0 in (shapes.batch, request.plane.heads, shapes.queries, shapes.keys):
        return "FlexAttention needs at least one query and one key"
    if device.type == "cpu" and needs_gradients(request):
        return "FlexAttention has no gradients on a CPU; use torch.no_grad() for the output alone"
    if device.type == "cuda" and request.query.dtype == torch.float64:
        return "FlexAttention's kernels take float32, bfloat16 and float16, not float64"
    if device.type == "cuda" and not has_triton():
        return "FlexAttention's kernels need Triton, which is not installed"
    # on a CPU, a user's function is tried only when it runs
    return transform_unsupported() or (None if device.type == "cpu" else _functions_refused(request))


def needs_gradients(request: Request) -> bool:
    """Whether any tensor of the call needs a gradient."""
    if not torch.is_grad_enabled():
        return False
    parts = (request.score, request.bias, request.normalizer, request.temperature)
    tensors = [request.query, request.key, request.value]
    tensors += [tensor for part in parts for _, tensor in tensors_of("", part)]
    tensors += [tensor for fn in request.score.functions for tensor in captured_tensors(fn)]
    return any(tensor.requires_grad for tensor in tensors)


def _functions_refused(request: Request) -> str | None:
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
    """Lower and call torch; a sink is merged afterwards."""
    check_functions(request.score, request.mask, request.plane, request.dtype)
    try:
        attended, lse = attention(request, needs_gradients(request))
    except Exception as failure:  # torch's compiler has errors of many kinds
        if (reason := _functions_refused(request) or _not_compiled(request, failure)) is not None:
            raise ValueError(f"engine 'flex' cannot do this: {reason}; take engine='tiled'") from failure
        raise
    heads = (request.plane.kv_heads, request.plane.group)
    out = attended.unflatten(1, heads)
    if lse is None:
        return Result(out.to(request.query.dtype), out.new_full(out.shape[:-1], torch.nan, dtype=request.dtype), Aux())
    rows = Partial(out, lse.unflatten(1, heads))
    if request.sink is not None:
        rows = merge(rows, Partial(out.new_zeros(()).expand_as(out), request.sink.expand_as(rows.lse)))
    return Result(rows.out.to(request.query.dtype), rows.lse, Aux(lse=rows.lse if "lse" in request.aux else None))
