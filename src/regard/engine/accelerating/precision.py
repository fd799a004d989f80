"""What autocast would do to the inputs of attention."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def precision(tensor: Tensor) -> torch.dtype:
    """What torch's attention computes in: under autocast the lower precision, for every float but float64."""
    if not tensor.is_floating_point() or tensor.dtype == torch.float64 or not _autocast(tensor.device):
        return tensor.dtype
    return torch.get_autocast_dtype(tensor.device.type)


def lowered(tensor: Tensor) -> Tensor:
    """The tensor in that precision; a tensor of bools stays as it is."""
    return tensor.to(precision(tensor))


def as_given(device: torch.device) -> AbstractContextManager[object]:
    """Without autocast: the engines choose their precision themselves."""
    return torch.autocast(device.type, enabled=False) if _autocast(device) else nullcontext()


def _autocast(device: torch.device) -> bool:
    return torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)
