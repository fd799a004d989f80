"""Parts of a spec as plain JSON beside named tensors, and back. Only parts of `regard.spec` are made; no code is."""

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from torch import Tensor

from regard.inspection.saved.tensors import Gathered
from regard.spec import biases, masks, normalizers, scores
from regard.spec.part import Part

FUNCTIONS = (masks.Where, masks.RowWhere, scores.Modified)
PLACES: dict[str, Any] = {"scores": scores, "masks": masks, "biases": biases, "normalizers": normalizers}
KINDS: dict[str, type[Part]] = {
    f"{place}.{name}": kind
    for place, module in PLACES.items()
    for name, kind in vars(module).items()
    if isinstance(kind, type)
    and issubclass(kind, Part)
    and hasattr(kind, "__dataclass_fields__")
    and kind not in FUNCTIONS
}
NAMES = {kind: name for name, kind in KINDS.items()}


def plain(value: object) -> bool:
    """Whether it is made of numbers, strings, tensors, tuples and parts of `regard.spec` without functions."""
    if isinstance(value, Part):
        return type(value) in NAMES and all(plain(getattr(value, field.name)) for field in fields(value))  # type: ignore[arg-type]
    if isinstance(value, tuple):
        return all(map(plain, value))
    return value is None or isinstance(value, bool | int | float | str | Tensor)


def encoded(value: Any, name: str, tensors: Gathered) -> Any:
    """A value that is `plain`, as JSON; its tensors are gathered under names that begin with `name`."""
    if isinstance(value, Part):
        items = {field.name: getattr(value, field.name) for field in fields(value)}  # type: ignore[arg-type]
        if isinstance(value, masks.Dense | biases.Dense):
            items["tensor"] = narrow(value.tensor)
        inner = {key: encoded(item, f"{name}.{key}", tensors) for key, item in items.items()}
        return {"part": NAMES[type(value)], "fields": inner}
    if isinstance(value, Tensor):
        return {"tensor": tensors.add(name, value)}
    if isinstance(value, tuple):
        return {"tuple": [encoded(item, f"{name}.{place}", tensors) for place, item in enumerate(value)]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def decoded(node: Any, tensors: Mapping[str, Tensor]) -> Any:
    """What `encoded` was given. Parts are made anew, so that their own checks see what is in the file."""
    if not isinstance(node, dict):
        if isinstance(node, list):
            raise ValueError("a list stands where a value is wanted")
        return node
    match node:
        case {"tensor": str(name)}:
            return tensor(name, tensors)
        case {"tuple": list(items)}:
            return tuple(decoded(item, tensors) for item in items)
        case {"float": "inf" | "-inf" | "nan" as text}:
            return float(text)
        case {"part": str(name), "fields": dict(items)} if name in KINDS:
            return KINDS[name](**{key: decoded(item, tensors) for key, item in items.items()})
        case {"part": name}:
            raise ValueError(f"the part {name!r} is not known")
    raise ValueError(f"a value has the keys {', '.join(map(str, node))}, which are not known")


def tensor(name: Any, tensors: Mapping[str, Tensor]) -> Tensor:
    """One by its name."""
    if name not in tensors:
        raise ValueError(f"the tensor {name!r} is missing")
    return tensors[name]


def narrow(table: Tensor) -> Tensor:
    """One entry of each axis along which a table was expanded: it broadcasts."""
    for axis, (size, step) in enumerate(zip(table.shape, table.stride(), strict=True)):
        if step == 0 and size > 1:
            table = table.narrow(axis, 0, 1)
    return table
