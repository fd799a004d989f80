"""Numbers written as nested lists, turned into tensors; what cannot be is named."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

Numbers = Tensor | Sequence[Any]  # a tensor or an array, or rows of numbers

_NAMES = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def tensor_of(name: str, value: object) -> Tensor:
    """A tensor or array as it is; nested lists as float64, as bool or int64 if all entries are."""
    if isinstance(value, Tensor):
        return value
    if hasattr(value, "__array__"):
        return torch.as_tensor(value, device="cpu")
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise TypeError(
            f"{name} must be a tensor or rows of numbers such as [[1, 0], [0, 1]], got {type(value).__name__}"
        )
    _check_shape(name, value)
    entries = list(_entries(name, value))
    kinds = {bool if isinstance(entry, bool) else int if isinstance(entry, int) else float for entry in entries}
    if bool in kinds and len(kinds) > 1:
        raise TypeError(f"{name} must be numbers or true and false, not both")
    dtype = torch.bool if kinds == {bool} else torch.int64 if kinds == {int} else torch.float64
    return _made(name, value, dtype)


def _made(name: str, value: Sequence[Any], dtype: torch.dtype) -> Tensor:
    try:
        return torch.tensor(_replaced(value), dtype=dtype, device="cpu").reshape(_sizes(value))
    except (OverflowError, RuntimeError, ValueError):
        raise ValueError(f"{name} must hold numbers of ordinary size; one of them is too large") from None


def matrix(name: str, value: object) -> Tensor:
    """The same for what must be numbers with a point: lists of integers become float64 too."""
    tensor = tensor_of(name, value)
    if not isinstance(value, Sequence):
        return tensor
    if tensor.dtype == torch.bool:
        raise TypeError(f"{name} must be numbers, got true and false")
    return tensor.double()


def _sizes(value: object) -> tuple[int, ...]:
    if not _is_list(value):
        return ()
    return (len(value), *(_sizes(value[0]) if len(value) else ()))  # type: ignore[arg-type, index]


def _check_shape(name: str, value: Sequence[Any], at: str = "") -> None:
    """Refuse rows of different lengths, saying which."""
    lists = [_is_list(each) for each in value]
    if any(lists) and not all(lists):
        raise ValueError(f"{name}{at} mixes rows and numbers; write every row in brackets, such as [[1, 0], [0, 1]]")
    if not any(lists):
        return
    for index, row in enumerate(value):
        if len(row) != len(value[0]):
            raise ValueError(
                f"{name}{at} must have rows of one length: row 0 has {len(value[0])} entries, "
                f"row {index} has {len(row)}"
            )
        _check_shape(name, row, f"{at}[{index}]")
    if len({_sizes(row) for row in value}) > 1:
        raise ValueError(f"{name}{at} must have parts of one shape, got {', '.join(str(_sizes(row)) for row in value)}")


def _entries(name: str, value: Sequence[Any]) -> Iterator[Any]:
    for each in value:
        if _is_list(each):
            yield from _entries(name, each)
        elif isinstance(each, bool | int | float) or (isinstance(each, str) and each in _NAMES):
            yield each
        else:
            raise TypeError(f"{name} must hold numbers, got {each!r}")


def _replaced(value: Any) -> Any:
    if _is_list(value):
        return [_replaced(each) for each in value]
    return _NAMES[value] if isinstance(value, str) else value


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
