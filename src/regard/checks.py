"""Argument checks that every layer shares. An error says what was wanted, what came and what to do."""

import sys
from collections.abc import Iterable
from typing import SupportsInt

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
LARGEST = (1 << 63) - 1  # of the integers that tensors and kernels count with


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


def has_numbers(tensor: Tensor) -> bool:
    """Whether the tensor holds numbers: those on the device meta and torch's FakeTensors hold shapes alone."""
    return not (tensor.is_meta or isinstance(tensor, FakeTensor))


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
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    if not abs(value) <= sys.float_info.max:
        raise ValueError(f"{name} must be finite, got {written(value)}")
    return value


def positive(name: str, value: object) -> float:
    """Refuse zero, negative and non-finite numbers."""
    checked = number(name, value)
    if checked <= 0:
        raise ValueError(f"{name} must be a finite number above 0, got {written(checked)}")
    return checked


def written(value: float) -> str:
    """A number for an error's text; Python refuses to print integers of thousands of digits."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"{'−' if value < 0 else ''}2**{value.bit_length() - 1} or more"
    return str(value)


def whole(name: str, value: object, least: int | None = None, most: int = LARGEST) -> int:
    """Refuse what is not an integer, is below `least` or above `most`, or does not fit in 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int):
        hint = "; convert it with int(...)" if isinstance(value, SupportsInt) and not isinstance(value, bool) else ""
        raise TypeError(f"{name} must be an int, got {type(value).__name__}{hint}")
    if least is not None and value < least:
        raise ValueError(f"{name} must be at least {least}, got {written(value)}")
    if value > most:
        raise ValueError(f"{name} must be at most {_power(most)}, got {written(value)}")
    if value < -LARGEST - 1:
        raise ValueError(f"{name} must be at least -2**63, got {written(value)}")
    return value


def _power(most: int) -> str:
    """`2**63 - 1` instead of nineteen digits."""
    power = (most + 1).bit_length() - 1
    if most < 1 << 32:
        return str(most)
    return f"2**{power} - 1" if most + 1 == 1 << power else f"2**{power}" if most == 1 << power else str(most)
