"""Running: the rows of one span while the keys come by, merged part by part."""

import torch
from torch import Tensor

from regard.engine.partial import Partial, merge
from regard.engine.request import Request
from regard.engine.ring.local import STATISTICS, Local
from regard.engine.ring.shards import Span

CELLS = 1 << 16  # numbers of an output that are merged at once


class Running:
    """Output and lse in double, so that merging adds no rounding of its own; statistics that were asked for."""

    def __init__(self, request: Request, rows: Span, statistics: tuple[str, ...]) -> None:
        plane = request.plane
        size = (plane.batch, plane.kv_heads, plane.group, rows.length)
        device = request.query.device
        self.rows, self.statistics = rows, statistics
        self.out = torch.zeros((*size, request.value.shape[-1]), dtype=torch.float64, device=device)
        self.lse = torch.full(size, -torch.inf, dtype=torch.float64, device=device)
        self.found: dict[str, Tensor] = {
            name: torch.full_like(self.lse, -torch.inf if name == "max_logit" else 0.0)
            for name in statistics
            if name != "peak_at"
        }
        if "peak_at" in statistics:
            self.found["peak_at"] = torch.full(size, -1, device=device, dtype=torch.int64)

    def add(self, part: Local, rows: Span, columns: Span) -> None:
        """What some of the rows make of these columns."""
        at = rows.within(self.rows)
        if self.statistics:
            self._add_statistics(part, at, columns.start)
        lse = self.lse[..., at].clone()
        lanes = lse.shape[:-1].numel()
        step = max(1, CELLS // max(1, lanes * self.out.shape[-1]))
        for first in range(0, rows.length, step):
            some = slice(first, min(first + step, rows.length))
            here = slice(at.start + some.start, at.start + some.stop)
            new = Partial(part.rows.out[..., some, :].double(), part.lse[..., some])
            both = merge(Partial(self.out[..., here, :], lse[..., some]), new)
            self.out[..., here, :], self.lse[..., here] = both.out, both.lse

    def _add_statistics(self, part: Local, at: slice, first: int) -> None:
        old, new = self.lse[..., at], part.lse
        both = torch.logaddexp(old, new)
        log_old, log_new = (_log_share(lse, both) for lse in (old, new))
        share_old, share_new = log_old.exp(), log_new.exp()
        for name in self.statistics:
            before, after = self.found[name][..., at], getattr(part.rows, name)
            if name == "entropy":
                total = share_old * before + share_new * after
                total = total - torch.where(share_old > 0, share_old * log_old, 0.0)
                self.found[name][..., at] = total - torch.where(share_new > 0, share_new * log_new, 0.0)
            elif name == "peak":
                self.found[name][..., at] = torch.maximum(share_old * before, share_new * after)
            elif name == "distance":
                self.found[name][..., at] = share_old * before + share_new * after
        if "peak_at" in self.statistics:
            self._add_peak_at(part, at, first)
        if "max_logit" in self.statistics:
            logits = self.found["max_logit"]
            logits[..., at] = torch.maximum(logits[..., at], part.rows.max_logit.double())

    def _add_peak_at(self, part: Local, at: slice, first: int) -> None:
        """The lowest of the keys with the largest logit; NaN is larger than any."""
        best, found = self.found["max_logit"][..., at], self.found["peak_at"]
        logit = part.rows.max_logit.double()
        key = torch.where(part.rows.peak_at < 0, -1, part.rows.peak_at + first)
        higher = (logit > best) | (logit.isnan() & ~best.isnan())
        equal = (logit == best) | (logit.isnan() & best.isnan())
        before = found[..., at]
        earlier = equal & (key >= 0) & ((key < before) | (before < 0))
        found[..., at] = torch.where(higher | earlier, key, before)


def wanted(aux: tuple[str, ...]) -> tuple[str, ...]:
    """The statistics that rectangles must tell: the key of a peak is found by its logit."""
    names = {*aux} & {*STATISTICS}
    return tuple(name for name in STATISTICS if name in names or (name == "max_logit" and "peak_at" in names))


def _log_share(lse: Tensor, total: Tensor) -> Tensor:
    """ln of the share, −inf of a part that saw nothing."""
    return torch.where(lse == -torch.inf, -torch.inf, lse - total)
