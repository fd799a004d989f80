"""The tiled engine: torch on any device, every spec, in memory linear in the length, forward and backward.

The forward pass runs an online softmax over tiles; backward computes the tiles again. Second derivatives run the
forward pass under autograd, which keeps every tile: their memory is that of the dense formula.
"""

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from regard.engine.context import transform_unsupported
from regard.engine.nonfinite import finite_form, finite_values
from regard.engine.partial import Partial, merge
from regard.engine.request import Aux, Request, Result
from regard.engine.tiled.backward import Gradients, full_row_gradients, softmax_gradients
from regard.engine.tiled.full_row import column_span, full_row_weights, full_rows, row_block_logits
from regard.engine.tiled.online_softmax import softmax_rows
from regard.engine.tiled.tiles import (
    Logits,
    Rows,
    Schedule,
    Tensors,
    Tile,
    TiledCall,
    collected_rows,
    concatenated_rows,
)
from regard.spec.normalizers import Softmax

NAME = "tiled"


def supports(request: Request) -> str | None:
    """Everything but transforms of torch.func."""
    return transform_unsupported()


def run(request: Request) -> Result:
    """Attention tile by tile."""
    kernel, value, operands = lower_tiled(request)
    alone = rows_of(kernel, value, operands)
    rows = with_sink(alone, request.sink, request.aux)
    known = Rows(**{f.name: alone.rest if f.name == "rest" else alone.state for f in fields(Rows)})
    del alone  # without a graph its output is not held any longer
    found = {name: getattr(rows, "state" if name == "lse" else name) for name in request.aux if name != "received"}
    if "received" in request.aux:
        with torch.no_grad():
            found["received"] = received(kernel, known, operands, request.sink)
    return Result(rows.out.to(request.query.dtype), rows.state, Aux(**found))


def rows_of(kernel: TiledCall, value: Tensor, operands: Tensors) -> Rows:
    """The results of all row blocks with their graph, without the sink."""
    return Rows(*_TiledAttention.apply(kernel, value, *operands))  # type: ignore[no-untyped-call]


def lower_tiled(request: Request) -> tuple[TiledCall, Tensor, Tensors]:
    """The call with everything lowered that row blocks share, the values, and the operands of the logits."""
    value, raw_value = finite_values(request.value.to(request.dtype))
    logits = logits_of(request)
    softmax = isinstance(request.normalizer, Softmax)
    schedule = Schedule.of(request.plane, request.mask, logits.tile_width, whole_rows=not softmax)
    aux = frozenset(request.aux)
    kernel = TiledCall(
        logits, schedule, request.normalizer, request.dropout, aux, raw_value, value.shape[-1], request.buffers
    )
    return kernel, value, tuple(operand.tensor for operand in logits.operands)


def logits_of(request: Request) -> Logits:
    """The terms of the logits, lowered."""
    _, _, form, nonfinite = finite_form(request.score, request.query.to(request.dtype), request.key.to(request.dtype))
    terms = request.bias.terms() if request.bias is not None else ()
    tau = request.temperatures
    return Logits(
        score=form,
        biases=tuple(term.lower(request.plane, request.dtype) for term in terms),
        bias_hides=request.bias is not None and request.bias.hides,
        mask=request.mask,
        temperature=None if isinstance(tau, Tensor) else tau,
        temperatures=tau if isinstance(tau, Tensor) else None,
        nonfinite=nonfinite,
        dtype=request.dtype,
    )


def row_block(kernel: TiledCall, rows: slice, tiles: list[Tile], value: Tensor, operands: Tensors) -> Rows:
    """The results of one row block."""
    one = softmax_rows if isinstance(kernel.normalizer, Softmax) else full_rows
    return one(kernel, rows, tiles, value, operands)


def all_rows(kernel: TiledCall, value: Tensor, operands: Tensors) -> Rows:
    """The results of all row blocks, without the sink."""
    blocks = ((rows, row_block(kernel, rows, tiles, value, operands)) for rows, tiles in kernel.schedule.row_blocks)
    if torch.is_grad_enabled():  # for second derivatives; `forward` of a Function runs without
        return concatenated_rows(kernel, [found for _, found in blocks])
    return collected_rows(kernel, blocks)


class _TiledAttention(torch.autograd.Function):
    """Rows of (value, operands); out, lse and entropy are differentiable."""

    @staticmethod
    def forward(ctx: Any, kernel: TiledCall, value: Tensor, *operands: Tensor) -> tuple[Tensor, ...]:
        rows = all_rows(kernel, value, operands)
        ctx.kernel = kernel
        ctx.set_materialize_grads(False)  # zeros of full size for every statistic that no loss looks at
        ctx.save_for_backward(value, *operands, *(getattr(rows, f.name) for f in fields(Rows)), *kernel.buffers)
        if not isinstance(kernel.normalizer, Softmax):
            ctx.mark_non_differentiable(rows.state)
        ctx.mark_non_differentiable(rows.peak, rows.peak_at, rows.distance, rows.max_logit)
        return tuple(getattr(rows, f.name) for f in fields(Rows))

    @staticmethod
    def backward(ctx: Any, *given: Tensor | None) -> tuple[Tensor | None, ...]:
        kernel: TiledCall = ctx.kernel
        count = 1 + len(kernel.logits.operands)
        saved = ctx.saved_tensors  # once only: checkpointing refuses to unpack a tensor twice
        inputs, rows = saved[:count], Rows(*saved[count : count + len(fields(Rows))])
        needed = list(ctx.needs_input_grad[1:])
        nothing = rows.out.new_zeros(())
        results = (rows.out, rows.state, rows.entropy)
        grads = tuple(
            nothing.expand_as(result) if grad is None else grad for result, grad in zip(results, given, strict=False)
        )
        if torch.is_grad_enabled():
            return (None, *gradient_graph(kernel, inputs, inputs, needed, grads))
        value, operands = inputs[0], inputs[1:]
        sums = Gradients(kernel, value, operands, needed[1:])
        go = softmax_gradients if isinstance(kernel.normalizer, Softmax) else full_row_gradients
        go(kernel, value, operands, rows, (grads[0], grads[1], grads[2]), sums)
        found = [
            None if total is None else total.to(tensor.dtype)
            for total, tensor in zip(sums.operands, operands, strict=True)
        ]
        return (None, sums.value if needed[0] else None, *found)


def gradient_graph(
    kernel: TiledCall,
    inputs: Tensors,
    sources: tuple[Tensor | None, ...],
    needed: list[bool],
    grads: tuple[Tensor, ...],
    sink: Tensor | None = None,
) -> list[Tensor | None]:
    """The same gradients as a graph of their own, for derivatives of higher order.

    `sources` are what the inputs were made of, or the inputs themselves; `needed` says which of them get a gradient.
    """
    with torch.enable_grad():
        rows = with_sink(all_rows(kernel, inputs[0], inputs[1:]), sink, kernel.aux)
        outputs = [(rows.out, grads[0]), (rows.entropy, grads[2])]
        if isinstance(kernel.normalizer, Softmax):
            outputs.append((rows.state, grads[1]))
        outputs = [(output, grad) for output, grad in outputs if output.requires_grad]
        wanted = [tensor for tensor, need in zip(sources, needed, strict=True) if need and tensor is not None]
        ends, starts = [output for output, _ in outputs], [grad for _, grad in outputs]
        found: tuple[Tensor | None, ...] = (None,) * len(wanted)
        if ends:
            found = torch.autograd.grad(ends, wanted, starts, create_graph=True, allow_unused=True)
        hanging = (*wanted, *grads)
        filled = iter(
            _connected_zeros(tensor, hanging) if grad is None else grad
            for tensor, grad in zip(wanted, found, strict=True)
        )
        return [next(filled) if need else None for need in needed]


def _connected_zeros(tensor: Tensor, others: Tensors) -> Tensor:
    """Zeros that hang on all of `others` in the graph: derivatives of the zero gradient are zeros too."""
    zeros = torch.zeros_like(tensor)
    for other in others:
        if other.requires_grad:
            never = torch.zeros_like(other, dtype=torch.bool)
            zeros = zeros + torch.where(never, other, 0.0).sum().to(zeros.dtype)
    return zeros


def with_sink(rows: Rows, sink: Tensor | None, aux: Iterable[str]) -> Rows:
    """Merge the sink as one more part that has no value, and rescale the statistics by what it leaves."""
    if sink is None:
        return rows
    none = Partial(rows.out.new_zeros(()).expand_as(rows.out), sink.expand_as(rows.state))
    both = merge(Partial(rows.out, rows.state), none)
    merged = replace(rows, out=both.out, state=both.lse)
    if not {"entropy", "peak", "distance"} & set(aux):
        return merged
    empty = rows.state == -torch.inf
    logs = torch.where(empty, 0.0, rows.state - torch.where(empty, 0.0, both.lse))
    share = torch.where(empty, 0.0, logs.exp())
    fixed = share.detach()
    return replace(
        merged,
        entropy=share * rows.entropy - share * logs,
        peak=rows.peak * fixed,
        distance=rows.distance * fixed,
    )


def received(kernel: TiledCall, known: Rows, operands: Tensors, sink: Tensor | None) -> Tensor:
    """Σ over queries of the weights, in a second pass once the rows are known; those are without the sink."""
    plane = kernel.schedule.plane
    total = torch.zeros((*kernel.batch_heads, plane.keys), dtype=kernel.logits.dtype, device=plane.device)
    for rows, tiles in kernel.schedule.row_blocks:
        if isinstance(kernel.normalizer, Softmax):
            lse, rest = known.state[..., rows].unsqueeze(-1), known.rest[..., rows].unsqueeze(-1)
            share = 1.0 if sink is None else torch.sigmoid(lse - sink.unsqueeze(-1) + rest)
            lse = torch.where(lse == -torch.inf, 0.0, lse)
            for tile in tiles:
                x = kernel.logits.tile(tile, kernel.logits.cut(operands, tile))[0]
                weights = (x - lse).sub_(rest).exp_().mul_(share)
                total[..., tile.columns] += weights.masked_fill_(x == -torch.inf, 0.0).sum(-2)
                del x, weights  # or they would be held while the next tile is computed
        elif tiles:
            x = row_block_logits(kernel, rows, tiles, operands)[0]
            total[..., column_span(tiles)] += full_row_weights(kernel, x)[0].sum(-2)
            del x
    return total


def states_without_output(kernel: TiledCall, value: Tensor, operands: Tensors) -> Rows:
    """The rows without their outputs, for `received` after another engine: its lse may differ by a rounding."""
    return all_rows(replace(kernel, aux=frozenset(), raw_value=None, d_value=0), value[..., :0], operands)
