"""Non-finite inputs of the native engine: taken out before the kernels run, put back where they are seen."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.engine.native.function import Native, attention
from regard.engine.native.lowering import Biases
from regard.engine.strip import Rows


@dataclass(frozen=True, eq=False)
class Poisoned:
    """Inputs with zeros for the rows that are not finite, and the marks of what they were."""

    query: Tensor
    key: Tensor
    value: Tensor
    bad_query: Tensor
    bad_key: Tensor
    raw_value: Tensor

    @classmethod
    def of(cls, query: Tensor, key: Tensor, value: Tensor) -> "Poisoned | None":
        """None where everything is finite: then a result overflowed, which is right as it is."""
        if all(bool(tensor.detach().isfinite().all()) for tensor in (query, key, value)):
            return None
        bad_query, bad_key = (~tensor.isfinite().all(-1, keepdim=True) for tensor in (query, key))
        return cls(
            torch.where(bad_query, 0.0, query),
            torch.where(bad_key, 0.0, key),
            torch.where(value.isfinite(), value, 0.0),
            bad_query.squeeze(-1),
            bad_key.squeeze(-1),
            value.detach(),
        )

    def restored(self, native: Native, rows: Rows, biases: Biases) -> Rows:
        """NaN and Inf in exactly the rows that see them; no gradient flows through those.

        Which rows see what is attention itself: equal scores, and marks for values.
        """
        with torch.no_grad():
            dtype = rows.out.dtype
            kinds = (self.raw_value.isnan(), self.raw_value == torch.inf, self.raw_value == -torch.inf)
            marks = torch.cat([*kinds, self.bad_key.unsqueeze(-1)], -1).to(dtype)
            plain = replace(native, scale=0.0, cap=0.0, dropout=None, aux=frozenset(), slopes=None)
            hidden = [None if t is None else torch.where(t.isneginf(), t, 0.0) for t in (biases.table, biases.dense)]
            query, key = self.query.detach().to(dtype), self.key.detach().to(dtype)
            seen = attention(plain, query, key, marks, None, *hidden).out > 0
            width = self.raw_value.shape[-1]
            nan, plus, minus = seen[..., :width], seen[..., width : 2 * width], seen[..., 2 * width : 3 * width]
            bad_query = self.bad_query.view_as(rows.state) & (rows.state != -torch.inf)
            bad_row = seen[..., -1] | bad_query
            poison = torch.where(plus, torch.inf, torch.where(minus, -torch.inf, 0.0)).to(dtype)
            poison = torch.where(nan | (plus & minus) | bad_row.unsqueeze(-1), torch.nan, poison)
        changed = {
            name: torch.where(bad_row, torch.nan, getattr(rows, name))
            for name in ("state", "entropy", "peak", "distance", "max_logit")
        }
        return replace(rows, out=torch.where(poison == 0, rows.out, poison), **changed)
