"""sdpa: torch's scaled_dot_product_attention, served by our engines."""

import torch
from torch import Tensor

from regard import checks
from regard.engine.attend import attend
from regard.engine.transforms import refuse_trace, tracing
from regard.spec.scores import ScaledDot


def sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`torch.nn.functional.scaled_dot_product_attention` with the same names, order and meaning: swap the import.

    query: (…, head, query, d); key: (…, head, key, d); value: (…, head, key, d_v). `is_causal` counts from the top left
    (query 0 sees key 0 only) and excludes `attn_mask`; `dropout_p` is applied as given, in training or not; a bool
    `attn_mask` is True where visible, a float one is added. Heads that differ need `enable_gqa=True`.
    """
    return sdpa_on("auto", query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def sdpa_on(
    engine: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor:
    """The same on the engine of that name."""
    if not torch.compiler.is_compiling() and tracing() is not None:
        refuse_trace()
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if checks.is_tensor(name, tensor).ndim < 2:
            raise ValueError(f"{name} must have at least 2 axes, (length, width), got shape {checks.shape(tensor)}")
    if attn_mask is not None and is_causal:
        raise ValueError(
            "sdpa takes attn_mask or is_causal, not both; for both use attend(mask=masks.Causal() & masks.Dense(...))"
        )
    query, key, value = _repeated(query, key, value) if enable_gqa else _broadcast(query, key, value)
    visible, added = _mask(attn_mask)
    out = attend(
        query,
        key,
        value,
        score=ScaledDot(scale),
        mask="causal" if is_causal else visible,
        bias=added,
        dropout=0.0 if dropout_p == 1 else dropout_p,
        query_start=0,
        engine=engine,
    )
    assert isinstance(out, Tensor)
    return out * 0.0 if dropout_p == 1 else out


def _broadcast(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Heads broadcast like any other axis; one key and value head for many queries needs no widening."""
    heads = [tensor.shape[-3] if tensor.ndim > 2 else 1 for tensor in (query, key, value)]
    if len({head for head in heads if head != 1}) > 1:
        raise ValueError(
            f"query, key and value have {heads[0]}, {heads[1]} and {heads[2]} heads; "
            "pass enable_gqa=True if query heads share key heads"
        )
    if heads[1] == heads[2] == 1:
        return query, key, value
    return _widened(query, max(heads)), _widened(key, max(heads)), _widened(value, max(heads))


def _repeated(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Grouped heads are `attend`'s own; only key and value heads that differ in number must be copied."""
    heads = [tensor.shape[-3] if tensor.ndim > 2 else 1 for tensor in (query, key, value)]
    if any(head == 0 or heads[0] % head for head in heads[1:]):
        raise ValueError(
            f"the heads of key and value must divide the query's {heads[0]}, got {heads[1]} and {heads[2]}"
        )
    if heads[1] == heads[2]:
        return query, key, value
    return query, _copied(key, heads[0]), _copied(value, heads[0])


def _copied(tensor: Tensor, heads: int) -> Tensor:
    """Each head as often as it takes to have `heads`."""
    if tensor.ndim == 2 or tensor.shape[-3] == 1:
        return _widened(tensor, heads)
    return tensor.repeat_interleave(heads // tensor.shape[-3], -3)


def _widened(tensor: Tensor, heads: int) -> Tensor:
    """One head seen as many, without a copy."""
    if tensor.ndim == 2:
        tensor = tensor.unsqueeze(0)
    return tensor.expand(*tensor.shape[:-3], heads, *tensor.shape[-2:])


def _mask(attn_mask: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """(visible, added), at most one of the two."""
    if attn_mask is None:
        return None, None
    mask = torch.atleast_2d(checks.is_tensor("attn_mask", attn_mask))
    if mask.dtype == torch.bool:
        return mask, None
    if mask.is_floating_point():
        return None, mask
    raise TypeError(
        "attn_mask must be bool (True = visible) or float (added to the scores), "
        f"got {checks.dtype(mask)}; convert it with attn_mask.bool()"
    )
