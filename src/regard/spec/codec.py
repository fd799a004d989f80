"""Parts of a spec as a string and lists of tensors and numbers, and back: an operator of torch takes nothing else."""

import importlib
import json
from dataclasses import fields
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.spec.part import Part

HOME = "regard.spec."  # parts are looked up in these modules alone
LARGEST = 1 << 63  # an operator's integers have 64 bits; longer ones, such as seeds, stay in the string


class Held(NamedTuple):
    """What the string points to. Numbers apart from it may change without a new compilation."""

    tensors: list[Tensor]
    integers: list[int]
    floats: list[float]


def codable(value: object) -> bool:
    """Whether it is made of numbers, strings, tensors, and parts and tuples of these; functions are not."""
    if isinstance(value, Part):
        return type(value).__module__.startswith(HOME) and all(codable(item) for item in _contents(value))
    if isinstance(value, tuple):
        return all(codable(item) for item in value)
    return value is None or isinstance(value, (bool, int, float, str, Tensor, torch.SymInt, torch.SymFloat))


def encoded(value: object, held: Held) -> str:
    """JSON that points into `held`, which is filled. Plain enough to be traced by torch.compile."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Tensor):
        held.tensors.append(value)
        return '{"tensor": ' + str(len(held.tensors) - 1) + "}"
    if isinstance(value, (int, torch.SymInt)):
        if not -LARGEST <= value < LARGEST:
            return str(value)
        held.integers.append(value)  # type: ignore[arg-type]
        return '{"integer": ' + str(len(held.integers) - 1) + "}"
    if isinstance(value, (float, torch.SymFloat)):
        held.floats.append(value)  # type: ignore[arg-type]
        return '{"float": ' + str(len(held.floats) - 1) + "}"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, tuple):
        return '{"tuple": [' + ", ".join([encoded(item, held) for item in value]) + "]}"
    if isinstance(value, Part) and codable(value):
        name = type(value).__module__ + "." + type(value).__name__
        return '{"' + name + '": [' + ", ".join([encoded(item, held) for item in _contents(value)]) + "]}"
    raise TypeError(
        f"torch.compile and torch.export take specs made of tensors, numbers and regard's own parts, got "
        f"{type(value).__name__}; for a mask or bias made by a function give its values as a tensor, "
        "or call attend outside the compiled function"
    )


def decoded(text: str, held: Held) -> Any:
    """What `encoded` was given. Parts are made anew, so their own checks see the numbers."""
    if held.tensors:
        return _value(json.loads(text, strict=False), held)
    return _plain(text, tuple(held.integers), tuple(held.floats))


@lru_cache(256)
def _plain(text: str, integers: tuple[int, ...], floats: tuple[float, ...]) -> Any:
    return _value(json.loads(text, strict=False), Held([], list(integers), list(floats)))


def _value(node: Any, held: Held) -> Any:
    if not isinstance(node, dict):
        return node
    ((name, content),) = node.items()
    match name:
        case "tensor":
            return held.tensors[content]
        case "integer":
            return held.integers[content]
        case "float":
            return held.floats[content]
    items = [_value(item, held) for item in content]
    if name == "tuple":
        return tuple(items)
    module, _, kind = name.rpartition(".")
    if not module.startswith(HOME):
        raise ValueError(f"a spec is made of parts from {HOME}*, got {name!r}")
    return getattr(importlib.import_module(module), kind)(*items)


def _contents(part: Part) -> tuple[Any, ...]:
    return tuple([getattr(part, field.name) for field in fields(part)])  # type: ignore[arg-type]
