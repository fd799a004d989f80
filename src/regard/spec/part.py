"""Part: the small frozen value that every piece of a spec is."""

from dataclasses import MISSING, fields
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


class Part:
    """A frozen value that prints itself; equality by content, hash by identity.

    Subclasses are `@dataclass(frozen=True, eq=False, repr=False)`.
    """

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(_same(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))  # type: ignore[arg-type]

    __hash__ = object.__hash__

    @cached_property
    def contents(self) -> tuple[Any, ...] | None:
        """The type and contents as a key, if all of it is numbers and parts of numbers: such a part never changes."""
        found: list[Any] = [type(self)]
        for name in self.__dataclass_fields__:  # type: ignore[attr-defined]
            value = getattr(self, name)
            if isinstance(value, Part):
                value = value.contents
                if value is None:
                    return None
            elif value is not None and not isinstance(value, (int, float, str)):
                return None
            found.append(value)
        return tuple(found)

    def __repr__(self) -> str:
        shown = []
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.default is not MISSING and _same(value, field.default):
                continue
            required = field.default is MISSING
            shown.append(_text(value) if required else f"{field.name}={_text(value)}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        return left.dtype == right.dtype and left.device == right.device and torch.equal(left, right)
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, Tensor) or isinstance(right, Tensor):
        return False
    return bool(left == right)


def _text(value: Any) -> str:
    if isinstance(value, Tensor):
        if value.numel() <= 8 and value.ndim <= 1:
            return str(value.tolist())
        return f"<{'×'.join(map(str, value.shape))} {str(value.dtype).removeprefix('torch.')}>"
    if callable(value) and hasattr(value, "__name__"):
        return str(value.__name__)
    return repr(value)
