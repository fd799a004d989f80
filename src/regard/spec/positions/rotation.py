"""What a rotation is made of: cosines and sines of positions, and turning pairs of dimensions by them."""

from typing import Literal

import torch
from torch import Tensor

from regard.checks import is_tensor
from regard.spec.positions.frequencies import FLOATS, inverse_frequencies
from regard.spec.positions.stretch import Stretch

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)

Pairing = Literal["half", "interleaved"]


def rotary_tables(
    positions: Tensor, width: int, *, base: float = 10000.0, stretch: Stretch | None = None
) -> tuple[Tensor, Tensor]:
    """Cosines and sines (..., length, width / 2) of integer `positions` (..., length), float64 on the CPU."""
    if width < 2 or width % 2:
        raise ValueError(f"a rotation wants an even width of at least 2, got {width}")
    if stretch is None:
        frequencies, factor = inverse_frequencies(width, base), 1.0
    elif isinstance(stretch, type) or not hasattr(stretch, "frequencies"):
        raise TypeError(
            f"stretch wants a value such as Linear(4.0) or YaRN(4.0, original_length=4096), got {stretch!r}"
        )
    else:
        frequencies, factor = stretch.frequencies(width, base)
        if frequencies.shape != (width // 2,):
            raise ValueError(
                f"stretch wants to give one frequency per pair, ({width // 2},) for width {width}, "
                f"got {tuple(frequencies.shape)} from {stretch!r}"
            )
    angles = integers("positions", positions).to(torch.float64).unsqueeze(-1) * frequencies
    return angles.cos() * factor, angles.sin() * factor


def rotate(x: Tensor, cos: Tensor, sin: Tensor, pairing: Pairing = "half") -> Tensor:
    """Turn the pairs of `x` (..., length, width) by angles whose `cos` and `sin` are (..., length, pairs).

    The tables broadcast over the leading axes of x, and have at least float32 (float64 for a float64 x): tables of
    one row per batch row need an axis for the heads, `cos[:, None]`. Dimensions from 2 · pairs on pass untouched.
    """
    check_input(x)
    work = torch.promote_types(x.dtype, torch.float32)
    _check_tables(x, cos, sin, work)
    if pairing not in ("half", "interleaved"):
        raise ValueError(
            f"pairing wants 'half' (i with i + width/2) or 'interleaved' (2i with 2i + 1), got {pairing!r}"
        )
    cos, sin = cos.to(x.device, work), sin.to(x.device, work)
    pairs = cos.shape[-1]
    if pairing == "half":
        first, second = slice(0, pairs), slice(pairs, 2 * pairs)
    else:
        first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    a, b = x[..., first].to(work), x[..., second].to(work)
    # Written in place because autocast on a CPU refuses to concatenate float16.
    turned = torch.empty_like(x)
    turned[..., first] = a * cos - b * sin
    turned[..., second] = b * cos + a * sin
    turned[..., 2 * pairs :] = x[..., 2 * pairs :]
    return turned


def check_input(x: object) -> None:
    """Refuse what is not a floating-point tensor (..., length, width)."""
    if isinstance(x, Tensor):
        is_tensor("rotary's x", x)
    if not isinstance(x, Tensor) or x.dtype not in FLOATS:
        got = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"rotary wants x to be a float16, bfloat16, float32 or float64 tensor, got {got}")
    if x.ndim < 2:
        raise ValueError(f"rotary wants x of shape (..., length, width), got {tuple(x.shape)}")


def _check_tables(x: Tensor, cos: Tensor, sin: Tensor, work: torch.dtype) -> None:
    if cos.shape != sin.shape or cos.dtype != sin.dtype:
        raise ValueError(
            f"rotate wants cos and sin of one shape and dtype, got {tuple(cos.shape)} {cos.dtype} "
            f"and {tuple(sin.shape)} {sin.dtype}; take both from one call of rotary_tables"
        )
    if cos.dtype not in (work, torch.float64):
        raise TypeError(
            f"rotate wants tables of {work} or more for an x of {x.dtype}, got {cos.dtype}; "
            "keep them as rotary_tables gives them"
        )
    rows = zip(reversed(cos.shape[:-1]), reversed(x.shape[:-1]), strict=False)
    if cos.ndim > x.ndim or any(have not in (1, want) for have, want in rows) or 2 * cos.shape[-1] > x.shape[-1]:
        raise ValueError(
            f"rotate wants tables that broadcast over x {tuple(x.shape)}, with at most {x.shape[-1] // 2} pairs, "
            f"got {tuple(cos.shape)}; tables with a batch axis need one for the heads too: cos[:, None]"
        )


def integers(name: str, value: Tensor) -> Tensor:
    """`value` as int64 on the CPU; anything but an integer tensor is refused."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} wants an integer tensor, got {type(value).__name__}; wrap it in torch.tensor")
    if is_tensor(name, value).dtype not in INTEGERS:
        raise TypeError(
            f"{name} wants an integer tensor, got {value.dtype}; floats lose whole positions, "
            "and fractions of one are what stretch=Linear(factor) is for"
        )
    return value.to("cpu", torch.int64)
