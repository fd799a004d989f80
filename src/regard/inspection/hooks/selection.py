"""LayerSelection: the layers and heads of a model that a capture keeps or an intervention changes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from torch import Tensor

from regard import checks

Layers = int | str | Iterable[int | str] | None
Heads = int | Iterable[int] | None


@dataclass(frozen=True)
class LayerSelection:
    """Indices, names and patterns of layers, and indices of heads; None selects all. Layers are counted by modules, in
    the order of their first calls."""

    layers: tuple[int | str, ...] | None = None
    heads: tuple[int, ...] | None = None

    @classmethod
    def of(cls, layers: Layers, heads: Heads, action: str, hint: str = "") -> "LayerSelection":
        """The arguments, checked. Errors say what is not done, `action`, and end with `hint`."""
        return cls(
            None if layers is None else tuple(map(_layer, _listed("layers", layers, action, hint))),
            None
            if heads is None
            else tuple(checks.whole("a head", head) for head in _listed("heads", heads, action, hint)),
        )

    def selects(self, index: int, path: str) -> bool:
        """Whether the layer is selected."""
        return self.layers is None or any(matches(layer, index, path) for layer in self.layers)

    def may_select(self, path: str) -> bool:
        """Whether a module that was not intercepted, and so has no index, may be selected."""
        return self.layers is None or any(isinstance(layer, int) or matches(layer, -1, path) for layer in self.layers)

    def check(self, paths: Sequence[str]) -> None:
        """Refuse a selection that matches none of the layers that ran."""
        for layer in self.layers or ():
            if not any(matches(layer, index, path) for index, path in enumerate(paths)):
                what = f"layer {layer}" if isinstance(layer, int) else repr(layer)
                raise ValueError(f"layers: {what} made no call of attention; those that did are {', '.join(paths)}")


def matches(layer: int | str, index: int, path: str) -> bool:
    """Whether an index, a name or a pattern is that of a layer."""
    return layer == index if isinstance(layer, int) else path == layer or fnmatchcase(path, layer)


def _listed(name: str, value: object, action: str, hint: str) -> list[object]:
    if isinstance(value, int | str):
        return [value]
    if isinstance(value, Tensor) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a number or a sequence of them, got {type(value).__name__}{hint}")
    entries = list(value)
    if not entries:
        raise ValueError(f"{name} is empty: nothing would be {action}; leave it out for all")
    return entries


def _layer(layer: object) -> int | str:
    if isinstance(layer, str):
        return layer
    if isinstance(layer, bool) or not isinstance(layer, int):
        raise TypeError(f"layers must be numbers, names or patterns such as '*.self_attn', got {type(layer).__name__}")
    if layer < 0:
        raise ValueError(f"layers count from 0, got {layer}; how many there are is not known before the model ran")
    return layer
