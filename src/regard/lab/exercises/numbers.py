"""Numbers that a student gives: read from JSON, compared to two decimals or so many digits, rounded for print.

A number may be an expression in a text: "1/2", "e^2", "√2", "2 ln 3" is written "2 * ln(3)".
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

TOLERANCE = 0.005 + 1e-9  # two decimals are enough
PRINTED = 4  # decimals or significant digits of a right answer
LONGEST = 200  # letters of an expression
FORMS = ("a number", "a list of numbers, as in [1, 2]", "a list of rows, as in [[1, 2], [3, 4]]")


def read(given: object, axes: int) -> Tensor:
    """The number (0 axes), list (1) or matrix (2) that was given; a ValueError says why it is none.

    Tensors and arrays are read too, as a whole or as entries of a list.
    """
    entries = as_lists(given)
    if axes == 0:
        if isinstance(entries, list):
            raise ValueError(f"give {FORMS[0]}, not a list")
        return _tensor([entries], axes)[0]
    if not isinstance(entries, list):
        raise ValueError(f"give {FORMS[axes]}")
    if not entries or (axes == 2 and entries[0] == []):
        raise ValueError(f"the {'list' if axes == 1 else 'matrix'} is empty")
    if axes == 1:
        return _tensor(entries, axes)
    if not all(isinstance(row, list) for row in entries):
        raise ValueError(f"give {FORMS[2]}")
    lengths = [len(row) for row in entries]
    if len(set(lengths)) > 1:
        raise ValueError(f"rows must be equally long, got lengths {', '.join(map(str, lengths))}")
    return _tensor([entry for row in entries for entry in row], axes).view(len(entries), -1)


def as_lists(given: object) -> object:
    """Sequences, tensors and arrays as lists, at every depth; anything else as it is."""
    if hasattr(given, "tolist"):
        return given.tolist()
    if isinstance(given, Sequence) and not isinstance(given, str):
        return [as_lists(entry) for entry in given]
    return given


def _tensor(entries: Sequence[object], axes: int) -> Tensor:
    numbers = []
    for entry in entries:
        if isinstance(entry, list):
            raise ValueError(f"give {FORMS[axes]}")
        if isinstance(entry, str):
            numbers.append(evaluate(entry))
        elif isinstance(entry, bool) or not isinstance(entry, int | float):
            raise ValueError(f"{f'give {FORMS[0]}' if axes == 0 else 'entries must be numbers'}, got {entry!r}")
        else:
            numbers.append(entry)
    try:
        values = torch.tensor(numbers, dtype=torch.float64)
    except OverflowError:  # an integer beyond any float
        values = torch.tensor(torch.inf)
    if not bool(values.isfinite().all()):
        raise ValueError("entries must be finite numbers")
    return values


_NAMES = {"e": math.e, "pi": math.pi, "π": math.pi}
_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "sqrt": math.sqrt,
    "exp": math.exp,
    "ln": math.log,
    "log": math.log,
    "tanh": math.tanh,
    "cos": math.cos,
    "sin": math.sin,
}
_OPERATIONS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: math.pow,
}


def evaluate(text: str) -> float:
    """The value of an expression in numbers, e, π and a few functions; a ValueError says what it cannot read."""
    plain = text.strip().replace("−", "-").replace("·", "*").replace("×", "*").replace("^", "**").replace("²", "**2")
    plain = re.sub(r"√\s*([\w.]+)", r"sqrt(\1)", plain).replace("√", "sqrt")
    try:
        if len(plain) > LONGEST:
            raise ValueError("too long")
        return _value(ast.parse(plain, mode="eval").body)
    except (SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError):
        example = "a number or an expression such as 0.5, 1/2, e^2 or sqrt(2)"
        raise ValueError(f"give {example}, got {text[:40]!r}") from None


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return float(number)
        case ast.Name(id=name):
            return _NAMES[name] if name in _NAMES else _unknown()
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner)
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return _value(inner)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            return float(_OPERATIONS[type(op)](_value(left), _value(right)))
        case ast.Call(func=ast.Name(id=name), args=[inner], keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](_value(inner))
    return _unknown()


def _unknown() -> float:
    raise ValueError("no number")


def slack(value: Tensor, digits: int | None) -> Tensor:
    """How far from `value` counts as the same: half of its last digit."""
    return torch.full_like(value, TOLERANCE) if digits is None else 0.5 * _last_digit(value, digits) * (1 + 1e-9)


def close(given: Tensor, value: Tensor, digits: int | None) -> bool:
    """Whether shapes and every entry agree; of a number above 1, one decimal is enough, as 7.4 for 7.389."""
    if given.shape != value.shape:
        return False
    error = (given - value).abs()
    agree = error <= slack(value, digits)
    if digits is None:
        tenths = given * 10
        one_decimal = same_entries(tenths, tenths.round()) & ~same_entries(given, given.round())
        agree |= one_decimal & (value.abs() >= 1) & (error <= 0.05 + 1e-9)
    return bool(agree.all())


def coarse(given: Tensor, truth: Tensor, digits: int | None) -> str:
    """What to say of right numbers with too few digits, or cut off where they should be rounded; empty for others."""
    if digits is not None:
        if any(rounds_to(given, truth, _last_digit(truth, fewer)) for fewer in range(1, digits)):
            return f"right as far as it goes, but rounded too coarsely: give at least {digits} significant digits"
    elif rounds_to(given, truth, torch.full_like(truth, 0.1)):
        return "right as far as it goes, but rounded too coarsely: give at least two decimals"
    elif same(given, (truth * 100).floor() / 100):
        return "right as far as it goes, but cut off after two decimals: round instead"
    return ""


def rounds_to(given: Tensor, truth: Tensor, unit: Tensor) -> bool:
    """Whether every given number is the truth, rounded to a multiple of the unit; a tie may be rounded either way."""
    steps = given / unit
    near = (given - truth).abs() <= 0.5 * unit * (1 + 1e-9)
    return bool((near & same_entries(steps, steps.round())).all())


def same(given: Tensor, value: Tensor) -> bool:
    """Whether every entry agrees to nine digits."""
    return bool(same_entries(given, value).all())


def same_entries(given: Tensor, value: Tensor) -> Tensor:
    """Where entries agree to nine digits."""
    return (given - value).abs() <= 1e-9 * value.abs().clamp_max(1)


def rounded(value: Tensor, digits: int | None) -> object:
    """As JSON holds it, short enough to read; integers without a point."""
    return _plain(
        (value.round(decimals=PRINTED) if digits is None else _significant(value, max(digits, PRINTED))).tolist()
    )


def _significant(value: Tensor, digits: int) -> Tensor:
    unit = _last_digit(value, digits)
    return (value / unit).round() * unit


def _last_digit(value: Tensor, digits: int) -> Tensor:
    """The unit of the last of so many significant digits."""
    return 10 ** (value.abs().clamp_min(1e-300).log10().floor() - digits + 1)


def _plain(given: object) -> object:
    if isinstance(given, list):
        return [_plain(each) for each in given]
    assert isinstance(given, float)
    return int(given) if given.is_integer() else float(f"{given:.12g}")
