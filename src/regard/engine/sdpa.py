"""sdpa: torch's scaled_dot_product_attention, served by our engines."""

import torch
from torch import Tensor

from regard.engine.attend import attend
from regard.spec.masks import Causal, Dense, Mask
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

    `is_causal` counts from the top left (query 0 sees key 0 only), `dropout_p` is applied as given, a bool
    `attn_mask` is True where visible, a float one is added. Heads that differ need `enable_gqa=True`.
    """
    heads = [tensor.shape[-3] if tensor.ndim > 2 else 1 for tensor in (query, key, value)]
    if not enable_gqa and len({head for head in heads if head != 1}) > 1:
        raise ValueError(
            f"query, key and value have {heads[0]}, {heads[1]} and {heads[2]} heads; "
            "pass enable_gqa=True if query heads share key heads"
        )
    if not enable_gqa and query.ndim > 2:
        query = _widened(query, max(heads))
        if heads[1] != heads[2]:
            key, value = _widened(key, max(heads)), _widened(value, max(heads))
    mask: Mask | None = Causal() if is_causal else None
    bias = None
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        mask = Dense(attn_mask) if mask is None else mask & Dense(attn_mask)
    else:
        bias = attn_mask
    out = attend(query, key, value, score=ScaledDot(scale), mask=mask, bias=bias, dropout=dropout_p, query_start=0)
    assert isinstance(out, Tensor)
    return out


def _widened(tensor: Tensor, heads: int) -> Tensor:
    """One head seen as many, without a copy."""
    if tensor.ndim == 2:
        tensor = tensor.unsqueeze(0)
    return tensor.expand(*tensor.shape[:-3], heads, *tensor.shape[-2:])
