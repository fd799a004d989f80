"""Serialize: parts of a spec as JSON with their tensors beside it, and back.

One notation serves torch.compile's operator, saved captures and matrices, and spec files of the command line. A class
is found by the name under which it was registered: nothing in a file is imported or run.

    @register
    @dataclass(frozen=True, eq=False, repr=False)
    class Checkerboard(masks.Mask):
        size: int
"""

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from regard.spec.part import Part

REGISTERED: dict[str, type[Part]] = {}  # by family and class name, such as masks.Causal
LARGEST = 1 << 63  # an operator's integers have 64 bits; longer ones, such as seeds, stay in the string
P = TypeVar("P", bound=type[Part])


class NotRegisteredError(ValueError):
    """A file names a class that is not registered."""


def register(kind: P) -> P:
    """Class decorator: values of this dataclass may be stored in files and in compiled graphs, under its own name."""
    name = f"{kind.family}.{kind.__name__}"
    if "__dataclass_fields__" not in vars(kind):
        raise TypeError(f"register takes a dataclass; decorate {kind.__name__} with @dataclass(frozen=True) below it")
    other = REGISTERED.get(name, kind)
    if (other.__module__, other.__qualname__) != (kind.__module__, kind.__qualname__):
        raise ValueError(f"{name} is the name of {other.__module__}.{other.__qualname__}; give the class another name")
    REGISTERED[name] = kind
    kind.registered = (name, kind)
    return kind


def registered(family: str) -> dict[str, type[Part]]:
    """The registered classes of a family (scores, masks, biases, normalizers, dropout) by their own names."""
    start = f"{family}."
    return {name.removeprefix(start): kind for name, kind in REGISTERED.items() if name.startswith(start)}


class OperatorInputs(NamedTuple):
    """Tensors and numbers that an operator gets beside the string. They may change without a new compilation."""

    tensors: list[Tensor]
    integers: list[int]
    floats: list[float]


class TensorFile(Protocol):
    """Tensors of a file by name."""

    def add(self, name: str, tensor: Tensor) -> str:
        """Store a tensor; returns the name that it got."""
        ...


def storable(value: object) -> bool:
    """Whether it is made of numbers, strings, tensors, registered parts and tuples of these; functions are not."""
    if isinstance(value, Part):
        if value.registered is None or value.registered[1] is not type(value):
            return False  # a subclass that is not registered itself is another class
        return all(storable(getattr(value, field.name)) for field in fields(value))  # type: ignore[arg-type]
    if isinstance(value, tuple):
        return all(storable(item) for item in value)
    return value is None or isinstance(value, (bool, int, float, str, Tensor, torch.SymInt, torch.SymFloat))


def encoded(value: object, store: OperatorInputs | TensorFile, name: str = "") -> str:
    """JSON that refers to the tensors in `store`, which is filled. Plain enough to be traced by torch.compile.

    Into a file, tensors go under names that begin with `name`, and numbers stay in the text.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Tensor):
        if not isinstance(store, OperatorInputs):
            return '{"tensor": ' + json.dumps(store.add(name, value)) + "}"
        store.tensors.append(value)
        return '{"tensor": ' + str(len(store.tensors) - 1) + "}"
    if isinstance(value, (int, torch.SymInt)):
        if not isinstance(store, OperatorInputs) or not -LARGEST <= value < LARGEST:
            return str(value)
        store.integers.append(value)  # type: ignore[arg-type]
        return '{"integer": ' + str(len(store.integers) - 1) + "}"
    if isinstance(value, (float, torch.SymFloat)):
        if not isinstance(store, OperatorInputs):
            return repr(value) if math.isfinite(value) else '{"float": "' + str(value) + '"}'
        store.floats.append(value)  # type: ignore[arg-type]
        return '{"float": ' + str(len(store.floats) - 1) + "}"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, tuple):
        items = [encoded(item, store, name + "." + str(place)) for place, item in enumerate(value)]
        return '{"tuple": [' + ", ".join(items) + "]}"
    if isinstance(value, Part) and storable(value):
        return _encoded_part(value, store, name)
    raise TypeError(
        f"torch.compile, torch.export and files take specs made of tensors, numbers and registered parts, got "
        f"{type(value).__name__}; for a mask or bias made by a function give its values as a tensor, register a class "
        "of your own with regard.spec.register, or call attend outside the compiled function"
    )


def _encoded_part(part: Part, store: OperatorInputs | TensorFile, name: str) -> str:
    items = []
    for field in fields(part):  # type: ignore[arg-type]
        value = getattr(part, field.name)
        if (
            isinstance(value, Tensor)
            and not isinstance(store, OperatorInputs)
            and part.axes
            and field.name in part.axes
        ):
            value = _collapsed(value, part.axes[field.name])
        items.append('"' + field.name + '": ' + encoded(value, store, name + "." + field.name))
    kind: str = part.registered[0]
    return '{"part": "' + kind + '", "fields": {' + ", ".join(items) + "}}"


def _collapsed(tensor: Tensor, axes: tuple[str | None, ...]) -> Tensor:
    """One entry of each named axis along which a tensor was expanded: an axis of size 1 is shared by all."""
    for axis in range(-min(len(axes), tensor.ndim), 0):
        if axes[axis] is not None and tensor.shape[axis] > 1 and tensor.stride(axis) == 0:
            tensor = tensor.narrow(axis, 0, 1)
    return tensor


def decoded(text: str, store: OperatorInputs) -> Any:
    """What `encoded` was given. Parts are made anew, so their own checks see the numbers."""
    if store.tensors:
        return decoded_node(json.loads(text, strict=False), store)
    return _without_tensors(text, tuple(store.integers), tuple(store.floats))


@lru_cache(256)
def _without_tensors(text: str, integers: tuple[int, ...], floats: tuple[float, ...]) -> Any:
    return decoded_node(json.loads(text, strict=False), OperatorInputs([], list(integers), list(floats)))


def decoded_node(node: Any, store: OperatorInputs | Mapping[str, Tensor]) -> Any:
    """The same from parsed JSON; `store` may be the tensors of a file by name."""
    match node:
        case {"tensor": str(name)} if not isinstance(store, OperatorInputs):
            return named_tensor(name, store)
        case {"tensor": int(place)} if isinstance(store, OperatorInputs):
            return store.tensors[place]
        case {"integer": int(place)} if isinstance(store, OperatorInputs):
            return store.integers[place]
        case {"float": int(place)} if isinstance(store, OperatorInputs):
            return store.floats[place]
        case {"float": "inf" | "-inf" | "nan" as text}:
            return float(text)
        case {"tuple": list(items)}:
            return tuple(decoded_node(item, store) for item in items)
        case {"part": str(name), "fields": dict(items)}:
            if name not in REGISTERED:
                raise NotRegisteredError(
                    f"the part {name!r} is not registered; import the module that defines the class "
                    f"{name.split('.')[-1]}, and decorate it there with @regard.spec.register"
                )
            return REGISTERED[name](**{key: decoded_node(item, store) for key, item in items.items()})
        case dict():
            raise ValueError(f"a value has the keys {', '.join(map(str, node))}, which are not known")
        case list():
            raise ValueError("a list stands where a value is wanted")
    return node


def named_tensor(name: Any, tensors: Mapping[str, Tensor]) -> Tensor:
    """A tensor of a file."""
    if name not in tensors:
        raise ValueError(f"the tensor {name!r} is missing")
    return tensors[name]
