"""Dropout: every pair owns its random number, so the pattern is the same for any engine, tile or thread.

The native kernels have the same in `native/dropout.h`.

The number of pair (i, j) in batch row b and query head h under `seed` is, in unsigned arithmetic:

    row  = mix64(mix64(mix64(mix64(seed) + b) + h) + i)      64 bits; low and high halves r0, r1
    x    = (low 32 bits of j) + r0
    x   ^= x >> 17;  x *= 0xed5ad4bb;  x ^= x >> 11
    x   ^= r1
    x   *= 0xac4c1b51;  x ^= x >> 15;  x *= 0x31848bab;  x ^= x >> 14

mod 2³², with mix64 the finalizer of splitmix64 after adding 0x9e3779b97f4a7c15. The pair is dropped when
x < ⌊p · 2³²⌋. The second row key enters between the multiplications: with one key alone, rows would be
shifts of each other. Negative seeds and positions count modulo 2⁶⁴. docs/dropout.md has the tests it was put to.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.checks import whole, written
from regard.spec.part import Part
from regard.spec.plane import Pairs
from regard.spec.serialize import register

LOW32 = 0xFFFFFFFF


@register
@dataclass(frozen=True, eq=False, repr=False)
class Dropout(Part):
    """After normalizing, each weight is dropped with probability `p`, the others are multiplied by 1/(1 − p)."""

    family = "dropout"

    p: float
    seed: int

    def __post_init__(self) -> None:
        check_rate(self.p)
        whole("Dropout's seed", self.seed, most=(1 << 64) - 1)

    def numbers(self, pairs: Pairs) -> Tensor:
        """The 32-bit random number of every pair as int64, (batch, kv head, group, query, key)."""
        start = _mix64(torch.tensor(_signed(self.seed), device=pairs.plane.device, dtype=torch.int64))
        row = _mix64(_mix64(_mix64(start + pairs.b) + pairs.h) + pairs.i)
        # a product may overflow int64, but its low half, all that is kept, is right; in place, because nothing in a
        # tile is larger
        x = (pairs.j & LOW32) + (row & LOW32)
        x &= LOW32
        x ^= x >> 17
        x = x.mul_(0xED5AD4BB).bitwise_and_(LOW32)
        x ^= x >> 11
        x ^= _shift(row, 32)
        x = x.mul_(0xAC4C1B51).bitwise_and_(LOW32)
        x ^= x >> 15
        x = x.mul_(0x31848BAB).bitwise_and_(LOW32)
        x ^= x >> 14
        return x

    def kept(self, pairs: Pairs) -> Tensor:
        """True where the weight stays."""
        return self.numbers(pairs) >= int(self.p * 2**32)

    def factors(self, pairs: Pairs, dtype: torch.dtype) -> Tensor:
        """0 or 1/(1 − p)."""
        return self.kept(pairs).to(dtype) * (1.0 / (1.0 - self.p))


def drawn(p: "float | Dropout") -> Dropout | None:
    """A Dropout as it is; a float with a seed from torch's CPU generator; None for 0."""
    if isinstance(p, Dropout):
        return p if p.p > 0 else None
    check_rate(p)
    if p == 0:
        return None
    seed = torch.empty((), dtype=torch.int64, device="cpu").random_(-(2**63), None)
    return Dropout(float(p), int(seed))


def check_rate(p: object) -> None:
    """Refuse what is not a probability below 1."""
    if isinstance(p, bool) or not isinstance(p, (int, float)):
        raise TypeError(f"dropout must be a float or Dropout(p, seed), got {type(p).__name__}; write dropout=0.1")
    if not 0 <= p < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {written(p)}; at 1 nothing would be left")


def _mix64(x: Tensor) -> Tensor:
    x = x + _signed(0x9E3779B97F4A7C15)
    x = (x ^ _shift(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical shift right of int64."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(x: int) -> int:
    return x - 2**64 if x >= 2**63 else x
