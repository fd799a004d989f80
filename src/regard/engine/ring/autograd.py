"""One call of a ring with its gradients."""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from regard.engine.arguments import tensors_of
from regard.engine.request import Aux, Request, Result
from regard.engine.ring.local import MergedRows, needed_statistics
from regard.engine.ring.passes import Exchange, RingCall, RowGradients, Tensors, backward, exchange, forward, received
from regard.engine.tiled.engine import with_sink
from regard.engine.tiled.tiles import Rows
from regard.spec.closures import captured_tensors

ROWS = tuple(field.name for field in fields(Rows))


@dataclass(eq=False)
class Record:
    """Bytes that this process sent for a call, forward and, once it has run, backward."""

    forward: int = 0
    backward: int = 0

    @property
    def bytes_sent(self) -> int:
        """Forward and backward together."""
        return self.forward + self.backward


def run(call: RingCall, record: Record) -> Result:
    """Attention of this process's queries over the keys of all."""
    request, before = call.request, call.link.sent
    sink = request.sink  # computed at its first use, which must not be inside the Function: autograd is off there
    inputs = (request.query, request.key, request.value)
    with call.link.bound():
        *results, by_key = _Ring.apply(call, record, *inputs, *spec_tensors(request))  # type: ignore[no-untyped-call]
    record.forward += call.link.sent - before
    rows = with_sink(Rows(*results), sink, request.aux)
    aux = {"received": by_key} if "received" in request.aux else {}
    for name in request.aux:
        if name != "received":
            tensor = getattr(rows, "state" if name == "lse" else name)
            aux[name] = tensor.to(request.dtype) if tensor.is_floating_point() else tensor
    return Result(rows.out.to(request.query.dtype), rows.state.to(request.dtype), Aux(**aux))


def spec_tensors(request: Request) -> Tensors:
    """Tensors of score, bias and temperature that get a gradient; the sink is merged outside."""
    parts = (("score", request.score), ("bias", request.bias), ("temperature", request.temperature))
    tensors = [tensor for part in parts for _, tensor in tensors_of(*part)]
    tensors += [tensor for fn in request.score.functions for tensor in captured_tensors(fn)]
    return tuple({id(tensor): tensor for tensor in tensors if tensor.requires_grad}.values())


class _Ring(torch.autograd.Function):
    """Rows of (query, key, value) and of the spec's tensors; out, lse (in float64) and entropy are differentiable."""

    @staticmethod
    def forward(
        ctx: Any, call: RingCall, record: Record, query: Tensor, key: Tensor, value: Tensor, *tensors: Tensor
    ) -> Tensors:
        request, route = call.request, call.route
        moved = exchange(
            call.link,
            [
                Exchange(query, call.queries, route.queries),
                Exchange(key, call.keys, route.keys),
                Exchange(value, call.keys, route.keys),
            ],
        )
        rows = _collected(call, forward(call, *moved))
        by_key = query.new_zeros(0)
        if "received" in request.aux:
            by_key = _received(call, moved[0], moved[1], rows["state"])
        ctx.call, ctx.record, ctx.count = call, record, len(tensors)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*moved, rows["out"], rows["state"], rows["entropy"], *tensors, *request.buffers)
        home = _moved_home(call, rows)
        fixed = [home[name] for name in ROWS if name not in ("out", "state", "entropy")]
        ctx.mark_non_differentiable(*fixed, by_key)
        return *(home[name] for name in ROWS), by_key

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        call: RingCall = ctx.call
        before = call.link.sent
        with call.link.bound():
            gradients = _backward(ctx, call, dict(zip(ROWS, grads, strict=False)))
        ctx.record.backward += call.link.sent - before
        return (None, None, *gradients)


def _backward(ctx: Any, call: RingCall, grads: dict[str, Tensor | None]) -> list[Tensor | None]:
    """Gradients of query, key, value and the spec's tensors, on the processes that these came from."""
    saved = ctx.saved_tensors
    inputs, (out, lse, entropy), tensors = saved[:3], saved[3:6], saved[6 : 6 + ctx.count]
    needed = ctx.needs_input_grad[2:5]
    keys_needed = needed[1] or needed[2]
    rows = _row_gradients(call, (out, lse, entropy), (grads["out"], grads["state"], grads["entropy"]))
    totals, shared = backward(call, inputs, rows, tensors, (needed[0], keys_needed))
    jobs = [Exchange(totals[0], call.route.queries, call.queries)] if needed[0] else []
    if keys_needed:
        jobs += [Exchange(total, call.route.keys, call.keys) for total in totals[1:]]
    home = iter(exchange(call.link, jobs))
    sums = [next(home) if sent else None for sent in (needed[0], keys_needed, keys_needed)]
    gradients = [
        total.to(tensor.dtype) if need and total is not None else None
        for total, tensor, need in zip(sums, inputs, needed, strict=True)
    ]
    return [*gradients, *(total.to(tensor.dtype) for total, tensor in zip(shared, tensors, strict=True))]


def _collected(call: RingCall, parts: list[MergedRows]) -> dict[str, Tensor]:
    """The rows of all spans in one tensor each; statistics that are not returned take no memory."""
    request = call.request
    plane, device = request.plane, request.query.device
    size = (plane.batch, plane.kv_heads, plane.group, call.route.queries.lengths[call.link.rank])
    rows = dict.fromkeys(ROWS, torch.zeros((), dtype=torch.float64, device=device).expand(size))
    rows["out"] = torch.empty((*size, request.value.shape[-1]), dtype=request.dtype, device=device)
    for name in ("state", *needed_statistics(request.aux)):
        rows[name] = torch.empty(size, dtype=torch.int64 if name == "peak_at" else torch.float64, device=device)
    for part in parts:
        at = call.at(part.rows)
        rows["out"][..., at, :], rows["state"][..., at] = part.out, part.lse
        for name, values in part.values.items():
            rows[name][..., at] = values
        part.out = part.out[..., :0, :]  # or it would be held twice
    return rows


def _moved_home(call: RingCall, rows: dict[str, Tensor]) -> dict[str, Tensor]:
    """The rows on the processes that their queries came from."""
    source, target = call.route.queries, call.queries
    if source == target:
        return dict(rows)
    home = {"out": exchange(call.link, [Exchange(rows["out"], source, target)])[0]}
    names = [name for name in ROWS if name in call.request.aux or (name == "state" and call.returns_lse)]
    for some in ([name for name in names if name != "peak_at"], [name for name in names if name == "peak_at"]):
        moved = exchange(call.link, [Exchange(rows[name].unsqueeze(-1), source, target) for name in some])
        home |= {name: tensor.squeeze(-1) for name, tensor in zip(some, moved, strict=True)}
    blank = rows["state"].new_zeros(()).expand(home["out"].shape[:-1])
    return {name: home.get(name, blank) for name in ROWS}


def _received(call: RingCall, query: Tensor, key: Tensor, lse: Tensor) -> Tensor:
    sink = call.request.sink
    if sink is not None:
        lse = torch.logaddexp(lse, sink.detach().double())
    by_key = received(call, query, key, lse).unsqueeze(-1)
    return exchange(call.link, [Exchange(by_key, call.route.keys, call.keys)])[0].squeeze(-1)


def _row_gradients(
    call: RingCall, rows: tuple[Tensor, Tensor, Tensor], grads: tuple[Tensor | None, Tensor | None, Tensor | None]
) -> RowGradients:
    """Gradients on the processes that compute the rows. All processes send the same ones: zeros where one has none."""
    out, lse, entropy = rows
    source, target = call.queries, call.route.queries
    size = (*lse.shape[:-1], source.lengths[call.link.rank])
    d_out = out.new_zeros((*size, out.shape[-1])) if grads[0] is None else grads[0]
    d_out = exchange(call.link, [Exchange(d_out, source, target)])[0]
    sent = (call.returns_lse, "entropy" in call.request.aux)
    per_row = [
        (lse.new_zeros(size) if grad is None else grad.double()).unsqueeze(-1)
        for grad, is_sent in zip(grads[1:], sent, strict=True)
        if is_sent
    ]
    moved = iter(exchange(call.link, [Exchange(grad, source, target) for grad in per_row]))
    d_lse, d_entropy = (next(moved).squeeze(-1) if is_sent else None for is_sent in sent)
    return RowGradients(out, lse, entropy, d_out, d_lse, d_entropy)
