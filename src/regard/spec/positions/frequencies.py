"""The geometric ladder of frequencies that sinusoidal tables and rotations share."""

import math
from numbers import Real

import torch
from torch import Tensor

from regard.checks import written

FARTHEST = 1 << 62  # positions and their differences must fit in 64 bits
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def inverse_frequencies(width: int, base: float) -> Tensor:
    """Radians per position of each pair of dimensions: base^(-2i/width), (ceil(width / 2),), float64 on the CPU."""
    if not is_number(base):
        raise TypeError(f"base wants a number greater than 1, got {base!r}; the usual one is 10000.0")
    if not (is_finite(base) and base > 1):
        got = written(base)
        raise ValueError(f"base wants a finite number greater than 1, got {got}; the usual one is 10000.0")
    exponents = torch.arange(0, width, 2, dtype=torch.float64, device="cpu") / width
    ladder: Tensor = float(base) ** -exponents
    return ladder


def is_finite(value: float) -> bool:
    """Whether it is a finite float64; an integer may be too large for one."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def is_number(value: object) -> bool:
    """Whether `value` is a real number; True and False are not."""
    return isinstance(value, Real) and not isinstance(value, bool)
