"""The fixed table of sines and cosines of "Attention Is All You Need" (Vaswani et al., 2017)."""

import math
from numbers import Real
from typing import Literal

import torch
from torch import Tensor

from regard.checks import written


def sinusoidal(
    length: int,
    width: int,
    *,
    start: int = 0,
    base: float = 10000.0,
    layout: Literal["interleaved", "halves"] = "interleaved",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The table (length, width) that is added to embeddings; row 0 stands at absolute position `start`.

    Frequency i is base^(-2i/width) radians per position. Its sine and cosine are columns 2i and 2i + 1
    ("interleaved", the paper), or all sines come first and all cosines after them ("halves", Marian).
    An odd width has one sine more than it has cosines: the last frequency goes without.

    Computed in float64 on the CPU and rounded once to `dtype`, so rows are right to the last bit or two
    at any position up to 1e6.
    """
    for name, value, least in (("length", length, 0), ("width", width, 1), ("start", start, None)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"sinusoidal wants {name} to be an int, got {value!r} ({type(value).__name__})")
        if least is not None and value < least:
            raise ValueError(f"sinusoidal wants {name} of at least {least}, got {written(value)}")
        if abs(value) > FARTHEST:
            raise ValueError(f"sinusoidal wants {name} within ±2**62, got {written(value)}")
    if layout not in ("interleaved", "halves"):
        raise ValueError(
            "sinusoidal wants layout 'interleaved' (sin, cos, sin, cos) or 'halves' (sines, then cosines), "
            f"got {layout!r}"
        )
    if dtype not in FLOATS:
        raise TypeError(f"sinusoidal wants dtype float16, bfloat16, float32 or float64, got {dtype}")
    positions = torch.arange(start, start + length, dtype=torch.float64, device="cpu")
    angles = positions.unsqueeze(-1) * inverse_frequencies(width, base)
    sines, cosines = angles.sin(), angles[:, : width // 2].cos()
    if layout == "halves":
        return torch.cat([sines, cosines], dim=-1).to(dtype)
    table = torch.empty(length, width, dtype=torch.float64, device="cpu")
    table[:, 0::2] = sines
    table[:, 1::2] = cosines
    return table.to(dtype)


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
