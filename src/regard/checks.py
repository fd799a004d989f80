"""Argument checks that every layer shares. An error says what was wanted, what came and what to do."""

import sys
from collections.abc import Iterable
from typing import SupportsInt

import torch
from torch import Tensor

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def shape(tensor: Tensor) -> str:
    """The shape as a user writes it: `(2, 8, 128, 64)`."""
    return f"({', '.join(map(str, tensor.shape))}{',' if tensor.ndim == 1 else ''})"


def is_tensor(name: str, value: object) -> Tensor:
    """Refuse anything that is not a dense tensor."""
    if not isinstance(value, Tensor):
        hint = "it is missing" if value is None else "wrap it with torch.as_tensor(...)"
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}; {hint}")
    if value.layout != torch.strided or value.is_nested:
        raise TypeError(f"{name} must be a dense tensor, got a sparse or nested one; convert it with .to_dense()")
    return value


def is_float(name: str, tensor: Tensor) -> None:
    """Refuse integers, bools, complex numbers and 8-bit floats."""
    if tensor.dtype not in FLOATS:
        raise TypeError(
            f"{name} must be float32, float64, bfloat16 or float16, got {dtype(tensor)}; convert it with .float()"
        )


def float_tensors(owner: str, tensors: dict[str, object]) -> None:
    """Refuse parameters of `owner` that are not float tensors."""
    for name, value in tensors.items():
        is_float(f"{owner}'s {name}", is_tensor(f"{owner}'s {name}", value))


def same_device(named: Iterable[tuple[str, Tensor]], device: torch.device) -> None:
    """Refuse parts of a spec that live elsewhere than the inputs."""
    for name, tensor in named:
        if tensor.device != device:
            raise ValueError(
                f"{name} must be on the device of the inputs, {device}, got {tensor.device}; "
                "move it with .to(query.device) before the call"
            )


def dtype(tensor: Tensor) -> str:
    """`float32` instead of `torch.float32`."""
    return str(tensor.dtype).removeprefix("torch.")


def same_kind(tensors: dict[str, Tensor]) -> None:
    """Refuse mixed devices and mixed dtypes among the inputs."""
    for what, of in (("device", lambda t: str(t.device)), ("dtype", dtype)):
        seen = {name: of(tensor) for name, tensor in tensors.items()}
        if len(set(seen.values())) > 1:
            listed = ", ".join(f"{name} {value}" for name, value in seen.items())
            first = next(iter(tensors))
            raise (ValueError if what == "device" else TypeError)(
                f"{', '.join(tensors)} must share one {what}, got {listed}; "
                f"move them with .to({first}.{what}) before the call"
            )


def number(name: str, value: object) -> float:
    """Refuse what is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    if not abs(value) <= sys.float_info.max:
        raise ValueError(f"{name} must be finite, got {value}")
    return value


def positive(name: str, value: object) -> float:
    """Refuse zero, negative and non-finite numbers."""
    if number(name, value) <= 0:
        raise ValueError(f"{name} must be a finite number above 0, got {value}")
    return number(name, value)


def whole(name: str, value: object, least: int | None = None) -> int:
    """Refuse what is not an integer (or is below `least`)."""
    if isinstance(value, bool) or not isinstance(value, int):
        hint = "; convert it with int(...)" if isinstance(value, SupportsInt) and not isinstance(value, bool) else ""
        raise TypeError(f"{name} must be an int, got {type(value).__name__}{hint}")
    if least is not None and value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return value
