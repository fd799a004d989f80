"""Masks from the conventions of others: torch and transformers. FlexAttention's are in `flex`."""

import torch
from torch import Tensor

from regard.checks import dtype, is_tensor, shape, whole
from regard.spec.masks.band import Full
from regard.spec.masks.base import Mask
from regard.spec.masks.tables import Dense


def from_sdpa(attn_mask: Tensor) -> Mask:
    """`attn_mask` of `scaled_dot_product_attention`: bool, True = visible; broadcasts to (batch, head, query, key)."""
    return Dense(_bools("attn_mask", attn_mask))


def from_mha(
    attn_mask: Tensor | None = None, key_padding_mask: Tensor | None = None, *, heads: int | None = None
) -> Mask:
    """The masks of `nn.MultiheadAttention`, where True means *hidden*.

    `attn_mask` is (query, key), or (batch · heads, query, key) and then `heads` is needed;
    `key_padding_mask` is (batch, key) or (key,).
    """
    masks: list[Mask] = []
    if attn_mask is not None:
        masks.append(Dense(_split(~_bools("attn_mask", attn_mask), heads)))
    if key_padding_mask is not None:
        hidden = _bools("key_padding_mask", key_padding_mask)
        masks.append(Dense(_keys("key_padding_mask", ~hidden)))
    if not masks:
        return Full()
    return masks[0] if len(masks) == 1 else masks[0] & masks[1]


def from_padding(attention_mask: Tensor) -> Mask:
    """A tokenizer's 2-D `attention_mask` (transformers): 1 = a real token, 0 = padding; (batch, key)."""
    tensor = is_tensor("attention_mask", attention_mask)
    real = tensor == 1
    if not bool((real | (tensor == 0)).all()):
        raise ValueError(
            f"attention_mask must hold 0 and 1 only, got values from {tensor.min().item()} to {tensor.max().item()}; "
            "a mask that is added to the logits is a bias: biases.Dense(tensor)"
        )
    return Dense(_keys("attention_mask", real))


def _bools(name: str, mask: object) -> Tensor:
    tensor = is_tensor(name, mask)
    if tensor.dtype == torch.bool:
        return tensor
    hint = (
        "a float mask is added to the logits: pass it as bias=" if tensor.is_floating_point() else "compare it with 0"
    )
    raise TypeError(f"{name} must be bool, got {dtype(tensor)}; {hint}")


def _split(table: Tensor, heads: int | None) -> Tensor:
    """(batch · heads, query, key) to (batch, heads, query, key); two axes stay."""
    if table.ndim == 2:
        return table
    if table.ndim != 3:
        raise ValueError(
            f"attn_mask must be (query, key) or (batch · heads, query, key), got shape {shape(table)}; "
            "one that broadcasts is masks.Dense(~attn_mask)"
        )
    if heads is None or table.shape[0] % whole("heads", heads, least=1):
        raise ValueError(
            f"an attn_mask of shape {shape(table)} is (batch · heads, query, key); "
            f"pass heads= so that it can be split, got {heads}"
        )
    return table.view(table.shape[0] // heads, heads, *table.shape[1:])


def _keys(name: str, visible: Tensor) -> Tensor:
    """(batch, key) to (batch, 1, 1, key); (key,) fits all."""
    if visible.ndim not in (1, 2):
        raise ValueError(
            f"{name} must be (batch, key) or (key,), got shape {shape(visible)}; one with query and head axes is "
            "masks.from_sdpa(tensor), or a bias if it is added to the logits"
        )
    return visible[:, None, None, :] if visible.ndim == 2 else visible
