"""intervene: a block in which a model's attention is changed."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from types import TracebackType
from typing import Self

import torch
from torch import nn

from regard.inspection.hooks.call import ModuleNames
from regard.inspection.hooks.intercept import accelerated, intercepting
from regard.inspection.hooks.missed import Watch, listed, warn
from regard.inspection.hooks.modified_call import Modification, ModifiedCall
from regard.inspection.hooks.selection import Heads, Layers, LayerSelection, matches
from regard.inspection.interventions.base import Change, DroppedKeys, Site

NOTHING = (
    "{} made no call of attention that can be changed: scaled_dot_product_attention, nn.MultiheadAttention, the "
    "attention interface of transformers, or regard's attend"
)
PARTLY = "{} ran attention that is not intercepted, and so not changed: {}"


class Intervention:
    """A block in which the attention of some heads is changed; `layers` names those it has changed so far."""

    def __init__(
        self, model: nn.Module, changes: tuple[Change, ...], selection: LayerSelection, watch: Watch | None = None
    ) -> None:
        self._model, self._changes, self._selection = type(model).__name__, changes, selection
        self._names, self._dropped, self._block = ModuleNames(model), DroppedKeys(), ExitStack()
        self._seen: list[str] = []  # layers that ran
        self._changed: dict[str, int] = {}  # how often each was changed
        self._reach = 0  # number of key positions so far
        self._watch = watch
        self._begin: Callable[[], AbstractContextManager[None]] | None = partial(
            intercepting, model, watch=watch, modify=self._modify
        )

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers that were changed, in the order in which they ran."""
        return tuple(self._changed)

    def __enter__(self) -> Self:
        if self._begin is None:
            raise RuntimeError("this intervention is done; begin another with intervene(model, ...)")
        if accelerated():
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
        watch, self._watch = self._watch, None
        self._names, self._dropped = ModuleNames(nn.Identity()), DroppedKeys()
        if kind is not None:
            return
        check_layers(self._model, self._seen, self._selection, watch)
        for change in self._changes:
            change.check(self._reach)

    def __repr__(self) -> str:
        changes = ", ".join(map(repr, self._changes))
        count = sum(self._changed.values())
        return f"<Intervention in {self._model}: {changes}; {count} {'call' if count == 1 else 'calls'} changed>"

    def _modify(self) -> Modification | None:
        running = self._names.running()
        if running is None:
            return None
        if running.path not in self._seen:
            self._seen.append(running.path)
        if not self._selection.selects(self._seen.index(running.path), running.path):
            return None
        return Modification(running.path, partial(self._apply, running.path))

    def _apply(self, layer: str, modified: ModifiedCall) -> ModifiedCall:
        count, chosen = len(modified.heads), self._selection.heads
        heads = torch.full((count,), chosen is None, dtype=torch.bool, device="cpu")
        for head in chosen or ():
            if not -count <= head < count:
                raise ValueError(f"it has {count} heads, 0 to {count - 1}, and no head {head}")
            heads[head] = True
        first = self._dropped.first(layer, modified.original) if any(change.absolute for change in self._changes) else 0
        self._reach = max(self._reach, first + modified.keys)
        for change in self._changes:
            modified = change.applied(modified, Site(layer, heads, first))
        self._changed[layer] = self._changed.get(layer, 0) + 1
        return modified


def intervene(model: nn.Module, *changes: Change, layers: Layers = None, heads: Heads = None) -> Intervention:
    """A block in which the attention of the chosen layers and heads is changed, one change after the other.

    `layers` are numbers, names or patterns of names, as in `capture(model, ...).layers`; `heads` are numbers; by
    default all. Heads that are not chosen, and the model after the block, stay as they are. Attention of the chosen
    layers that is not intercepted, and so not changed, is warned of at the end of the block.

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
    names = ModuleNames(model)
    if names.compiled is not None:
        raise ValueError(
            f"{names.compiled} is compiled, which leaves no call of attention to change; intervene in the model as it "
            "was before torch.compile (its _orig_mod)"
        )
    return Intervention(model, changes, selected(model, layers, heads), Watch(model, "intervention"))


def selected(model: nn.Module, layers: Layers, heads: Heads) -> LayerSelection:
    """The arguments of `intervene`, checked as far as possible before the model runs."""
    selection = LayerSelection.of(layers, heads, "changed")
    paths = ModuleNames(model).paths
    for layer in selection.layers or ():
        if isinstance(layer, str) and not any(matches(layer, 0, path) for path in paths):
            raise ValueError(
                f"no module of {type(model).__name__} is {layer!r}; regard.capture(model, ...).layers has the names"
            )
    return selection


def check_layers(model: str, ran: Sequence[str], selection: LayerSelection, watch: Watch | None) -> None:
    """Raise if no layer ran, or one that the selection names did not; warn of attention that was not intercepted."""
    missed = [each for each in watch.missed if selection.may_select(each.layer)] if watch is not None else []
    if not ran:
        raise ValueError(NOTHING.format(model) + (f". Not intercepted: {listed(missed)}" if missed else ""))
    if missed:
        warn(PARTLY.format(model, listed(missed)))
    selection.check(list(ran))
