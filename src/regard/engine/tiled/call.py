"""TiledCall: one call of the tiled engine, ready to run; Rows: results of some queries."""

from collections.abc import Iterable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from regard.engine.tiled.tiles import Logits, Schedule
from regard.spec.dropout import Dropout
from regard.spec.normalizers import Normalizer, Softmax


@dataclass(frozen=True, eq=False)
class TiledCall:
    """Everything about a call that is not a differentiable tensor."""

    logits: Logits
    schedule: Schedule
    normalizer: Normalizer
    dropout: Dropout | None
    aux: frozenset[str]
    raw_value: Tensor | None
    d_value: int
    buffers: tuple[Tensor, ...] = ()

    @property
    def lanes(self) -> tuple[int, int, int]:
        """(batch, kv head, group)."""
        plane = self.schedule.plane
        return plane.batch, plane.kv_heads, plane.group


@dataclass(frozen=True, eq=False)
class Rows:
    """Results of some queries, (batch, kv head, group, query) each; `out` has d_v behind.

    `rest` is what rounding took from the lse: of a large lse so much that it would show in the gradients. Backward
    needs it and `peak`, which are there whether or not they were asked for.
    """

    out: Tensor
    state: Tensor
    entropy: Tensor
    peak: Tensor
    peak_at: Tensor
    distance: Tensor
    max_logit: Tensor
    rest: Tensor


def empty_rows(kernel: TiledCall, rows: slice) -> Rows:
    """Queries that see no key. Statistics that nobody asked for take no memory."""
    size = (*kernel.lanes, rows.stop - rows.start)
    device, dtype = kernel.schedule.plane.device, kernel.logits.dtype

    def filled(name: str, number: float, kind: torch.dtype = dtype) -> Tensor:
        if name in kernel.aux:
            return torch.full(size, number, dtype=kind, device=device)
        return torch.full((), number, dtype=kind, device=device).expand(size)

    state = torch.full(size, -torch.inf, dtype=dtype, device=device)
    rest = torch.zeros_like(state)
    if not isinstance(kernel.normalizer, Softmax):
        state = kernel.normalizer.rows(state.unsqueeze(-1)[..., :0])[1]
    return Rows(
        out=torch.zeros((*size, kernel.d_value), dtype=dtype, device=device),
        state=state,
        entropy=filled("entropy", 0.0),
        peak=torch.zeros_like(rest),
        peak_at=filled("peak_at", -1, torch.int64),
        distance=filled("distance", 0.0),
        max_logit=filled("max_logit", -torch.inf),
        rest=rest,
    )


def concatenated_rows(kernel: TiledCall, strips: list[Rows]) -> Rows:
    """The strips one after another, as a graph."""
    if not strips:
        return empty_rows(kernel, slice(0, 0))
    return Rows(**{f.name: torch.cat([getattr(rows, f.name) for rows in strips], 3) for f in fields(Rows)})


def collected_rows(kernel: TiledCall, strips: Iterable[tuple[slice, Rows]]) -> Rows:
    """The same without a graph, each strip written to its place, so that none is held twice."""
    whole = empty_rows(kernel, slice(0, kernel.schedule.plane.queries))
    for place, rows in strips:
        whole.out[..., place, :] = rows.out
        whole.state[..., place] = rows.state
        whole.rest[..., place] = rows.rest
        whole.peak[..., place] = rows.peak
        for name in kernel.aux - {"lse", "received", "peak"}:
            getattr(whole, name)[..., place] = getattr(rows, name)
        del rows  # or it would be held while the next strip is computed
    return whole
