"""Part: the small frozen value that every piece of a spec is."""

import copy
import inspect
import operator
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from regard.arrays import tensor_of
from regard.cached import cached_property
from regard.spec.plane import Axes, CannotSliceError, Selection


class Part:
    """A frozen value that prints itself; equality by content, hash by identity.

    Subclasses are `@dataclass(frozen=True, eq=False, repr=False)`. One without the decorator holds what its `__init__`
    sets.
    """

    family: ClassVar[str] = ""  # scores, masks, biases, normalizers or dropout
    registered: ClassVar[Any] = None  # its name in files and its class, once `register` was called
    title: ClassVar[str] = ""  # what `explain` calls it
    symbols: ClassVar[tuple[str, str] | None] = None  # its formula for `explain`, as text and LaTeX; None: by its steps
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
                setattr(cls, name, inspect.getattr_static(kind, name))

    def _keep_tensors(self, *names: str) -> None:
        """For `__post_init__`: copies of NumPy arrays and of objects with DLPack as tensors, in their place."""
        for name in names:
            value = getattr(self, name)
            if value is not None and not isinstance(value, (Tensor, float)):
                object.__setattr__(self, name, tensor_of(f"{type(self).__name__}'s {name}", value, copy=True))

    #: names of the last axes of each tensor that it holds: "batch", "head", "kv head", "query", "key", or None for an
    #: axis that no selection slices. Without a declaration a part may depend on batch rows and heads in any way.
    axes: ClassVar[Mapping[str, Axes] | None] = None

    def sliced(self, selection: Selection) -> Self:
        """The same part for some batch rows, heads, rows and columns of the call; CannotSliceError if there is none.

        Positions are absolute, so rows and columns change only what is stored by row or by column.
        """
        return self._sliced(selection, self.axes)

    @property
    def same_for_all(self) -> bool:
        """Whether it certainly is the same for every batch row and head."""
        first = slice(0, 1)
        try:
            return self.sliced(Selection(batch=first, heads=first, kv_heads=first)) is self
        except CannotSliceError:
            return False

    def _sliced(self, selection: Selection, axes: Mapping[str, Axes] | None) -> Self:
        if axes is None and selection.batch_or_heads:
            raise CannotSliceError(f"{self!r} does not declare the `axes` of its tensors, so it has no single head")
        changed = {}
        for name, value in self.attributes.items():
            new = self._sliced_value(name, value, selection, axes or {})
            if new is not value:
                changed[name] = new
        if not changed:
            return self
        if "__dataclass_fields__" in vars(type(self)):
            return replace(self, **changed)  # type: ignore[type-var]
        part = copy.copy(self)
        for name, value in changed.items():
            object.__setattr__(part, name, value)
        return part

    def _sliced_value(self, name: str, value: Any, selection: Selection, axes: Mapping[str, Axes]) -> Any:
        if isinstance(value, Part):
            return value.sliced(selection)
        if isinstance(value, tuple):
            items = tuple(self._sliced_value(name, item, selection, axes) for item in value)
            return items if any(map(operator.is_not, items, value)) else value
        if isinstance(value, Tensor) and name in axes:
            return selection.tensor(value, axes[name])
        if (callable(value) or isinstance(value, Tensor)) and selection.batch_or_heads:
            raise CannotSliceError(f"{self!r} may depend on batch row and head in its {name}, so it has no single head")
        return value

    @property
    def attributes(self) -> dict[str, Any]:
        """What it is made of, by name: the fields of a dataclass, and attributes that an `__init__` of its own sets."""
        kind = type(self)
        names = [field.name for field in fields(kind)] if hasattr(kind, "__dataclass_fields__") else []  # type: ignore[arg-type]
        if "__dataclass_fields__" not in kind.__dict__:
            named = {*names, *(name for one in kind.__mro__ for name in vars(one))}  # of a class: cached properties
            names += [name for name in vars(self) if name not in named]
        return {name: getattr(self, name) for name in names}

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        own, others = self.attributes, other.attributes
        return own.keys() == others.keys() and all(_same(value, others[name]) for name, value in own.items())

    __hash__ = object.__hash__

    @cached_property
    def contents(self) -> tuple[Any, ...] | None:
        """The type and contents as a key, if all of it is numbers and parts of numbers: such a part never changes."""
        decorated = type(self).__dict__.get("__dataclass_params__")
        if decorated is None or not decorated.frozen:
            return None  # it may change
        contents: list[Any] = [type(self)]
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, Part):
                value = value.contents
                if value is None:
                    return None
            elif value is not None and not isinstance(value, (int, float, str)):
                return None
            contents.append(value)
        return tuple(contents)

    def __repr__(self) -> str:
        declared, arguments = getattr(self, "__dataclass_fields__", {}), []
        for name, value in self.attributes.items():
            if name in declared and declared[name].default is MISSING:
                arguments.append(_text(value))
            elif name not in declared or not _same(value, declared[name].default):
                arguments.append(f"{name}={_text(value)}")
        return f"{type(self).__name__}({', '.join(arguments)})"


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
