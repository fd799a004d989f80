"""register: both halves under the name "regard" in transformers' registries; unregister takes them out again."""

from functools import partial
from typing import Any, Literal

from regard.hf import guard
from regard.hf.attention import attention
from regard.hf.masks import mask
from regard.hf.patterns import known

ATTENTIONS = ("dense", "matrix")


def register(*, attentions: Literal["dense", "matrix"] = "dense") -> None:
    """Make `attn_implementation="regard"` valid in transformers.

    `attentions` is what a model gives when it is called with `output_attentions=True`: "dense" tensors as from eager
    attention, or a "matrix", an `AttentionMatrix` for each layer, which builds no queries × keys. Registering again
    changes the choice, for models that exist as well.

    >>> register()
    >>> from transformers import BertConfig, BertModel
    >>> config = BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    >>> model = BertModel._from_config(config, attn_implementation="regard")
    """
    if attentions not in ATTENTIONS:
        raise ValueError(f"attentions must be 'dense' or 'matrix', got {attentions!r}")
    functions, masks = _registries()
    functions.register(guard.NAME, partial(attention, attentions=attentions))
    masks.register(guard.NAME, partial(mask, table=known()))
    guard.watch()


def unregister() -> None:
    """Take "regard" out of transformers; models that were set to it no longer run. Nothing happens if it is not in."""
    functions, masks = _registries()
    functions._global_mapping.pop(guard.NAME, None)
    masks._global_mapping.pop(guard.NAME, None)
    guard.unwatch()


def _registries() -> tuple[Any, Any]:
    """transformers' attention functions and mask functions."""
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
    except ImportError as error:
        raise ImportError(
            "regard.hf needs transformers 5.22 or later, with its AttentionInterface and AttentionMaskInterface; "
            "pip install transformers"
        ) from error
    return AttentionInterface, AttentionMaskInterface
