"""register: both halves under the name "regard" in transformers' registries; unregister takes them out again.

transformers accepts any registered name for any model. Some then fail while they are built, others run their own code
and never call regard. While regard is registered, models are therefore checked when they choose an implementation,
after they are built, and when they change it; one whose attention does not use the interface is refused by name. One
with layers of both kinds is served where it asks, and a warning names the layers that keep their own attention.
"""

import warnings
from collections.abc import Callable, Iterator
from functools import partial, wraps
from typing import Any, Literal

from torch import nn

from regard.hf.attention import attention
from regard.hf.masks import known, mask
from regard.hf.source import Kind, kind, tables

NAME = "regard"
ATTENTIONS = ("dense", "matrix")
NAMED = 3  # layers that a warning names of each model
REASONS = {
    Kind.BYPASSES: "{} computes attention itself and never asks transformers' attention interface",
    Kind.NAMED: "{} never asks transformers' attention interface",
    Kind.HIDDEN: "the source of {} cannot be read, so nobody knows whether it asks for regard",
}
_originals: dict[str, Callable[..., Any]] = {}  # methods of PreTrainedModel that are wrapped


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
    functions, masks, models = _registries()
    functions.register(NAME, partial(attention, attentions=attentions))
    masks.register(NAME, partial(mask, table=known()))
    for name, wrap in (
        ("get_correct_attn_implementation", _choosing),
        ("post_init", _built),
        ("set_attn_implementation", _changing),
    ):
        if name not in _originals:
            _originals[name] = getattr(models, name)
            setattr(models, name, wrap(_originals[name]))


def unregister() -> None:
    """Take "regard" out of transformers; models that were set to it no longer run. Nothing happens if it is not in."""
    functions, masks, models = _registries()
    functions._global_mapping.pop(NAME, None)
    masks._global_mapping.pop(NAME, None)
    while _originals:
        setattr(models, *_originals.popitem())


def _registries() -> tuple[Any, Any, Any]:
    """transformers' attention functions, its mask functions and the class of its models."""
    try:
        from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
    except ImportError as error:
        raise ImportError(
            "regard.hf needs transformers 5.20 or later, with its AttentionInterface and AttentionMaskInterface; "
            "pip install transformers"
        ) from error
    return AttentionInterface, AttentionMaskInterface, PreTrainedModel


def refuse_class(model: type) -> None:
    """Refuse a model that picks its attention from a table of its own, before it is built."""
    own = tables(model)
    if own:
        raise ValueError(_message(model, f"it picks its attention from {own[0]}, which holds no {NAME!r}"))


def bypassing(model: nn.Module) -> list[str]:
    """Layers of a built model that compute attention themselves, as "name (class)"; models inside it are checked by
    themselves. Refused is a model that has only such layers, or whose own layers may misread regard's masks.

    These are bools, as those of sdpa. A layer that adds a mask of floats would add them in silence; a model's
    `_supports_sdpa` says that its layers take bools.
    """
    asks, reads = any(map(_asks, model.modules())), getattr(model, "_supports_sdpa", False)
    found = []
    for refused, why in REASONS.items():
        for name, module in _own(model):
            # a module that is attention by name may be the shell of a layer that uses the interface
            shell = refused is Kind.NAMED and any(map(_asks, module.modules()))
            if kind(module) is not refused or shell:
                continue
            if not (asks and reads):
                unread = ", and its model supports no bool masks (_supports_sdpa)" if asks else ""
                raise ValueError(_message(type(model), why.format(type(module).__name__) + unread))
            found.append(f"{name} ({type(module).__name__})")
    return found


def _asks(module: nn.Module) -> bool:
    return kind(module) is Kind.SERVES


def _check(*models: nn.Module, announce: bool = True) -> None:
    """Refuse what cannot be served; one warning names all layers that keep the attention they have."""
    left = []
    for model in models:
        refuse_class(type(model))
        if names := bypassing(model):
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            left.append(f"{', '.join(names[:NAMED])}{more} of {type(model).__name__}")
    if left and announce:
        warnings.warn(
            "regard serves the layers that ask transformers' attention interface; those that do not ask are left to "
            f"torch: {'; '.join(left)}",
            stacklevel=3,
        )


def _choosing(original: Callable[..., str]) -> Callable[..., str]:
    @wraps(original)
    def choose(self: Any, requested_attention: str | None, *args: Any, **kwargs: Any) -> str:
        if requested_attention == NAME:
            refuse_class(type(self))
        return original(self, requested_attention, *args, **kwargs)

    return choose


def _built(original: Callable[..., None]) -> Callable[..., None]:
    @wraps(original)
    def build(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if self.config._attn_implementation == NAME:
            _check(self)

    return build


def _changing(original: Callable[..., None]) -> Callable[..., None]:
    """A model that cannot change only warns, so all are checked before any is changed."""

    @wraps(original)
    def change(self: Any, attn_implementation: str | dict[str, Any], *args: Any, **kwargs: Any) -> None:
        from transformers import PreTrainedModel

        models: list[Any] = [module for module in self.modules() if isinstance(module, PreTrainedModel)]
        if attn_implementation == NAME:
            _check(*models, announce=False)
        before = [model.config._attn_implementation for model in models]
        original(self, attn_implementation, *args, **kwargs)
        try:
            _check(*(model for model in models if model.config._attn_implementation == NAME))
        except ValueError:
            for model, implementation in zip(models, before, strict=True):
                model.config._attn_implementation_internal = implementation
            raise

    return change


def _own(model: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The model's modules, with their names, without those of models inside it."""
    from transformers import PreTrainedModel

    for name, child in model.named_children():
        if not isinstance(child, PreTrainedModel):
            yield path + name, child
            yield from _own(child, f"{path}{name}.")


def _message(model: type, why: str) -> str:
    return (
        f"{model.__name__} cannot run with attn_implementation={NAME!r}: {why}; load it with "
        "attn_implementation='eager', or, as a part of a larger model, name the parts: "
        f"attn_implementation={{'text_config': {NAME!r}, 'vision_config': 'eager'}}"
    )
