"""The mask half: what transformers asks for before the layers run, as a MaskTensor."""

from typing import Any

import torch
from torch import Tensor

from regard.hf.patterns import Known, MaskFunction, View, recognized
from regard.hf.tensor import Held, MaskTensor
from regard.spec.masks import Dense, Full, Lengths, Mask, Prefix


def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: MaskFunction | None = None,
    attention_mask: Tensor | None = None,
    use_vmap: bool = False,
    device: torch.device | str = "cpu",
    *,
    table: Known,
    **unused: Any,
) -> Tensor:
    """The (batch, 1, query, key) mask of a call: with its structure where it is known, else as bools.

    It is never None, so that the attention half need not guess what no mask means.
    """
    from transformers.masking_utils import causal_mask_function, sdpa_mask

    function = causal_mask_function if mask_function is None else mask_function
    found: Mask | None = None
    if not torch.compiler.is_compiling() and (attention_mask is None or attention_mask.ndim == 2):
        view = View(q_length, kv_length, int(q_offset), int(kv_offset))
        found = recognized(function, view, table)
    if found is None:
        bools: Tensor = sdpa_mask(
            batch_size=batch_size,
            q_length=q_length,
            kv_length=kv_length,
            q_offset=q_offset,
            kv_offset=kv_offset,
            mask_function=function,
            attention_mask=attention_mask,
            allow_is_causal_skip=False,
            allow_is_bidirectional_skip=False,
            use_vmap=use_vmap,
            device=device,
        )
        return bools
    if attention_mask is not None:
        found = _with_padding(found, _seen(attention_mask.bool(), view))
    start = view.query_start - view.key_start
    return MaskTensor(Held(found, start, (batch_size, q_length, kv_length), torch.device(device)))


def _seen(padding: Tensor, view: View) -> Tensor:
    """The keys' part of a padding mask; keys past its end, which a static cache has, are hidden."""
    part = view.key_part(padding)
    return torch.nn.functional.pad(part, (0, view.keys - part.shape[1]))


def _with_padding(found: Mask, seen: Tensor) -> Mask:
    """Rows that see one stretch of keys need its two ends only; any other padding is one bool for each key."""
    keys = seen.shape[1]
    counts = seen.sum(1)
    if bool((counts == keys).all()):
        return found
    first = torch.where(counts > 0, seen.int().argmax(1), 0)
    stop = first + counts
    places = torch.arange(keys, device=seen.device)
    if not torch.equal(seen, (places >= first.unsqueeze(1)) & (places < stop.unsqueeze(1))):
        return _joined(found, Dense(seen[:, None, None, :]))
    if bool((stop < keys).any()):
        found = _joined(found, Lengths(stop))
    if bool((first > 0).any()):
        found = _joined(found, ~Prefix(first))
    return found


def _joined(left: Mask, right: Mask) -> Mask:
    return right if isinstance(left, Full) else left & right
