"""Autocast: inputs are cast as torch's own attention casts them, and then nothing inside is."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

DEVICES = ("cpu", "cuda", "mps", "xpu")  # torch raises when it is asked about others
_anywhere = getattr(
    torch._C, "_is_any_autocast_enabled", lambda: True
)  # a tenth of the time that asking by device takes
LOWERED = (torch.float32, torch.float16, torch.bfloat16)


def asked(tensor: object) -> bool:
    """Whether autocast is on for the device of an input."""
    return _anywhere() and isinstance(tensor, Tensor) and _on(tensor.device)


def precision(tensor: Tensor) -> torch.dtype:
    """What torch's attention computes in: under autocast the lower precision, for every float but float64."""
    if tensor.dtype not in LOWERED or not _on(tensor.device):
        return tensor.dtype
    return torch.get_autocast_dtype(tensor.device.type)


def lowered(tensor: Tensor) -> Tensor:
    """The tensor in that precision; what is not a tensor of floats is for others to refuse."""
    return tensor.to(precision(tensor)) if asked(tensor) else tensor


def off(device: torch.device) -> AbstractContextManager[object]:
    """A context without it: what accumulates in float32 must stay there."""
    return torch.autocast(device.type, enabled=False) if _on(device) else nullcontext()


def _on(device: torch.device) -> bool:
    return device.type in DEVICES and torch.is_autocast_enabled(device.type)
