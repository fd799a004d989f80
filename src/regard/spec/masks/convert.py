"""Masks from the conventions of others: torch, transformers, FlexAttention."""

from typing import Any

import torch
from torch import Tensor

from regard.checks import dtype, is_tensor, shape
from regard.spec.masks.band import Full
from regard.spec.masks.base import Mask
from regard.spec.masks.tables import Dense, RowWhere


def from_sdpa(attn_mask: Tensor) -> Mask:
    """`attn_mask` of `scaled_dot_product_attention`: bool, True = visible."""
    return Dense(_bools("attn_mask", attn_mask))


def from_mha(
    attn_mask: Tensor | None = None, key_padding_mask: Tensor | None = None, *, heads: int | None = None
) -> Mask:
    """The masks of `nn.MultiheadAttention`, where True means *hidden*.

    `attn_mask` is (query, key) or (batch · heads, query, key), then `heads` is needed;
    `key_padding_mask` is (batch, key) or (key,).
    """
    mask: Mask = Full()
    if attn_mask is not None:
        table = ~_bools("attn_mask", attn_mask)
        if table.ndim == 3:
            if heads is None or table.shape[0] % heads:
                raise ValueError(
                    f"an attn_mask of shape {shape(table)} is (batch · heads, query, key); "
                    f"pass heads= so that it can be split, got {heads}"
                )
            table = table.unflatten(0, (-1, heads))
        mask = Dense(table)
    if key_padding_mask is not None:
        padding = Dense(_keys(~_bools("key_padding_mask", key_padding_mask)))
        mask = padding if isinstance(mask, Full) else mask & padding
    return mask


def from_padding(attention_mask: Tensor) -> Mask:
    """A tokenizer's 2-D `attention_mask` (transformers): 1 = a real token, 0 = padding; (batch, key)."""
    tensor = is_tensor("attention_mask", attention_mask)
    if tensor.ndim not in (1, 2):
        raise ValueError(
            f"attention_mask must be (batch, key) with 1 for real tokens, got shape {shape(tensor)}; "
            "a 4-D additive mask is a bias: biases.Dense(tensor)"
        )
    if not bool(((tensor == 0) | (tensor == 1)).all()):
        raise ValueError("attention_mask must hold 0 and 1 only; an additive mask is a bias: biases.Dense(tensor)")
    return Dense(_keys(tensor == 1))


def from_flex(mask_mod: Any) -> Mask:
    """FlexAttention's `mask_mod(b, h, q_idx, kv_idx)` or a BlockMask: indices are rows, not positions."""
    return RowWhere(getattr(mask_mod, "mask_mod", mask_mod))


def _bools(name: str, mask: object) -> Tensor:
    tensor = is_tensor(name, mask)
    if tensor.dtype == torch.uint8:
        return tensor.bool()
    if tensor.dtype != torch.bool:
        raise TypeError(f"{name} must be bool, got {dtype(tensor)}; a float mask is added to the logits: pass it as bias=")
    return tensor


def _keys(visible: Tensor) -> Tensor:
    return visible[:, None, None, :] if visible.ndim == 2 else visible[None, :]
