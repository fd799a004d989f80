"""Numbers for readers: as many digits as mean something, the same for numbers that stand together."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.inspection.table import Estimate


def short(value: float, digits: int = 3) -> str:
    """At most `digits` significant digits, but whole numbers whole; `nan`, `inf` and `-inf` by name."""
    if not math.isfinite(value):
        return nonfinite(value)
    if float(value).is_integer() and abs(value) < 1e6:
        return str(int(value))
    if abs(value) >= 1e6 or abs(value) < 1e-4:
        mantissa, _, exponent = scientific(value, digits - 1).partition("e")
        return f"{trimmed(mantissa)}e{exponent}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return trimmed(f"{value:.{decimals}f}")


def trimmed(text: str) -> str:
    """Without zeros at the end of its decimals."""
    return text.rstrip("0").removesuffix(".") if "." in text else text


def nonfinite(value: float) -> str:
    """The name of a value that is not a finite number."""
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def scientific(value: float, decimals: int) -> str:
    """`1.5e-7` rather than `1.5e-07`."""
    mantissa, exponent = f"{value:.{decimals}e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def interval(estimate: "Estimate") -> str:
    """`1.52 [1.31, 1.74]`: two significant digits of the interval's half width decide how many are worth printing."""
    parts = (estimate.mean, estimate.low, estimate.high)
    half = (estimate.high - estimate.low) / 2
    if not all(math.isfinite(part) for part in (*parts, half)) or half <= 0:
        mean, low, high = (short(part) for part in parts)
    else:
        mean, low, high = (uniform(parts, resolution=half / 10).text(part) for part in parts)
    return f"{mean} [{low}, {high}]"


@dataclass(frozen=True)
class Format:
    """One way to print a family of numbers: fixed decimals, or None for powers of ten."""

    decimals: int | None
    leading_zero: bool = True

    def text(self, value: float) -> str:
        """The value as this family prints it."""
        if not math.isfinite(value):
            return nonfinite(value)
        if self.decimals is None:
            return "0" if value == 0 else scientific(value, 1)
        text = f"{value:.{self.decimals}f}"
        if float(text) == 0:
            text = text.lstrip("-")
        if not self.leading_zero:
            # .70 and 1.0 are equally wide
            text = text[1:] if text.startswith("0.") else text[:-1].removesuffix(".")
        return text

    def width(self, values: Iterable[float]) -> int:
        """Columns the widest of the values takes."""
        return max((len(self.text(value)) for value in values), default=1)


def alike(numbers: Sequence[float]) -> list[str]:
    """The numbers of one column: shared decimals, so many that the smallest still has a digit.

    Where sizes differ too much for that, each number has digits of its own.
    """
    sizes = [abs(number) for number in numbers if math.isfinite(number) and number]
    if sizes and (min(sizes) < 1e-3 or max(sizes) >= 1e6):
        return [short(number) for number in numbers]
    least = -math.floor(math.log10(min(sizes))) if sizes else 0
    form = Format(max(least, uniform(sizes).decimals or 0))
    return [form.text(number) for number in numbers]


def uniform(values: Iterable[float], resolution: float | None = None) -> Format:
    """The format for numbers shown together: the largest gets two or three digits, or all are kept to `resolution`.

    Decimals that are zero in every number are left out.
    """
    finite = [float(value) for value in values if math.isfinite(value)]
    top = max(map(abs, finite), default=0.0)
    if top == 0.0 and resolution is None:
        return Format(0)
    if not 1e-3 <= top < 1e6 and top != 0.0:
        return Format(0) if top < 1e15 and resolution is None and all(v.is_integer() for v in finite) else Format(None)
    if resolution is not None:
        return Format(min(max(0, -math.floor(math.log10(resolution))), 12))
    decimals = max(0, 2 - max(0, math.floor(math.log10(top)))) if top >= 0.1 else 1 - math.floor(math.log10(top))
    while decimals > 0 and all(abs(v - round(v, decimals - 1)) < 1e-9 * top for v in finite):
        decimals -= 1
    return Format(decimals)
