"""Rotary positions (Su et al., 2021): turn each pair of dimensions by an angle proportional to the position."""

from typing import Literal

import torch
from torch import Tensor

from regard.checks import is_tensor, written
from regard.spec.positions.sinusoidal import FARTHEST, FLOATS, inverse_frequencies
from regard.spec.positions.stretch import Stretch

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)

Pairing = Literal["half", "interleaved"]


def rotary(
    x: Tensor,
    start: int | Tensor = 0,
    *,
    positions: Tensor | None = None,
    base: float = 10000.0,
    width: int | None = None,
    pairing: Pairing = "half",
    stretch: Stretch | None = None,
) -> Tensor:
    """Rotate queries or keys `x` (..., length, width) by their positions; same shape, same dtype.

    Row 0 stands at absolute position `start`: an int, or an integer tensor (batch,) with one start per batch row
    of an x (batch, ..., length, width). Rows that do not follow one another take `positions` instead, (length,) or
    (batch, length). Positions may be negative.

    Pair i of the first `width` dimensions (all of them by default) turns by position · base^(-2i/width), so the score
    of a rotated query and a rotated key depends on their distance alone; the other dimensions pass untouched.
    `pairing` says which two dimensions form pair i: i and i + width/2 ("half": LLaMA, GPT-NeoX), or 2i and 2i + 1
    ("interleaved": RoFormer, GPT-J). `stretch` changes the frequencies for long contexts.

    Angles are float64 on the CPU, whatever device or autocast is active. float16 and bfloat16 are rotated in float32
    and rounded once. To share one set of cosines between layers, use `rotary_tables` and `rotate`.
    """
    check_input(x)
    rows = _follow(x, start) if positions is None else _explicit(x, start, positions)
    cos, sin = rotary_tables(_aligned(x, rows), _rotated_width(x, width), base=base, stretch=stretch)
    return rotate(x, cos, sin, pairing)


def _rotated_width(x: Tensor, width: int | None) -> int:
    whole: int = x.shape[-1]
    if width is None:
        if whole < 2 or whole % 2:
            raise ValueError(
                f"rotary wants an even width, got x {tuple(x.shape)}; "
                "pass width= to rotate the first few dimensions only"
            )
        return whole
    if isinstance(width, bool) or not isinstance(width, int):
        raise TypeError(f"rotary wants width to be an int or None, got {width!r}")
    if width < 2 or width % 2 or width > whole:
        raise ValueError(f"rotary wants width to be even, at least 2 and at most the {whole} of x, got {width}")
    return width


def _follow(x: Tensor, start: int | Tensor) -> Tensor:
    """Positions start, start + 1, ...: (length,), or (batch, length) when there is a start per batch row."""
    steps = torch.arange(x.shape[-2], device="cpu")
    if isinstance(start, Tensor):
        if is_tensor("start", start).ndim > 1:
            raise ValueError(
                f"rotary wants start to be an int or a tensor (batch,), got {tuple(start.shape)}; "
                "a position for each row goes to positions="
            )
        start = integers("start", start)
        return start.unsqueeze(-1) + steps if start.ndim else start + steps
    if isinstance(start, bool) or not isinstance(start, int):
        raise TypeError(f"rotary wants start to be an int or an integer tensor (batch,), got {start!r}")
    if abs(start) > FARTHEST:
        raise ValueError(f"rotary wants start within ±2**62, got {written(start)}")
    return start + steps


def _explicit(x: Tensor, start: int | Tensor, positions: Tensor) -> Tensor:
    if isinstance(start, Tensor) or start != 0:
        raise ValueError(f"rotary wants start or positions, not both, got start={start!r} and positions; drop one")
    positions = integers("positions", positions)
    if positions.ndim not in (1, 2) or positions.shape[-1] != x.shape[-2]:
        raise ValueError(
            f"rotary wants positions (length,) or (batch, length) for the {x.shape[-2]} rows of x {tuple(x.shape)}, "
            f"got {tuple(positions.shape)}; one start per batch row goes to start="
        )
    return positions


def _aligned(x: Tensor, rows: Tensor) -> Tensor:
    """(length,) as it is; (batch, length) with the axes between them, so that it broadcasts over x.shape[:-1]."""
    if rows.ndim == 1:
        return rows
    batch, length = rows.shape
    if x.ndim < 3 or batch not in (1, x.shape[0]):
        raise ValueError(
            "rotary wants one row of positions per batch row of x (batch, ..., length, width), "
            f"got {batch} for x {tuple(x.shape)}"
        )
    return rows.reshape(batch, *[1] * (x.ndim - 3), length)


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
    rows = range(2, 1 + min(cos.ndim, x.ndim))  # torch 2.9 cannot compile a zip of different lengths
    fits = all(cos.shape[-axis] in (1, x.shape[-axis]) for axis in rows)
    if cos.ndim > x.ndim or not fits or 2 * cos.shape[-1] > x.shape[-1]:
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
