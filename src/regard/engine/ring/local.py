"""Attention of one rectangle on this process, and merging the parts of a row in float64."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.engine.attend import choose, module
from regard.engine.native.call import NotFiniteError, lower_request
from regard.engine.native.engine import kernel_rows
from regard.engine.native.second_pass import NativeSecondPass
from regard.engine.partial import Partial, merge
from regard.engine.request import Request, Result
from regard.engine.ring.shards import RowRange
from regard.engine.second_pass import PassOutputs
from regard.engine.tiled.engine import lower_tiled, received, rows_of
from regard.engine.tiled.tiles import Rows, empty_rows

STATISTICS = ("entropy", "peak", "peak_at", "distance", "max_logit")


@dataclass(frozen=True, eq=False)
class LocalRows:
    """Rows of one rectangle, with a graph where autograd records, and their lse in float64.

    Parts are merged with shares of e^(lse − lse). In float32 the shares would be less precise than the parts.
    """

    rows: Rows
    lse: Tensor


def local_rows(request: Request, engine: str) -> LocalRows:
    """The rows of a rectangle; `engine` is a name or auto."""
    with_lse = replace(request, aux=tuple({*request.aux, "lse"}))
    name = choose(with_lse, engine)
    if name == "native" and request.mask.closed:
        return _native_rows(request)
    if name == "tiled":
        rows = rows_of(*lower_tiled(request))
        return LocalRows(rows, rows.state.detach().double() + rows.rest.double())
    result: Result = module(name).run(with_lse)
    lse = result.aux.lse  # in the engine's own precision
    assert lse is not None
    blank = lse.new_zeros(()).expand(lse.shape)
    statistics = {name: getattr(result.aux, name) for name in STATISTICS}
    statistics = {name: blank if tensor is None else tensor for name, tensor in statistics.items()}
    rows = Rows(out=result.out.to(request.dtype), state=lse, rest=blank, **statistics)
    return LocalRows(rows, lse.detach().double())


def _native_rows(request: Request) -> LocalRows:
    _, inputs, done, rows = kernel_rows(request)
    top, total = done["state"].double()
    tau = inputs[3]
    lse = top / (1.0 if tau is None else tau.detach().double().view(-1, 1)) + total.log()
    lse = torch.where(total == 0, -torch.inf, lse).view(rows.state.shape)
    return LocalRows(rows, torch.where(rows.state.isnan(), torch.nan, lse))


CELLS = 1 << 16  # numbers of an output that are merged at once


class MergedRows:
    """Output and lse of some rows in float64, so that merging adds no rounding of its own; `values` are statistics."""

    def __init__(self, request: Request, rows: RowRange, statistics: tuple[str, ...]) -> None:
        plane = request.plane
        size = (plane.batch, plane.kv_heads, plane.group, rows.length)
        device = request.query.device
        self.rows = rows
        self.out = torch.zeros((*size, request.value.shape[-1]), dtype=torch.float64, device=device)
        self.lse = torch.full(size, -torch.inf, dtype=torch.float64, device=device)
        empty = {"max_logit": -torch.inf, "peak_at": -1}
        self.values = {
            name: torch.full_like(self.lse, empty.get(name, 0.0), dtype=torch.int64 if name == "peak_at" else None)
            for name in statistics
        }

    def add(self, part: LocalRows, rows: RowRange, columns: RowRange) -> None:
        """Merge attention of some of the rows over these columns."""
        at = rows.within(self.rows)
        if self.values:
            self._add_statistics(part, at, columns.start)
        lse = self.lse[..., at].clone()
        batch_heads = lse.shape[:-1].numel()
        step = max(1, CELLS // max(1, batch_heads * self.out.shape[-1]))
        for first in range(0, rows.length, step):
            some = slice(first, min(first + step, rows.length))
            here = slice(at.start + some.start, at.start + some.stop)
            new = Partial(part.rows.out[..., some, :].double(), part.lse[..., some])
            both = merge(Partial(self.out[..., here, :], lse[..., some]), new)
            self.out[..., here, :], self.lse[..., here] = both.out, both.lse

    def _add_statistics(self, part: LocalRows, at: slice, first: int) -> None:
        old, new = self.lse[..., at], part.lse
        both = torch.logaddexp(old, new)
        # −inf for a part that saw nothing
        log_old, log_new = (torch.where(lse == -torch.inf, -torch.inf, lse - both) for lse in (old, new))
        share_old, share_new = log_old.exp(), log_new.exp()
        before = {name: values[..., at].clone() for name, values in self.values.items()}
        for name, values in self.values.items():
            after = getattr(part.rows, name)
            if name == "entropy":
                total = share_old * before[name] + share_new * after
                total = total - torch.where(share_old > 0, share_old * log_old, 0.0)
                values[..., at] = total - torch.where(share_new > 0, share_new * log_new, 0.0)
            elif name == "peak":
                values[..., at] = torch.maximum(share_old * before[name], share_new * after)
            elif name == "distance":
                values[..., at] = share_old * before[name] + share_new * after
            elif name == "max_logit":
                values[..., at] = torch.maximum(before[name], after.double())
            else:  # peak_at: the lowest of the keys with the largest logit; NaN is larger than any
                best, logit = before["max_logit"], part.rows.max_logit.double()
                key = torch.where(after < 0, -1, after + first)
                higher = (logit > best) | (logit.isnan() & ~best.isnan())
                equal = (logit == best) | (logit.isnan() & best.isnan())
                earlier = equal & (key >= 0) & ((key < before[name]) | (before[name] < 0))
                values[..., at] = torch.where(higher | earlier, key, before[name])


def needed_statistics(aux: tuple[str, ...]) -> tuple[str, ...]:
    """The statistics that rectangles must give: the key of a peak is merged by its logit."""
    names = {*aux} & {*STATISTICS}
    return tuple(name for name in STATISTICS if name in names or (name == "max_logit" and "peak_at" in names))


def received_in(request: Request, lse: Tensor, engine: str) -> Tensor:
    """Σ over the rows of the weights, (batch, kv head, group, key); `lse` is float64, (batch, kv head, group, row)."""
    with torch.no_grad():
        if choose(replace(request, aux=("lse",)), engine) == "native" and request.mask.closed:
            by_key = None if bool(lse.isnan().any()) else _native_received(request, lse)
            if by_key is not None:
                return by_key
        kernel, _, operands = lower_tiled(request)
        state = lse.to(request.dtype)
        rest = torch.where(state.isfinite(), lse - state.double(), 0.0).to(request.dtype)
        blank = empty_rows(kernel, slice(0, request.plane.queries))
        return received(kernel, replace(blank, state=state, rest=rest), operands, None)


def _native_received(request: Request, lse: Tensor) -> Tensor | None:
    """The same by the kernels' second pass; None if an input is not finite."""
    if not all(bool(torch.isfinite(part.sum())) for part in (request.query, request.key)):
        return None
    try:
        native, inputs, _ = lower_request(request, finite=False)
    except NotFiniteError:
        return None
    plane = request.plane
    rows = lse.flatten(1, 2)
    tau = 1.0 if inputs[3] is None else inputs[3].double().view(-1, 1)
    sound = torch.where(rows == -torch.inf, 0.0, rows)
    top = (sound * tau).to(request.dtype)
    total = (sound - top.double() / tau).exp().to(request.dtype)  # what rounding took from the lse
    kernel = NativeSecondPass(native, inputs, torch.stack([top, total]))
    sums = kernel.run(PassOutputs(received=True))["received"]
    by_key: Tensor = sums.unflatten(1, (plane.kv_heads, plane.group))
    return by_key
