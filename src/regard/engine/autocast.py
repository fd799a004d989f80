"""Autocast: inputs are cast as torch's own attention casts them, and then nothing inside is."""

import torch
from torch import Tensor

DEVICES = ("cpu", "cuda", "mps", "xpu")  # torch raises when it is asked about others
LOWERED = (torch.float32, torch.float16, torch.bfloat16)


def asked(tensor: object) -> bool:
    """Whether autocast is on for the device of an input."""
    if not isinstance(tensor, Tensor):
        return False
    device = tensor.device.type
    return device in DEVICES and torch.is_autocast_enabled(device)


def off(device: torch.device) -> torch.autocast:
    """A context without it: what accumulates in float32 must stay there."""
    return torch.autocast(device.type, enabled=False)


def lowered(tensor: Tensor) -> Tensor:
    """In autocast's precision; float64 stays, and what is not a tensor of floats is for others to refuse."""
    if getattr(tensor, "dtype", None) not in LOWERED:
        return tensor
    return tensor.to(torch.get_autocast_dtype(tensor.device.type))
