"""register: both halves under the name "regard" in transformers' registries; unregister takes them out again.

transformers accepts any registered name for any model. Some then fail while they are built, others run their own code
and never call regard. While regard is registered, models are therefore checked when they choose an implementation,
after they are built, and when they change it; one whose attention does not use the interface is refused by name.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial, wraps
from typing import Any, Literal

from torch import nn

from regard.hf.attention import attention
from regard.hf.masks import known, mask
from regard.hf.source import Kind, kind, tables

NAME = "regard"
ATTENTIONS = ("dense", "matrix")
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
            "regard.hf needs transformers 5.22 or later, with its AttentionInterface and AttentionMaskInterface; "
            "pip install transformers"
        ) from error
    return AttentionInterface, AttentionMaskInterface, PreTrainedModel


def refuse_class(model: type) -> None:
    """Refuse a model that picks its attention from a table of its own, before it is built."""
    own = tables(model)
    if own:
        raise ValueError(_message(model, f"it picks its attention from {own[0]}, which holds no {NAME!r}"))


def refuse_bypass(model: nn.Module) -> None:
    """Refuse a built model with attention that does not ask the interface; models inside it are checked by
    themselves."""
    modules = list(_own(model))
    for refused, why in REASONS.items():
        for module in modules:
            # a module that is attention by name may be the shell of a layer that uses the interface
            inner = module.modules() if refused is Kind.NAMED else ()
            if kind(module) is refused and not any(kind(each) is Kind.SERVES for each in inner):
                raise ValueError(_message(type(model), why.format(type(module).__name__)))


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
            refuse_bypass(self)

    return build


def _changing(original: Callable[..., None]) -> Callable[..., None]:
    """A model that cannot change only warns, so all are checked before any is changed."""

    @wraps(original)
    def change(self: Any, attn_implementation: str | dict[str, Any], *args: Any, **kwargs: Any) -> None:
        from transformers import PreTrainedModel

        models: list[Any] = [module for module in self.modules() if isinstance(module, PreTrainedModel)]
        if attn_implementation == NAME:
            _refuse_any(models)
        before = [model.config._attn_implementation for model in models]
        original(self, attn_implementation, *args, **kwargs)
        try:
            _refuse_any(model for model in models if model.config._attn_implementation == NAME)
        except ValueError:
            for model, implementation in zip(models, before, strict=True):
                model.config._attn_implementation_internal = implementation
            raise

    return change


def _refuse_any(models: Iterable[nn.Module]) -> None:
    for model in models:
        refuse_class(type(model))
        refuse_bypass(model)


def _own(model: nn.Module) -> Iterator[nn.Module]:
    """The model's modules without those of models inside it."""
    from transformers import PreTrainedModel

    for child in model.children():
        if not isinstance(child, PreTrainedModel):
            yield child
            yield from _own(child)


def _message(model: type, why: str) -> str:
    return (
        f"{model.__name__} cannot run with attn_implementation={NAME!r}: {why}; load it with "
        "attn_implementation='eager', or, as a part of a larger model, name the parts: "
        f"attn_implementation={{'text_config': {NAME!r}, 'vision_config': 'eager'}}"
    )
