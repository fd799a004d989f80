"""Choice: which layers and heads of a model are changed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from regard import checks
from regard.inspection.hooks.names import Names

Layers = int | str | Iterable[int | str] | None
Heads = int | Iterable[int] | None


@dataclass(frozen=True)
class Choice:
    """Numbers, names and patterns of layers, and numbers of heads; None is all of them. Layers are counted by modules,
    in the order of their first calls."""

    layers: tuple[int | str, ...] | None
    heads: tuple[int, ...] | None

    @classmethod
    def of(cls, model: nn.Module, layers: Layers, heads: Heads) -> "Choice":
        """The arguments of `intervene`, checked as far as can be before the model has run."""
        found = cls(_layers(layers), _heads(heads))
        paths = Names(model).paths
        for asked in found.layers or ():
            if isinstance(asked, int) and asked < 0:
                raise ValueError(
                    f"layers are counted from 0, got {asked}; how many there are is not known before the model has run"
                )
            if isinstance(asked, str) and not any(_matches(asked, 0, path) for path in paths):
                raise ValueError(
                    f"no module of {type(model).__name__} is {asked!r}; regard.capture(model, ...).layers has the names"
                )
        return found

    def wants(self, number: int, path: str) -> bool:
        """Whether the layer is chosen."""
        return self.layers is None or any(_matches(asked, number, path) for asked in self.layers)

    def mask(self, count: int) -> Tensor:
        """A bool for each head of a layer."""
        if self.heads is None:
            return torch.ones(count, dtype=torch.bool, device="cpu")
        found = torch.zeros(count, dtype=torch.bool, device="cpu")
        for head in self.heads:
            if not -count <= head < count:
                raise ValueError(f"it has {count} heads, 0 to {count - 1}, and no head {head}")
            found[head] = True
        return found

    def check(self, paths: Sequence[str]) -> None:
        """Refuse what matches none of the layers that ran."""
        for asked in self.layers or ():
            if not any(_matches(asked, number, path) for number, path in enumerate(paths)):
                what = f"layer {asked}" if isinstance(asked, int) else repr(asked)
                raise ValueError(f"{what} made no call of attention; those that did are {', '.join(paths)}")


def _matches(asked: int | str, number: int, path: str) -> bool:
    return asked == number if isinstance(asked, int) else path == asked or fnmatchcase(path, asked)


def _layers(given: Layers) -> tuple[int | str, ...] | None:
    if given is None:
        return None
    listed = [given] if isinstance(given, int | str) else list(given)
    for one in _some("layers", listed):
        if isinstance(one, bool) or not isinstance(one, int | str):
            kind = type(one).__name__
            raise TypeError(f"layers must be numbers, names or patterns such as '*.self_attn', got {kind}")
    return tuple(listed)


def _heads(given: Heads) -> tuple[int, ...] | None:
    if given is None:
        return None
    listed = [given] if isinstance(given, int) else list(given)
    return tuple(checks.whole("a head", one) for one in _some("heads", listed))


def _some(name: str, listed: list[Any]) -> list[Any]:
    if not listed:
        raise ValueError(f"{name} is empty: nothing would be changed; leave it out for all")
    return listed
