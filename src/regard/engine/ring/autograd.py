"""One call of a ring with its gradients."""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from regard.engine.arguments import tensors_of
from regard.engine.request import Aux, Request, Result
from regard.engine.ring.local import MergedRows, needed_statistics
from regard.engine.ring.passes import Exchange, RingCall, RowGradients, backward, exchange, forward, received
from regard.engine.tiled.engine import with_sink
from regard.engine.tiled.tiles import Rows
from regard.spec.closures import captured_tensors
from regard.spec.scores import Score
from regard.spec.scores.modified import Modified, Wrapped

ROWS = tuple(field.name for field in fields(Rows))


@dataclass(eq=False)
class Record:
    """Bytes that this process sent for a call, forward and, once it has run, backward."""

    forward: int = 0
    backward: int = 0

    @property
    def bytes_sent(self) -> int:
        """Both."""
        return self.forward + self.backward


def run(call: RingCall, record: Record) -> Result:
    """Attention of this process's queries over the keys of all."""
    request, before = call.request, call.link.sent
    sink = request.sink  # kept by the request from its first use, which must not be inside, where nothing is recorded
    inputs = (request.query, request.key, request.value)
    with call.link.bound():
        *found, by_key = _Ring.apply(call, record, *inputs, *spec_tensors(request))  # type: ignore[no-untyped-call]
    record.forward += call.link.sent - before
    rows = with_sink(Rows(*found), sink, request.aux)
    named = {"state" if name == "lse" else name: name for name in request.aux if name != "received"}
    aux = {name: _rounded(getattr(rows, field), request.dtype) for field, name in named.items()}
    if "received" in request.aux:
        aux["received"] = by_key
    return Result(rows.out.to(request.query.dtype), rows.state.to(request.dtype), Aux(**aux))


def _rounded(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def spec_tensors(request: Request) -> tuple[Tensor, ...]:
    """Tensors of score, bias and temperature that get a gradient; the sink is merged apart."""
    named = [*tensors_of("score", request.score), *tensors_of("bias", request.bias)]
    found = [tensor for _, tensor in named] + [*_captured(request.score)]
    if isinstance(request.temperature, Tensor):
        found.append(request.temperature)
    return tuple({id(tensor): tensor for tensor in found if tensor.requires_grad}.values())


def _captured(score: Score) -> tuple[Tensor, ...]:
    found: tuple[Tensor, ...] = ()
    while isinstance(score, Wrapped):
        found += captured_tensors(score.fn) if isinstance(score, Modified) else ()
        score = score.score
    return found


class _Ring(torch.autograd.Function):
    """Rows of (query, key, value) and of what the spec holds; out, lse (in double) and entropy are differentiable."""

    @staticmethod
    def forward(
        ctx: Any, call: RingCall, record: Record, query: Tensor, key: Tensor, value: Tensor, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        request, route = call.request, call.route
        there = [(call.queries, route.queries), (call.keys, route.keys), (call.keys, route.keys)]
        moved = exchange(call.link, [Exchange(x, *way) for x, way in zip((query, key, value), there, strict=True)])
        found = _whole(call, forward(call, moved[0], moved[1], moved[2]))
        by_key = query.new_zeros(0)
        if "received" in request.aux:
            by_key = _received(call, moved[0], moved[1], found["state"])
        ctx.call, ctx.record, ctx.count = call, record, len(tensors)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*moved, found["out"], found["state"], found["entropy"], *tensors, *request.buffers)
        home = _home(call, found)
        results = tuple(home[name] for name in ROWS)
        fixed = [home[name] for name in ROWS if name not in ("out", "state", "entropy")]
        ctx.mark_non_differentiable(*fixed, by_key)
        return *results, by_key

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *given: Tensor | None) -> tuple[Tensor | None, ...]:
        call: RingCall = ctx.call
        before = call.link.sent
        with call.link.bound():
            found = _backward(ctx, call, dict(zip(ROWS, given, strict=False)))
        ctx.record.backward += call.link.sent - before
        return (None, None, *found)


def _backward(ctx: Any, call: RingCall, grads: dict[str, Tensor | None]) -> list[Tensor | None]:
    """Gradients of query, key, value and the spec's tensors, where they came from."""
    *inputs, out, lse, entropy = ctx.saved_tensors[:6]
    tensors, need = ctx.saved_tensors[6 : 6 + ctx.count], ctx.needs_input_grad
    rows = _arrived(call, (out, lse, entropy), (grads["out"], grads["state"], grads["entropy"]))
    totals, shared = backward(call, tuple(inputs), rows, tensors, (need[2], need[3] or need[4]))
    ways = [(call.route.queries, call.queries), *[(call.route.keys, call.keys)] * 2]
    jobs = [Exchange(total, *way) for total, way in zip(totals, ways, strict=True)]
    needed_statistics = [at for at in range(3) if need[2 + at] or (at and (need[3] or need[4]))]
    back = (
        dict(zip(needed_statistics, exchange(call.link, [jobs[at] for at in needed_statistics]), strict=True))
        if needed_statistics
        else {}
    )
    found = [back[at].to(inputs[at].dtype) if need[2 + at] else None for at in range(3)]
    return [*found, *(total.to(tensor.dtype) for total, tensor in zip(shared, tensors, strict=True))]


def _whole(call: RingCall, parts: list[MergedRows]) -> dict[str, Tensor]:
    """The rows of all spans in one tensor each; what was not asked for takes no memory."""
    request, rows = call.request, call.route.queries.lengths[call.link.rank]
    plane, device = request.plane, request.query.device
    size = (plane.batch, plane.kv_heads, plane.group, rows)
    blank = torch.zeros((), dtype=torch.float64, device=device).expand(size)
    found = dict.fromkeys(ROWS, blank)
    found["out"] = torch.empty((*size, request.value.shape[-1]), dtype=request.dtype, device=device)
    found["state"] = torch.empty(size, dtype=torch.float64, device=device)
    for name in needed_statistics(request.aux):
        found[name] = torch.empty(size, dtype=torch.int64 if name == "peak_at" else torch.float64, device=device)
    for part in parts:
        at = call.at(part.rows)
        found["out"][..., at, :], found["state"][..., at] = part.out, part.lse
        for name, rows_ in part.found.items():
            found[name][..., at] = rows_
        part.out = part.out[..., :0, :]  # or it would be held twice
    return found


def _home(call: RingCall, found: dict[str, Tensor]) -> dict[str, Tensor]:
    """The rows where their queries came from."""
    source, target = call.route.queries, call.queries
    if source == target:
        return dict(found)
    home = {"out": exchange(call.link, [Exchange(found["out"], source, target)])[0]}
    names = [name for name in ROWS if name in call.request.aux or (name == "state" and call.tells_lse)]
    for some in ([name for name in names if name != "peak_at"], ["peak_at"] if "peak_at" in names else []):
        rows = exchange(call.link, [Exchange(found[name].unsqueeze(-1), source, target) for name in some])
        home |= {name: tensor.squeeze(-1) for name, tensor in zip(some, rows, strict=True)}
    blank = found["state"].new_zeros(()).expand(home["out"].shape[:-1])
    return {name: home.get(name, blank) for name in ROWS}


def _received(call: RingCall, query: Tensor, key: Tensor, lse: Tensor) -> Tensor:
    sink = call.request.sink
    if sink is not None:
        lse = torch.logaddexp(lse, sink.detach().double())
    by_key = received(call, query, key, lse).unsqueeze(-1)
    return exchange(call.link, [Exchange(by_key, call.route.keys, call.keys)])[0].squeeze(-1)


def _arrived(
    call: RingCall, rows: tuple[Tensor, Tensor, Tensor], grads: tuple[Tensor | None, Tensor | None, Tensor | None]
) -> RowGradients:
    """Gradients where the rows are computed; whether there is one of the entropy, every process must know."""
    out, lse, entropy = rows
    source, target = call.queries, call.route.queries
    count = source.lengths[call.link.rank]
    lanes = lse.shape[:-1]
    d_out = out.new_zeros((*lanes, count, out.shape[-1])) if grads[0] is None else grads[0]
    d_out = exchange(call.link, [Exchange(d_out, source, target)])[0]
    asked = [call.tells_lse, "entropy" in call.request.aux]
    per_row = [
        (lse.new_zeros((*lanes, count)) if grad is None else grad.double()).unsqueeze(-1)
        for grad, needed_statistics in zip(grads[1:], asked, strict=True)
        if needed_statistics
    ]
    moved = iter(exchange(call.link, [Exchange(grad, source, target) for grad in per_row]))
    d_lse, d_entropy = (next(moved).squeeze(-1) if needed_statistics else None for needed_statistics in asked)
    return RowGradients(out, lse, entropy, d_out, d_lse, d_entropy)
