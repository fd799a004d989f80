"""Numbers that a student gives: read from JSON, compared to two decimals or so many digits, rounded for print."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.lab.exercises.words import listed

Numbers = Tensor | float | Sequence[float] | Sequence[Sequence[float]] | Sequence[Sequence[Sequence[float]]]

TOLERANCE = 0.005 + 1e-9  # two decimals are enough
SHOWN = 4  # decimals or significant digits of a right answer


def tensor(given: Numbers) -> Tensor:
    """In float64, whatever it is written as."""
    return torch.as_tensor(given, dtype=torch.float64)


def read(given: object, axes: int) -> tuple[Tensor | None, str]:
    """The number (0 axes), list (1) or matrix (2) that was given, or what keeps it from being one.

    Tensors and arrays are welcome too, whole or as entries of a list.
    """
    given = _listed(given)
    wanted = ("a number", "a list of numbers, as in [1, 2]", "a list of rows, as in [[1, 2], [3, 4]]")[axes]
    if axes == 0:
        return _entries([given], wanted) if listed(given) is None else (None, f"give {wanted}, not a list")
    entries = listed(given)
    if entries is None:
        return None, f"give {wanted}"
    if axes == 1:
        return _entries(entries, wanted) if entries else (None, "the list is empty")
    rows = [listed(entry) for entry in entries]
    if not rows or not rows[0]:
        return None, "the matrix is empty" if not rows or rows[0] == [] else f"give {wanted}"
    lengths = [len(row) for row in rows if row is not None]
    if len(lengths) < len(rows):
        return None, f"give {wanted}"
    if len(set(lengths)) > 1:
        return None, f"rows must be equally long, got lengths {', '.join(map(str, lengths))}"
    flat, problem = _entries([entry for row in rows for entry in row or ()], wanted)
    return (None if flat is None else flat.view(len(rows), -1)), problem


def _listed(given: object) -> object:
    if hasattr(given, "tolist"):
        return given.tolist()
    entries = listed(given)
    return given if entries is None else [_listed(entry) for entry in entries]


def _entries(entries: Sequence[object], wanted: str) -> tuple[Tensor | None, str]:
    for entry in entries:
        if isinstance(entry, bool) or not isinstance(entry, int | float):
            nested = listed(entry) is not None
            single = (
                f"give {wanted}, got {entry!r}" if wanted == "a number" else f"entries must be numbers, got {entry!r}"
            )
            return None, f"give {wanted}" if nested else single
    try:
        found = torch.tensor(entries, dtype=torch.float64)
    except OverflowError:  # an integer beyond any float
        return None, "entries must be finite numbers"
    if not bool(found.isfinite().all()):
        return None, "entries must be finite numbers"
    return (found[0] if wanted == "a number" else found), ""


def slack(value: Tensor, digits: int | None) -> Tensor:
    """How far from `value` counts as the same: half of its last digit."""
    if digits is None:
        return torch.full_like(value, TOLERANCE)
    power = value.abs().clamp_min(1e-300).log10().floor()
    return 0.5 * 10 ** (power - digits + 1) * (1 + 1e-9)


def close(found: Tensor, value: Tensor, allowed: Tensor) -> bool:
    """Whether every entry agrees."""
    return found.shape == value.shape and bool(((found - value).abs() <= allowed).all())


def coarse(found: Tensor, truth: Tensor, digits: int | None) -> str:
    """Right numbers with too few digits, or cut off where they should be rounded."""
    text = "right as far as it goes, but rounded too coarsely: give at least"
    if digits is not None:
        few = any(_same(found, rounded_to(truth, less)) for less in range(1, digits))
        return f"{text} {digits} significant digits" if few else ""
    if _same(found, truth.round(decimals=1)):
        return f"{text} two decimals"
    if _same(found, (truth * 100).floor() / 100):
        return "right as far as it goes, but cut off after two decimals: round instead"
    return ""


def whole(found: Tensor, truth: Tensor, digits: int | None) -> str:
    """Right numbers rounded to whole ones: to be said only when no mistake leads to them."""
    if digits is None and _same(found, truth.round()):
        return "right as far as it goes, but rounded too coarsely: give at least two decimals"
    return ""


def _same(found: Tensor, value: Tensor) -> bool:
    return bool(((found - value).abs() <= 1e-9 * value.abs().clamp_max(1)).all())


def rounded_to(value: Tensor, digits: int) -> Tensor:
    """To so many significant digits."""
    unit = 10 ** (value.abs().clamp_min(1e-300).log10().floor() - digits + 1)
    return (value / unit).round() * unit


def rounded(value: Tensor, digits: int | None) -> object:
    """As JSON holds it, short enough to read; whole numbers without a point."""
    shown = value.round(decimals=SHOWN) if digits is None else rounded_to(value, max(digits, SHOWN))
    return _plain(shown.tolist())


def _plain(given: object) -> object:
    if isinstance(given, list):
        return [_plain(each) for each in given]
    assert isinstance(given, float)
    return int(given) if given.is_integer() else float(f"{given:.12g}")
