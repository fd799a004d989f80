"""Part: the small frozen value that every piece of a spec is."""

from dataclasses import MISSING, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard.cached import cached_property


class Part:
    """A frozen value that prints itself; equality by content, hash by identity.

    Subclasses are `@dataclass(frozen=True, eq=False, repr=False)`. One without the decorator holds what its `__init__`
    sets.
    """

    definitions: ClassVar[tuple[str, ...]] = ()  # methods that say what a part of this kind computes
    derived: ClassVar[tuple[str, ...]] = ()  # methods that say how; they must follow from the definition

    def __init_subclass__(cls) -> None:
        """A class with a definition of its own does not inherit what was derived from another: engines would disagree.

        It gets the defaults of its kind (Mask, Score, …) for whatever it does not define itself.
        """
        super().__init_subclass__()
        if "definitions" in vars(cls) or not any(name in vars(cls) for name in cls.definitions):
            return
        kind = next(one for one in cls.__mro__ if "definitions" in vars(one))
        for name in cls.derived:
            if name not in vars(cls):
                setattr(cls, name, vars(kind)[name])

    @property
    def held(self) -> dict[str, Any]:
        """What it is made of, by name: the fields of a dataclass, and attributes that an `__init__` of its own sets."""
        kind = type(self)
        made = hasattr(kind, "__dataclass_fields__")
        names = [field.name for field in fields(kind)] if made else []  # type: ignore[arg-type]
        if "__dataclass_fields__" not in kind.__dict__:
            named = {*names, *(name for one in kind.__mro__ for name in vars(one))}  # of a class: cached properties
            names += [name for name in vars(self) if name not in named]
        return {name: getattr(self, name) for name in names}

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        own, others = self.held, other.held
        return own.keys() == others.keys() and all(_same(value, others[name]) for name, value in own.items())

    __hash__ = object.__hash__

    @cached_property
    def contents(self) -> tuple[Any, ...] | None:
        """The type and contents as a key, if all of it is numbers and parts of numbers: such a part never changes."""
        made = type(self).__dict__.get("__dataclass_params__")
        if made is None or not made.frozen:
            return None  # it may change
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
        known, shown = getattr(self, "__dataclass_fields__", {}), []
        for name, value in self.held.items():
            if name not in known:
                shown.append(f"{name}={_text(value)}")
            elif known[name].default is MISSING:
                shown.append(_text(value))
            elif not _same(value, known[name].default):
                shown.append(f"{name}={_text(value)}")
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
