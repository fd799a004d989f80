"""Choice: which layers and heads of a model are kept, and in what type their queries and keys are stored."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from regard import checks
from regard.inspection.capture.heads import Chosen, chosen
from regard.inspection.hooks.call import Call

Layers = int | str | Sequence[int | str] | None
Heads = int | Sequence[int] | None


@dataclass(frozen=True)
class Choice:
    """Numbers, names and patterns of layers, numbers of heads, and a type; None is all of them, and as they are."""

    layers: tuple[int | str, ...] | None = None
    heads: tuple[int, ...] | None = None
    dtype: torch.dtype | None = None

    @classmethod
    def of(cls, layers: Layers, heads: Heads, dtype: torch.dtype | None) -> "Choice":
        """The arguments of `capture`, checked."""
        if dtype is not None and dtype not in checks.FLOATS:
            raise TypeError(f"dtype must be one of torch's float types, such as torch.bfloat16, got {dtype!r}")
        return cls(
            None if layers is None else tuple(map(_layer, _listed("layers", layers))),
            None if heads is None else tuple(sorted({_number("heads", head) for head in _listed("heads", heads)})),
            dtype,
        )

    def wants(self, number: int, path: str) -> bool:
        """Whether the module that is the `number`th to run, and has this path, is kept."""
        return self.layers is None or any(_matches(asked, number, path) for asked in self.layers)

    def may_want(self, path: str) -> bool:
        """Whether a module that was not heard, and so has no number, may be meant."""
        return self.layers is None or any(isinstance(asked, int) or _matches(asked, -1, path) for asked in self.layers)

    def check(self, paths: Sequence[str]) -> None:
        """Refuse what matches none of the modules that ran."""
        for asked in self.layers or ():
            if not any(_matches(asked, number, path) for number, path in enumerate(paths)):
                what = f"number {asked}" if isinstance(asked, int) else f"{asked!r}"
                raise ValueError(f"layers: none that ran is {what}; there are {', '.join(paths)}")

    def taken(self, call: Call) -> Chosen:
        """The part of a call that is kept, still on the model's tensors."""
        found = chosen(call, self.heads)
        if self.dtype is None:
            return found
        query, key = (tensor.to(self.dtype) for tensor in (found.call.query, found.call.key))
        return found._replace(call=replace(found.call, query=query, key=key))

    def rounds(self, tensor: Tensor) -> bool:
        """Whether storing it loses digits."""
        return self.dtype is not None and torch.promote_types(self.dtype, tensor.dtype) != self.dtype


def _matches(asked: int | str, number: int, path: str) -> bool:
    return asked == number if isinstance(asked, int) else path == asked or fnmatchcase(path, asked)


def _listed(name: str, value: object) -> list[object]:
    if isinstance(value, int | str):
        return [value]
    if isinstance(value, Tensor) or not hasattr(value, "__iter__"):
        raise TypeError(
            f"{name} must be a number or a sequence of them, got {type(value).__name__}; if the model takes an "
            f"argument of this name, write: with capture(model) as c: model({name}=...)"
        )
    found = list(value)
    if not found:
        raise ValueError(f"{name} is empty: nothing would be kept; leave it out for all")
    return found


def _layer(asked: object) -> int | str:
    return asked if isinstance(asked, str) else _number("layers", asked)


def _number(name: str, asked: object) -> int:
    if isinstance(asked, bool) or not isinstance(asked, int):
        kinds = "numbers, names or patterns such as '*.self_attn'" if name == "layers" else "numbers"
        raise TypeError(f"{name} must be {kinds}, got {type(asked).__name__}")
    if asked < 0:
        raise ValueError(f"{name} count from 0, got {asked}; how many there are is not known before the model ran")
    return asked
