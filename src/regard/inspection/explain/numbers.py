"""Numbers written as nested lists, turned into tensors; what cannot be is named."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard import arrays

Numbers = Tensor | arrays.Array | Sequence[Any]  # a tensor or an array, or rows of numbers

_NAMES = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def tensor_of(name: str, value: object) -> Tensor:
    """A tensor or array as it is; nested lists as float64, as bool or int64 if all entries are."""
    value = arrays.tensor_of(name, value)
    if isinstance(value, Tensor):
        return value
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise TypeError(
            f"{name} must be a tensor or rows of numbers such as [[1, 0], [0, 1]], got {type(value).__name__}"
        )
    shape, entries = _shape_and_entries(name, value)
    kinds = {bool if isinstance(entry, bool) else int if isinstance(entry, int) else float for entry in entries}
    if bool in kinds and len(kinds) > 1:
        raise TypeError(f"{name} must be numbers or true and false, not both")
    dtype = torch.bool if kinds == {bool} else torch.int64 if kinds == {int} else torch.float64
    try:
        return torch.tensor(entries, dtype=dtype, device="cpu").reshape(shape)
    except (OverflowError, RuntimeError, ValueError):
        raise ValueError(f"{name} must hold numbers of ordinary size; one of them is too large") from None


def matrix(name: str, value: object) -> Tensor:
    """The same for what must be numbers with a point: lists and NumPy arrays of integers become float64 too."""
    tensor = tensor_of(name, value)
    if not isinstance(value, Sequence) and (tensor.is_floating_point() or not arrays.is_array(value)):
        return tensor
    if tensor.dtype == torch.bool:
        raise TypeError(f"{name} must be numbers, got true and false")
    return tensor.double()


def _shape_and_entries(
    name: str, value: Sequence[Any], at: str = ""
) -> tuple[tuple[int, ...], list[bool | int | float]]:
    """The sizes of nested lists and their numbers in order; rows of different lengths are refused."""
    lists = [isinstance(each, Sequence) and not isinstance(each, str) for each in value]
    if not any(lists):
        return (len(value),), [_entry(name, each) for each in value]
    if not all(lists):
        raise ValueError(f"{name}{at} mixes rows and numbers; write every row in brackets, such as [[1, 0], [0, 1]]")
    for index, row in enumerate(value):
        if len(row) != len(value[0]):
            raise ValueError(
                f"{name}{at} must have rows of one length: row 0 has {len(value[0])} entries, "
                f"row {index} has {len(row)}"
            )
    parts = [_shape_and_entries(name, row, f"{at}[{index}]") for index, row in enumerate(value)]
    shapes = [shape for shape, _ in parts]
    if len(set(shapes)) > 1:
        raise ValueError(f"{name}{at} must have parts of one shape, got {', '.join(map(str, shapes))}")
    return (len(value), *shapes[0]), [entry for _, entries in parts for entry in entries]


def _entry(name: str, value: object) -> bool | int | float:
    if isinstance(value, str) and value in _NAMES:
        return _NAMES[value]
    if isinstance(value, bool | int | float):
        return value
    raise TypeError(f"{name} must hold numbers, got {value!r}")
