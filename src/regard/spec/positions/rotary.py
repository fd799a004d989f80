"""Rotary positions (Su et al., 2021): turn each pair of dimensions by an angle proportional to the position."""

import torch
from torch import Tensor

from regard.checks import is_tensor, written
from regard.spec.positions.frequencies import FARTHEST
from regard.spec.positions.rotation import Pairing, check_input, integers, rotary_tables, rotate
from regard.spec.positions.stretch import Stretch


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
