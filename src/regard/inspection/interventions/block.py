"""intervene: a block in which a model's attention is changed."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from types import TracebackType
from typing import Self

from torch import nn
from torch.overrides import _get_current_function_mode_stack

from regard.engine.sdpa_override.override import SdpaOverride
from regard.inspection.hooks.altered import Wanted
from regard.inspection.hooks.draft import Draft
from regard.inspection.hooks.names import Names
from regard.inspection.hooks.taps import altering
from regard.inspection.interventions.change import Change, Site
from regard.inspection.interventions.choice import Choice, Heads, Layers
from regard.inspection.interventions.places import Track

NOTHING = (
    "{} made no call of attention that can be changed: scaled_dot_product_attention, nn.MultiheadAttention, the "
    "attention interface of transformers, or regard's attend"
)


class Intervention:
    """A block in which the attention of some heads is changed; `layers` names those it has changed so far."""

    def __init__(self, model: nn.Module, changes: tuple[Change, ...], choice: Choice) -> None:
        self._model, self._changes, self._choice = type(model).__name__, changes, choice
        self._names, self._track, self._block = Names(model), Track(), ExitStack()
        self._seen: list[str] = []  # layers that ran
        self._changed: dict[str, int] = {}  # how often each was changed
        self._reach = 0  # positions of keys that were met
        self._begin: Callable[[], AbstractContextManager[None]] | None = partial(altering, model, self._alter)

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers that were changed, in the order in which they ran."""
        return tuple(self._changed)

    def __enter__(self) -> Self:
        if self._begin is None:
            raise RuntimeError("this intervention is done; begin another with intervene(model, ...)")
        if any(isinstance(mode, SdpaOverride) for mode in _get_current_function_mode_stack()):
            raise RuntimeError(
                "regard.accelerating() answers calls of attention before they can be changed; intervene outside of it"
            )
        self._block.enter_context(self._begin())
        self._begin = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._block.close()
        self._names, self._track = Names(nn.Identity()), Track()
        if kind is not None:
            return
        if not self._seen:
            raise ValueError(NOTHING.format(self._model))
        self._choice.check(self._seen)
        for change in self._changes:
            change.check(self._reach)

    def __repr__(self) -> str:
        changes = ", ".join(map(repr, self._changes))
        count = sum(self._changed.values())
        return f"<Intervention in {self._model}: {changes}; {count} {'call' if count == 1 else 'calls'} changed>"

    def _alter(self) -> Wanted | None:
        place = self._names.running()
        if place is None:
            return None
        if place.path not in self._seen:
            self._seen.append(place.path)
        if not self._choice.wants(self._seen.index(place.path), place.path):
            return None
        return Wanted(place.path, partial(self._step, place.path))

    def _step(self, layer: str, draft: Draft) -> Draft:
        heads = self._choice.mask(len(draft.heads))
        first = self._track.first(layer, draft.original) if any(change.absolute for change in self._changes) else 0
        self._reach = max(self._reach, first + draft.keys)
        for change in self._changes:
            draft = change.applied(draft, Site(layer, heads, first))
        self._changed[layer] = self._changed.get(layer, 0) + 1
        return draft


def intervene(model: nn.Module, *changes: Change, layers: Layers = None, heads: Heads = None) -> Intervention:
    """A block in which the attention of the chosen layers and heads is changed, one change after the other.

    `layers` are numbers, names or patterns of names, as in `capture(model, ...).layers`; `heads` are numbers; by
    default all. Heads that are not chosen, and the model after the block, stay as they are.

    >>> import torch
    >>> from regard.inspection.interventions import Ablate, intervene
    >>> layer = torch.nn.TransformerEncoderLayer(16, 2, batch_first=True)
    >>> model = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    >>> with intervene(model, Ablate(), layers=[0, 2], heads=1) as changed:
    ...     out = model(torch.randn(1, 10, 16))
    >>> changed.layers
    ('layers.0.self_attn', 'layers.2.self_attn')
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if not changes:
        raise TypeError("intervene needs a change, such as interventions.Ablate()")
    for change in changes:
        if isinstance(change, type) and issubclass(change, Change):
            raise TypeError(f"a change is a value, got the class {change.__name__}; make one: {change.__name__}(...)")
        if not isinstance(change, Change):
            raise TypeError(f"a change is one of regard.interventions, got {type(change).__name__}")
    names = Names(model)
    if names.compiled is not None:
        raise ValueError(
            f"{names.compiled} is compiled, which leaves no call of attention to change; intervene in the model as it "
            "was before torch.compile (its _orig_mod)"
        )
    return Intervention(model, changes, Choice.of(model, layers, heads))
