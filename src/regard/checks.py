"""Argument checks that every layer shares. An error says what was wanted, what came and what to do."""

import math

import torch
from torch import Tensor

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def shape(tensor: Tensor) -> str:
    """The shape as a user writes it: `(2, 8, 128, 64)`."""
    return f"({', '.join(map(str, tensor.shape))}{',' if tensor.ndim == 1 else ''})"


def is_tensor(name: str, value: object) -> Tensor:
    """Refuse anything that is not a tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}; wrap it with torch.as_tensor(...)")
    return value


def is_float(name: str, tensor: Tensor) -> None:
    """Refuse integers, bools, complex numbers and 8-bit floats."""
    if tensor.dtype not in FLOATS:
        raise TypeError(
            f"{name} must be float32, float64, bfloat16 or float16, got {dtype(tensor)}; convert it with {name}.float()"
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


def positive(name: str, value: float) -> float:
    """Refuse zero, negative and non-finite numbers."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number above 0, got {value}")
    return value


def whole(name: str, value: object, least: int | None = None) -> int:
    """Refuse what is not an integer (or is below `least`)."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")
    if least is not None and value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return value
