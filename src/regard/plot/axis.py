"""A straight or logarithmic axis: where a value lies on it, and the round values to write beside it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from regard.inspection.number import short, uniform

_LONGEST = 9  # characters of a tick's label
_HAIR = 0.05  # of a step


@dataclass(frozen=True)
class Axis:
    """From `low` to `high`, both finite and different; a logarithmic axis is positive."""

    low: float
    high: float
    log: bool = False

    def holds(self, value: float) -> bool:
        """Whether the axis has a place for this value at all."""
        return math.isfinite(value) and (value > 0 or not self.log)

    def at(self, value: float) -> float:
        """The place of `value`: 0 at low, 1 at high."""
        low, high, place = (_place(v, self.log) for v in (self.low, self.high, value))
        return min(max((place - low) / (high - low), 0.0), 1.0)

    def rounded(self, count: int) -> "Axis":
        """The axis extended to the next round values, if it is straight."""
        step = self._step(count)
        if self.log or step <= 0:
            return self
        low = math.floor(self.low / step + _HAIR) * step
        high = math.ceil(self.high / step - _HAIR) * step
        # a value a hair beyond a round one stays on the axis without a whole step for it
        low, high = min(low, self.low), max(high, self.high)
        return Axis(low, high) if math.isfinite(low) and math.isfinite(high) else self

    def ticks(self, count: int) -> list[float]:
        """About `count` round values inside the axis; its ends where there are none."""
        found = self._powers(count) if self.log else self._multiples(count)
        return found if len(found) > 1 else [self.low, self.high]

    def labels(self, ticks: Iterable[float]) -> list[str]:
        """The ticks in digits, alike on a straight axis."""
        ticks = list(ticks)
        if self.log or len(ticks) < 2:
            return [short(tick) for tick in ticks]
        gap = min(abs(b - a) for a, b in pairwise(ticks))
        # a hair more than the gap, so that a step of 0.1 a rounding below asks for one decimal, not two
        form = uniform(ticks, resolution=gap * 1.001 or 1.0)
        labels = [form.text(tick) for tick in ticks]
        return labels if max(map(len, labels)) <= _LONGEST else [short(tick) for tick in ticks]

    def _step(self, count: int) -> float:
        span = self.high / count - self.low / count
        if not span > 1e-300:
            return 0.0
        power = 10.0 ** math.floor(math.log10(span))
        return next((power * factor for factor in (1, 2, 5, 10) if power * factor >= span * 0.999), 0.0)

    def _multiples(self, count: int) -> list[float]:
        step = self._step(count)
        if step <= 0:
            return []
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, min(last, first + 4 * count) + 1)]

    def _powers(self, count: int) -> list[float]:
        first, last = math.floor(math.log10(self.low)), min(math.ceil(math.log10(self.high)), 308)
        stride = max(1, math.ceil((last - first) / count))
        factors = (1, 2, 5) if last - first <= 2 else (1,)
        values = (factor * 10.0**power for power in range(first, last + 1, stride) for factor in factors)
        return [value for value in values if self.low * (1 - 1e-9) <= value <= self.high * (1 + 1e-9)]


def axis_over(values: Iterable[float], log: bool) -> Axis:
    """The axis that reaches from the least to the greatest of the values it can hold."""
    kept = [float(value) for value in values if math.isfinite(value) and (value > 0 or not log)]
    low, high = min(kept, default=1.0), max(kept, default=1.0)
    if _place(low, log) < _place(high, log):
        return Axis(low, high, log)
    if log:
        return Axis(max(low / 2, 5e-324), min(high * 2, 1e308), log)
    room = abs(low) / 2 or 1.0
    return Axis(low - room if low > -1e308 else low, high + room if high < 1e308 else high)


def _place(value: float, log: bool) -> float:
    # quartered, because the distance between two large numbers can exceed the largest
    return math.log10(value) if log else value / 4
