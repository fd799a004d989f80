"""Kernel: one call of the tiled engine, ready to run strip by strip; Rows: what a strip gives."""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from regard.engine.logits import Logits
from regard.engine.schedule import Schedule
from regard.spec.dropout import Dropout
from regard.spec.normalizers import Normalizer


@dataclass(frozen=True, eq=False)
class Kernel:
    """Everything about a call that is not a differentiable tensor."""

    logits: Logits
    schedule: Schedule
    normalizer: Normalizer
    dropout: Dropout | None
    aux: frozenset[str]
    raw_value: Tensor | None
    d_value: int

    @property
    def lanes(self) -> tuple[int, int, int]:
        """(batch, kv head, group)."""
        plane = self.schedule.plane
        return plane.batch, plane.kv_heads, plane.group


@dataclass(frozen=True, eq=False)
class Rows:
    """Results of some queries, (batch, kv head, group, query) each; `out` has d_v behind."""

    out: Tensor
    state: Tensor
    entropy: Tensor
    peak: Tensor
    peak_at: Tensor
    distance: Tensor
    max_logit: Tensor


def empty_rows(kernel: Kernel, rows: slice) -> Rows:
    """Queries that see no key."""
    size = (*kernel.lanes, rows.stop - rows.start)
    device, dtype = kernel.schedule.plane.device, kernel.logits.dtype
    zero = torch.zeros(size, dtype=dtype, device=device)
    none = torch.full(size, -torch.inf, dtype=dtype, device=device)
    return Rows(
        out=torch.zeros((*size, kernel.d_value), dtype=dtype, device=device),
        state=none,
        entropy=zero,
        peak=zero,
        peak_at=torch.full(size, -1, device=device),
        distance=zero,
        max_logit=none,
    )


def joined(strips: list[Rows], kernel: Kernel) -> Rows:
    """The strips one after another."""
    if not strips:
        return empty_rows(kernel, slice(0, 0))
    return Rows(**{f.name: torch.cat([getattr(rows, f.name) for rows in strips], 3) for f in fields(Rows)})
