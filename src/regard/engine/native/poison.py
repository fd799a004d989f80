"""Non-finite inputs of the native engine: taken out before the kernels run, put back where they are seen."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.engine.native.function import Native, attention
from regard.engine.native.lowering import Biases, LoweredScore, lower_score
from regard.engine.request import Request
from regard.engine.strip import Rows

FAR = 1e30  # where tanh and sigmoid have long been flat


@dataclass(frozen=True, eq=False)
class Poison:
    """What was taken out: rows of queries (batch, head, query) and keys (batch, key head, key), and the raw values."""

    query: Tensor
    key: Tensor
    value: Tensor

    def restored(self, native: Native, rows: Rows, biases: Biases) -> Rows:
        """NaN and Inf in exactly the rows that see them; no gradient flows through those.

        Which rows see what is attention itself: equal scores, and marks for values. A second one, in which bad keys
        score more, finds the first that a row sees.
        """
        with torch.no_grad():
            dtype = rows.out.dtype
            kinds = (self.value.isnan(), self.value == torch.inf, self.value == -torch.inf)
            marks = torch.cat([*kinds, self.key.unsqueeze(-1)], -1).to(dtype)
            plain = replace(native, scale=1.0, cap=0.0, phi=None, dropout=None, aux=frozenset({"peak_at"}), slopes=None)
            hidden = [None if t is None else torch.where(t.isneginf(), t, 0.0) for t in (biases.table, biases.dense)]
            one = torch.ones((*self.query.shape, 1), dtype=dtype, device="cpu")
            scored = attention(plain, one, self.key.unsqueeze(-1).to(dtype), marks, None, *hidden, None, None)
            seen = attention(plain, 0 * one, self.key.unsqueeze(-1).to(dtype), marks, None, *hidden, None, None)
            meets = seen.out > 0
            width = self.value.shape[-1]
            nan, plus, minus = meets[..., :width], meets[..., width : 2 * width], meets[..., 2 * width : 3 * width]
            bad_query = self.query.view_as(seen.state) & (seen.state != -torch.inf)
            bad_row = meets[..., -1] | bad_query
            poison = torch.where(plus, torch.inf, torch.where(minus, -torch.inf, 0.0)).to(dtype)
            poison = torch.where(nan | (plus & minus) | bad_row.unsqueeze(-1), torch.nan, poison)
            first = torch.where(bad_query, seen.peak_at, scored.peak_at)
        changed = {
            name: torch.where(bad_row, torch.nan, getattr(rows, name))
            for name in ("state", "entropy", "peak", "distance", "max_logit")
        }
        out = torch.where(poison == 0, rows.out, poison)
        return replace(rows, out=out, peak_at=torch.where(bad_row, first, rows.peak_at), **changed)


def cleaned(request: Request) -> tuple[Request, LoweredScore, Poison] | None:
    """The request with zeros for what is not finite, or whose lowered score is not; None if all is finite.

    An activation that is flat far out makes a finite score of Inf: there the lowered score has a large constant.
    """
    score = lower_score(request)
    raw_query, raw_key = score.query.detach(), score.key.detach()
    bad_query, bad_key = ~raw_query.isfinite().all(-1), ~raw_key.isfinite().all(-1)
    finite = request.value.detach().isfinite()
    if not bool(bad_query.any() | bad_key.any() | ~finite.all()):
        return None
    bad_query |= ~request.query.detach().isfinite().all(-1).flatten(1, 2)
    bad_key |= ~request.key.detach().isfinite().all(-1).squeeze(2)
    clean = replace(
        request,
        query=torch.where(bad_query.view(request.query.shape[:-1]).unsqueeze(-1), 0.0, request.query),
        key=torch.where(bad_key.unsqueeze(2).unsqueeze(-1), 0.0, request.key),
        value=torch.where(finite, request.value, 0.0),
    )
    lowered = lower_score(clean)
    if score.phi in ("tanh", "sigmoid"):
        lowered = replace(
            lowered,
            query=torch.where(bad_query.unsqueeze(-1), _bounded(raw_query), lowered.query),
            key=torch.where(bad_key.unsqueeze(-1), _bounded(raw_key), lowered.key),
        )
        bad_query, bad_key = raw_query.isnan().any(-1), raw_key.isnan().any(-1)
    return clean, lowered, Poison(bad_query, bad_key, request.value.detach().squeeze(2))


def _bounded(raw: Tensor) -> Tensor:
    return raw.nan_to_num(0.0, FAR, -FAR).clamp(-FAR, FAR)
