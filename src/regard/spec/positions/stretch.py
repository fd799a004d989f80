"""Stretches: frequencies for a rotation that must reach further than the model was trained for."""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from regard.checks import LARGEST, written
from regard.spec.positions.sinusoidal import inverse_frequencies, is_finite, is_number


class Stretch(Protocol):
    """Anything with this method stretches a rotation; `rotary` asks for nothing more."""

    def frequencies(self, width: int, base: float) -> tuple[Tensor, float]:
        """Radians per position of each pair, (width / 2,) float64 on the CPU, and the attention factor.

        The attention factor multiplies cosines and sines, so a score of two rotated vectors has its square.
        """
        ...


@dataclass(frozen=True)
class Linear:
    """Position interpolation (Chen et al., 2023): every position is divided by `factor`."""

    factor: float

    def __post_init__(self) -> None:
        _check_factor(self)

    def frequencies(self, width: int, base: float) -> tuple[Tensor, float]:
        return inverse_frequencies(width, base) / self.factor, 1.0


@dataclass(frozen=True)
class NTK:
    """NTK-aware scaling: base × factor^(width / (width − 2)).

    The fastest pair keeps its frequency, the slowest is slowed by exactly `factor`.
    """

    factor: float

    def __post_init__(self) -> None:
        _check_factor(self)

    def frequencies(self, width: int, base: float) -> tuple[Tensor, float]:
        if width < 4:
            raise ValueError(
                f"NTK wants a rotary width of at least 4, got {width}; "
                "with a single pair there is no slower one to stretch: use Linear"
            )
        return inverse_frequencies(width, base * self.factor ** (width / (width - 2))), 1.0


@dataclass(frozen=True)
class YaRN:
    """YaRN (Peng et al., 2023): fast pairs stay, slow pairs are interpolated, a ramp lies between.

    A pair that turns more than `beta_fast` times within `original_length` positions keeps its frequency; one that
    turns less than `beta_slow` times is slowed by `factor`. The ramp is linear in the pair's index; `truncate`
    rounds its two ends outwards to whole indices. `attention_factor` is `yarn_scale(factor)` unless given.
    """

    factor: float
    original_length: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    truncate: bool = True

    def __post_init__(self) -> None:
        _check_factor(self)
        _check_length(self, self.original_length)
        for name in ("beta_fast", "beta_slow"):
            _check_positive(self, name, getattr(self, name))
        if self.beta_fast <= self.beta_slow:
            raise ValueError(
                f"YaRN wants beta_fast greater than beta_slow, got {self.beta_fast} and {self.beta_slow}; "
                "they count turns within original_length, and fast pairs make more of them"
            )
        if self.attention_factor is not None:
            _check_positive(self, "attention_factor", self.attention_factor)

    def frequencies(self, width: int, base: float) -> tuple[Tensor, float]:
        plain = inverse_frequencies(width, base)
        low, high = self._ramp_ends(width, base)
        index = torch.arange(width // 2, dtype=torch.float64, device="cpu")
        ramp = ((index - low) / (high - low)).clamp(0, 1)
        factor = yarn_scale(self.factor) if self.attention_factor is None else self.attention_factor
        return ramp * plain / self.factor + (1 - ramp) * plain, float(factor)

    def _ramp_ends(self, width: int, base: float) -> tuple[float, float]:
        def index_of(turns: float) -> float:
            return width * math.log(self.original_length / (2 * math.pi * turns)) / (2 * math.log(base))

        low, high = index_of(self.beta_fast), index_of(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        # The upper bound counts dimensions, not pairs, as in the published code that models were trained with.
        low, high = max(low, 0), min(high, width - 1)
        if high < low:
            raise ValueError(
                f"YaRN finds no pair near {self.beta_slow} to {self.beta_fast} turns within original_length "
                f"{self.original_length} at width {width} and base {base}; "
                "give the length the model was trained with, or use Linear or NTK"
            )
        return low, high if high > low else low + 0.001


@dataclass(frozen=True)
class Llama3:
    """The stretch of Llama 3.1 and later: like YaRN's, with a ramp that is linear in the number of turns.

    A pair that turns more than `high_freq_factor` times within `original_length` positions keeps its frequency; one
    that turns less than `low_freq_factor` times is slowed by `factor`. The defaults are the published ones.
    """

    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_length: int = 8192

    def __post_init__(self) -> None:
        _check_factor(self)
        _check_length(self, self.original_length)
        for name in ("low_freq_factor", "high_freq_factor"):
            _check_positive(self, name, getattr(self, name))
        if self.high_freq_factor <= self.low_freq_factor:
            raise ValueError(
                "Llama3 wants high_freq_factor greater than low_freq_factor, "
                f"got {self.high_freq_factor} and {self.low_freq_factor}; swap them"
            )

    def frequencies(self, width: int, base: float) -> tuple[Tensor, float]:
        plain = inverse_frequencies(width, base)
        turns = self.original_length * plain / (2 * math.pi)
        keep = ((turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)).clamp(0, 1)
        return (1 - keep) * plain / self.factor + keep * plain, 1.0


def yarn_scale(factor: float, weight: float = 1.0) -> float:
    """YaRN's 0.1 · weight · ln(factor) + 1, called mscale in configurations.

    DeepSeek's pair of settings is `attention_factor=yarn_scale(factor, mscale) / yarn_scale(factor, mscale_all_dim)`.
    """
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def _check_factor(stretch: Linear | NTK | YaRN | Llama3) -> None:
    owner, factor = type(stretch).__name__, stretch.factor
    expected = f"{owner} wants factor to be a finite number of at least 1 (4.0 reaches four times as far)"
    if not is_number(factor):
        raise TypeError(f"{expected}, got {factor!r}")
    if not (is_finite(factor) and factor >= 1):
        raise ValueError(f"{expected}, got {written(factor)}")


def _check_length(stretch: YaRN | Llama3, length: int) -> None:
    expected = f"{type(stretch).__name__} wants original_length to be the int length the model was trained with"
    if isinstance(length, bool) or not isinstance(length, int):
        raise TypeError(f"{expected}, got {length!r}")
    if length < 1:
        raise ValueError(f"{expected}, at least 1, got {written(length)}")
    if length > LARGEST:
        raise ValueError(f"{expected}, at most 2**63 - 1, got {written(length)}")


def _check_positive(stretch: YaRN | Llama3, name: str, value: float) -> None:
    expected = f"{type(stretch).__name__} wants {name} to be a finite number greater than 0"
    if not is_number(value):
        raise TypeError(f"{expected}, got {value!r}")
    if not (is_finite(value) and value > 0):
        raise ValueError(f"{expected}, got {written(value)}")
