"""A model that goes past transformers' attention interface is refused by name, never served by accident.

transformers accepts any registered name for any model; some then fail in the middle of being built, others run their
own code and never call. While regard is registered, models are looked at where they choose an implementation, after
they are built, and when they change it.
"""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

from torch import nn

from regard.hf.source import Kind, kind, tables

NAME = "regard"
REASONS = {
    Kind.BYPASSES: "{} computes attention itself and never asks transformers' attention interface",
    Kind.NAMED: "{} never asks transformers' attention interface",
    Kind.HIDDEN: "the source of {} cannot be read, so nobody knows whether it asks for regard",
}
_originals: dict[str, Callable[..., Any]] = {}


def refuse_class(model: type) -> None:
    """Refuse a model that picks its attention from a table of its own, before it is built."""
    found = tables(model)
    if found:
        raise ValueError(_message(model, f"it picks its attention from {found[0]}, which holds no {NAME!r}"))


def refuse_bypass(model: nn.Module) -> None:
    """Refuse a built model with attention that does not ask the interface; models inside it are looked at by
    themselves."""
    modules = list(_own(model))
    for found, why in REASONS.items():
        for module in modules:
            if kind(module) is found and not (found is Kind.NAMED and _serves(module)):
                raise ValueError(_message(type(model), why.format(type(module).__name__)))


def watch() -> None:
    """Look at every model that chooses regard from now on."""
    from transformers import PreTrainedModel

    for name, wrap in (
        ("get_correct_attn_implementation", _choosing),
        ("post_init", _built),
        ("set_attn_implementation", _changing),
    ):
        if name not in _originals:
            _originals[name] = getattr(PreTrainedModel, name)
            setattr(PreTrainedModel, name, wrap(_originals[name]))


def unwatch() -> None:
    """Leave transformers as it was."""
    from transformers import PreTrainedModel

    while _originals:
        setattr(PreTrainedModel, *_originals.popitem())


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
    """A model that cannot change only warns, so all are looked at before any is changed."""

    @wraps(original)
    def change(self: Any, attn_implementation: str | dict[str, Any], *args: Any, **kwargs: Any) -> None:
        models = list(_models(self))
        if attn_implementation == NAME:
            for model in models:
                refuse_class(type(model))
                refuse_bypass(model)
        before = [model.config._attn_implementation for model in models]
        original(self, attn_implementation, *args, **kwargs)
        try:
            for model in models:
                if model.config._attn_implementation == NAME:
                    refuse_class(type(model))
                    refuse_bypass(model)
        except ValueError:
            for model, implementation in zip(models, before, strict=True):
                model.config._attn_implementation_internal = implementation
            raise

    return change


def _serves(module: nn.Module) -> bool:
    """Whether it is the shell of a layer that asks."""
    return any(kind(inner) is Kind.SERVES for inner in module.modules())


def _models(model: nn.Module) -> Iterator[Any]:
    from transformers import PreTrainedModel

    return (module for module in model.modules() if isinstance(module, PreTrainedModel))


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
