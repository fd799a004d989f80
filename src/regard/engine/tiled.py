"""The tiled engine: torch on any device, every spec, in memory linear in the length, forward and backward.

Forward keeps a running softmax over tiles; backward computes the tiles again. Second derivatives run the
forward pass under autograd, which keeps every tile: their memory is that of the dense formula.
"""

from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from regard.engine.gradient import Gradients, softmax_gradients, whole_gradients
from regard.engine.logits import Logits, Tensors
from regard.engine.partial import Partial, merge
from regard.engine.poison import finite_values, guarded
from regard.engine.request import Aux, Request, Result
from regard.engine.running import softmax_rows
from regard.engine.schedule import Schedule
from regard.engine.strip import Kernel, Rows, joined
from regard.engine.whole import strip_logits, weights_of, whole_rows
from regard.spec.normalizers import Softmax

NAME = "tiled"


def supports(request: Request) -> str | None:
    """Everything."""
    return None


def run(request: Request) -> Result:
    """Attention tile by tile."""
    value, raw_value = finite_values(request.value.to(request.dtype))
    logits = logits_of(request)
    softmax = isinstance(request.normalizer, Softmax)
    schedule = Schedule.of(request.plane, request.mask, logits.tile_width, whole_rows=not softmax)
    kernel = Kernel(
        logits, schedule, request.normalizer, request.dropout, frozenset(request.aux), raw_value, value.shape[-1]
    )
    operands = tuple(operand.tensor for operand in logits.operands)
    rows = Rows(*_Attention.apply(kernel, value, *operands))  # type: ignore[no-untyped-call]
    if request.sink is not None:
        rows = _with_sink(rows, request.sink)
    found = {name: getattr(rows, "state" if name == "lse" else name) for name in request.aux if name != "received"}
    if "received" in request.aux:
        with torch.no_grad():
            found["received"] = _received(kernel, rows.state, operands)
    return Result(rows.out.to(request.query.dtype), rows.state, Aux(**found))


def logits_of(request: Request) -> Logits:
    """The terms of the logits, lowered."""
    _, _, form, poison = guarded(request.score, request.query.to(request.dtype), request.key.to(request.dtype))
    terms = request.bias.terms() if request.bias is not None else ()
    tau = request.temperatures
    return Logits(
        score=form,
        biases=tuple(term.lower(request.plane, request.dtype) for term in terms),
        bias_hides=request.bias is not None and request.bias.hides,
        mask=request.mask,
        temperature=None if isinstance(tau, Tensor) else tau,
        temperatures=tau if isinstance(tau, Tensor) else None,
        poison=poison,
        dtype=request.dtype,
    )


def _forward(kernel: Kernel, value: Tensor, operands: Tensors) -> Rows:
    one = softmax_rows if isinstance(kernel.normalizer, Softmax) else whole_rows
    return joined([one(kernel, rows, tiles, value, operands) for rows, tiles in kernel.schedule.strips], kernel)


class _Attention(torch.autograd.Function):
    """Rows of (value, operands); out, lse and entropy are differentiable."""

    @staticmethod
    def forward(ctx: Any, kernel: Kernel, value: Tensor, *operands: Tensor) -> tuple[Tensor, ...]:
        rows = _forward(kernel, value, operands)
        ctx.kernel = kernel
        ctx.save_for_backward(value, *operands, *(getattr(rows, f.name) for f in fields(Rows)))
        if not isinstance(kernel.normalizer, Softmax):
            ctx.mark_non_differentiable(rows.state)
        ctx.mark_non_differentiable(rows.peak, rows.peak_at, rows.distance, rows.max_logit)
        return tuple(getattr(rows, f.name) for f in fields(Rows))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        kernel: Kernel = ctx.kernel
        count = 1 + len(kernel.logits.operands)
        inputs, rows = ctx.saved_tensors[:count], Rows(*ctx.saved_tensors[count:])
        needed = list(ctx.needs_input_grad[1:])
        if torch.is_grad_enabled():
            return (None, *_differentiable(kernel, inputs, needed, grads))
        value, operands = inputs[0], inputs[1:]
        sums = Gradients(kernel, value, operands, needed[1:])
        go = softmax_gradients if isinstance(kernel.normalizer, Softmax) else whole_gradients
        go(kernel, value, operands, rows, (grads[0], grads[1], grads[2]), sums)
        found = [
            None if total is None else total.to(tensor.dtype)
            for total, tensor in zip(sums.operands, operands, strict=True)
        ]
        return (None, sums.value if needed[0] else None, *found)


def _differentiable(
    kernel: Kernel, inputs: Tensors, needed: list[bool], grads: tuple[Tensor, ...]
) -> list[Tensor | None]:
    """The same gradients as a graph of their own, for derivatives of higher order."""
    with torch.enable_grad():
        rows = _forward(kernel, inputs[0], inputs[1:])
        outputs = [(rows.out, grads[0]), (rows.entropy, grads[2])]
        if isinstance(kernel.normalizer, Softmax):
            outputs.append((rows.state, grads[1]))
        outputs = [(output, grad) for output, grad in outputs if output.requires_grad]
        wanted = [tensor for tensor, need in zip(inputs, needed, strict=True) if need]
        found = iter(
            torch.autograd.grad(
                [output for output, _ in outputs],
                wanted,
                [grad for _, grad in outputs],
                create_graph=True,
                allow_unused=True,
            )
        )
    return [next(found) if need else None for need in needed]


def _with_sink(rows: Rows, sink: Tensor) -> Rows:
    """Merge the sink as one more part that has no value, and rescale the statistics by what it leaves."""
    none = Partial(torch.zeros_like(rows.out), sink.expand_as(rows.state))
    both = merge(Partial(rows.out, rows.state), none)
    empty = rows.state == -torch.inf
    logs = torch.where(empty, 0.0, rows.state - torch.where(empty, 0.0, both.lse))
    share = torch.where(empty, 0.0, logs.exp())
    fixed = share.detach()
    return replace(
        rows,
        out=both.out,
        state=both.lse,
        entropy=share * rows.entropy - share * logs,
        peak=rows.peak * fixed,
        distance=rows.distance * fixed,
    )


def _received(kernel: Kernel, state: Tensor, operands: Tensors) -> Tensor:
    """Σ over queries of the weights, in a second pass once the row state is known."""
    plane = kernel.schedule.plane
    total = torch.zeros((*kernel.lanes, plane.keys), dtype=kernel.logits.dtype, device=plane.device)
    for rows, tiles in kernel.schedule.strips:
        if tiles and not isinstance(kernel.normalizer, Softmax):
            x = strip_logits(kernel, rows, tiles, operands, raw=True)[0]
            first = tiles[0].pairs.columns.start
            total[..., first : first + x.shape[-1]] += weights_of(kernel, x)[0].sum(-2)
            continue
        lse = state[..., rows].unsqueeze(-1)
        lse = torch.where(lse == -torch.inf, 0.0, lse)
        for tile in tiles:
            x = kernel.logits.tile(tile, kernel.logits.cut(operands, tile), raw=True)[0]
            w = torch.where(x == -torch.inf, 0.0, (x - lse).exp())
            total[..., tile.pairs.columns] += w.sum(-2)
    return total
