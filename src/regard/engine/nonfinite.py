"""Non-finite inputs. A hidden NaN has no influence; a visible one shows in the results of the rows that see it.

Rows and keys with NaN or Inf are replaced by zeros, so that no product spreads them (0 · NaN is NaN). The scores of
their pairs are then put back. Numbers beyond a quarter of the largest float count as Inf here, because an activation
of the sum of two may be. No gradient flows through such a score or result.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.spec.forms import Form, weights_times_values
from regard.spec.plane import Pairs
from regard.spec.scores import Score


@dataclass(frozen=True, eq=False)
class NonFinite:
    """`query` (…, query, 1) and `key` (…, 1, key) mark what is not finite; `raw` is the form of the inputs as given."""

    query: Tensor
    key: Tensor
    raw: Form

    def pairs(self, pairs: Pairs) -> Tensor:
        """Pairs whose score is not that of finite inputs."""
        return self.query[..., pairs.rows, :] | self.key[..., pairs.columns]


def finite_form(score: Score, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Form, NonFinite | None]:
    """Query and key safe to multiply, their form, and what was taken out."""
    form = score.lower(query, key)
    if torch.compiler.is_compiling():  # a traced tensor has no numbers; pairs that are hidden are left out later
        return query, key, form, None
    if all(_all_safe(operand.tensor) for operand in form.operands if operand.axis in ("query", "key")):
        return query, key, form, None
    bad_query, bad_key = ~_safe(query), ~_safe(key)
    for operand in form.operands:
        if operand.axis == "query":
            bad_query = bad_query | ~_safe(operand.tensor)
        elif operand.axis == "key":
            bad_key = bad_key | ~_safe(operand.tensor)
    raw = score.lower(query.detach(), key.detach())
    query = torch.where(bad_query.unsqueeze(-1), 0.0, query)
    key = torch.where(bad_key.unsqueeze(-1), 0.0, key)
    return query, key, score.lower(query, key), NonFinite(bad_query.unsqueeze(-1), bad_key.unsqueeze(-2), raw)


def finite_values(value: Tensor) -> tuple[Tensor, Tensor | None]:
    """The values with zeros for what is not finite, and, if there was any, the values as they came."""
    if torch.compiler.is_compiling():
        return torch.where(value.isfinite(), value, 0.0), value
    if bool(value.detach().sum().isfinite()):  # one cheap pass; a sum may overflow: then look closer
        return value, None
    finite = value.isfinite()
    if bool(finite.all()):
        return value, None
    return torch.where(finite, value, 0.0), value.detach()


def nonfinite_contribution(visible: Tensor, raw: Tensor) -> Tensor:
    """What the visible non-finite values add to the output: NaN, ±Inf or 0, (…, query, d_v)."""
    if torch.compiler.is_compiling():  # one column instead of three matrices: NaN in the whole row
        return torch.where(sees_any(visible, ~raw.isfinite().all(-1)), torch.nan, 0.0)
    seen = visible.to(raw.dtype)

    def meets(kind: Tensor) -> Tensor:
        return weights_times_values(seen, kind.to(raw.dtype)) > 0

    plus, minus = meets(raw == torch.inf), meets(raw == -torch.inf)
    zero = torch.zeros((), dtype=raw.dtype, device=raw.device)
    found = torch.where(plus, torch.inf, torch.where(minus, -torch.inf, zero))
    return torch.where(meets(raw.isnan()) | (plus & minus), torch.nan, found)


def sees_any(visible: Tensor, keys: Tensor) -> Tensor:
    """Rows that see one of the marked keys (batch, kv head, 1, key), (…, query, 1)."""
    return visible.to(torch.float32) @ keys.unsqueeze(-1).to(torch.float32) > 0


def finite_rows(x: Tensor) -> Tensor:
    """Rows of logits that hold neither NaN nor +Inf, (…, query, 1)."""
    return ~(x.isnan() | (x == torch.inf)).any(-1, keepdim=True)


def divide_by_temperature(logits: Tensor, temperature: float | Tensor) -> Tensor:
    """logits / τ. What is not finite passes by: as 0 · Inf it would reach τ's gradient."""
    if not isinstance(temperature, Tensor):
        return logits if temperature == 1.0 else logits / temperature
    finite = logits.isfinite()
    return torch.where(finite, torch.where(finite, logits, 0.0) * (1.0 / temperature), logits)


def _all_safe(tensor: Tensor) -> bool:
    """One cheap pass: a NaN fails every comparison."""
    if tensor.numel() == 0:
        return True
    low, high = tensor.detach().aminmax()
    return bool((low >= -_limit(tensor)) & (high <= _limit(tensor)))


def _safe(tensor: Tensor) -> Tensor:
    return (tensor.detach().abs() <= _limit(tensor)).all(-1)


def _limit(tensor: Tensor) -> float:
    return torch.finfo(tensor.dtype).max / 4
