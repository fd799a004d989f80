"""Worked lines are true: every part between two equality signs is read back and evaluated.

Numbers are shown rounded, so each stands for an interval; two parts agree when their intervals meet.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from regard import Dropout, biases, masks, normalizers, scores
from regard.inspection.explain import Explanation, explain, project

Interval = tuple[float, float]
TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?(?:×10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)?|e\^|[a-z]+(?=\()|[-+−·/²√|(),∞])")
PLAIN = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


class Unreadable(Exception):
    """The text is not arithmetic."""


def hull(function: Callable[[float], float], *intervals: Interval) -> Interval:
    low, high = intervals[0]
    values = [function(low), function((low + high) / 2), function(high)]
    return min(values), max(values)


def gelu(x: float) -> float:
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


FUNCTIONS: dict[str, Callable[[float], float]] = {
    "tanh": math.tanh,
    "ln": math.log,
    "relu": lambda x: max(x, 0.0),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "gelu": gelu,
}


@dataclass
class Reader:
    """Recursive descent over the text of a formula, in intervals."""

    tokens: list[str]
    digits: int

    def sum(self) -> Interval:
        low, high = self.product()
        while self.tokens and self.tokens[0] in "+−":
            sign = self.tokens.pop(0)
            other = self.product()
            low, high = (low + other[0], high + other[1]) if sign == "+" else (low - other[1], high - other[0])
        return low, high

    def product(self) -> Interval:
        left = self.signed()
        while self.tokens and self.tokens[0] in "·/":
            sign = self.tokens.pop(0)
            right = self.signed()
            if sign == "/":
                assert not right[0] <= 0 <= right[1], "division by zero"
                right = (1 / right[1], 1 / right[0])
            corners = [a * b for a in left for b in right]
            left = min(corners), max(corners)
        return left

    def signed(self) -> Interval:
        if self.tokens[:1] == ["−"]:
            self.tokens.pop(0)
            low, high = self.signed()
            return -high, -low
        low, high = self.atom()
        if self.tokens[:1] == ["²"]:
            self.tokens.pop(0)
            ends = low * low, high * high
            return (0.0 if low <= 0 <= high else min(ends)), max(ends)
        return low, high

    def atom(self) -> Interval:
        if not self.tokens:
            raise Unreadable
        token = self.tokens.pop(0)
        if token == "(":
            return self.closed(")")
        if token == "|":
            low, high = self.closed("|")
            return (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
        if token == "√":
            return hull(math.sqrt, self.atom())
        if token == "e^":
            return hull(math.exp, self.atom())
        if token == "max":
            return self.largest()
        if token in FUNCTIONS:
            self.tokens.pop(0)
            return hull(FUNCTIONS[token], self.closed(")"))
        if token[0].isdigit():
            return self.number(token)
        raise Unreadable

    def closed(self, by: str) -> Interval:
        inner = self.sum()
        if not self.tokens or self.tokens.pop(0) != by:
            raise Unreadable
        return inner

    def largest(self) -> Interval:
        self.tokens.pop(0)
        found = [self.sum()]
        while self.tokens and self.tokens.pop(0) == ",":
            found.append(self.sum())
        return max(low for low, _ in found), max(high for _, high in found)

    def number(self, token: str) -> Interval:
        """A number with all its decimals is rounded, one with fewer is exact but for float noise."""
        mantissa, _, exponent = token.partition("×10")
        power = int(exponent.translate(PLAIN)) if exponent else 0
        value = float(mantissa) * 10.0**power
        places = len(mantissa.partition(".")[2]) + (1 if exponent else 0)
        slack = 0.51 * 10.0 ** (power - places + (1 if exponent else 0)) if places == self.digits else 2e-6 * value
        return value - slack, value + slack


def evaluate(text: str, digits: int = 4) -> Interval:
    """The interval that the text stands for."""
    tokens, at = [], 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None or match[1] in "∞":
            raise Unreadable(text)
        tokens.append(match[1])
        at = match.end()
    reader = Reader(tokens, digits)
    found = reader.sum()
    if reader.tokens:
        raise Unreadable(text)
    return found


def check_line(line: str, digits: int = 4) -> int:
    """Assert that all readable parts agree with the last; the number of comparisons."""
    count = 0
    for chain in line.split("; "):
        intervals = []
        for part in chain.split(" = "):
            try:
                intervals.append(evaluate(part, digits))
            except Unreadable:
                continue
        for low, high in intervals[:-1]:
            assert max(low, intervals[-1][0]) <= min(high, intervals[-1][1]), line
            count += 1
    return count


def check_all(explanation: Explanation) -> int:
    """Every worked line of an explanation."""
    return sum(check_line(each.math.text, explanation.digits) for step in explanation.steps for each in step.worked)


@pytest.mark.parametrize(
    "line",
    ["1·1 + 0·0 = 1", "1/√2 = 0.7071", "e^0.7071/(e^0.7071 + e^0 + e^0.7071) = 0.4011", "−0.0039·|2 − 4| = −0.0078"],
)
def test_the_checker_accepts_what_is_true(line: str) -> None:
    assert check_line(line) == 1


@pytest.mark.parametrize(
    "line",
    ["1·1 + 0·0 = 2", "1/√2 = 0.7073", "e^0.7071/5.0562 = 0.4014", "√(1² + 1²) = 1.4141", "(−2)·3 = 6", "1 = nan = 2"],
)
def test_the_checker_rejects_what_is_false(line: str) -> None:
    with pytest.raises(AssertionError):
        check_line(line)


def test_the_checker_knows_what_it_cannot_read() -> None:
    assert check_line("i = 2, j = 0: visible") == 0
    with pytest.raises(Unreadable):
        evaluate("0.1 + … + 0.2")


def numbers(*size: int) -> Tensor:
    return torch.randn(*size, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(size)))


QUERY, KEY, VALUE = numbers(3, 2), numbers(5, 2), numbers(5, 3)
SCORES = [
    scores.Dot(),
    scores.ScaledDot(),
    scores.ScaledDot(0.3),
    scores.General(numbers(2, 2)),
    scores.Cosine(),
    scores.Cosine(5.0),
    scores.Additive(numbers(4, 2), numbers(4, 2), numbers(4)),
    scores.ConcatMLP(numbers(4, 2), numbers(4, 2), numbers(4), numbers(4), "gelu"),
    scores.ConcatMLP(numbers(4, 2), numbers(4, 2), None, numbers(4), "sigmoid"),
    scores.ConcatMLP(numbers(4, 2), numbers(4, 2), numbers(4), numbers(4), "relu"),
    scores.Relative(numbers(5, 2)),
    scores.Relative(numbers(3, 2), numbers(2), numbers(2), None),
    scores.SoftCapped(scores.ScaledDot(), 0.7),
    scores.SoftCapped(scores.Additive(numbers(4, 2), numbers(4, 2), numbers(4)), 2.0),
]


@pytest.mark.parametrize("score", SCORES, ids=repr)
def test_scores(score: scores.Score) -> None:
    for row in range(3):
        assert check_all(explain(QUERY, KEY, VALUE, score=score, row=row)) >= 5 + 5 + 3


@pytest.mark.parametrize(
    "normalizer",
    [
        normalizers.Softmax(),
        normalizers.Softmax(0.3),
        normalizers.Softmax(-30.0),
        normalizers.Sparsemax(),
        normalizers.Hard(),
    ],
    ids=repr,
)
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
def test_normalizers_with_mask_bias_temperature_and_dropout(normalizer: normalizers.Normalizer, size: float) -> None:
    for row in range(3):
        explanation = explain(
            size * QUERY,
            KEY,
            VALUE,
            mask=masks.Causal(),
            bias=biases.ALiBi(1) + biases.Distance(numbers(5)),
            temperature=0.7,
            normalizer=normalizer,
            dropout=Dropout(0.3, 11),
            row=row,
        )
        assert check_all(explanation) >= 10


@pytest.mark.parametrize("digits", [1, 2, 6, 10])
def test_any_number_of_digits(digits: int) -> None:
    assert check_all(explain(QUERY, KEY, VALUE, digits=digits)) >= 10


def test_projections() -> None:
    explanation = explain(project(numbers(3, 4), numbers(4, 2), numbers(4, 2), numbers(4, 3)))
    assert check_all(explanation) >= 2 + 2 + 3 + 3 + 3 + 3
    crossed = explain(project(numbers(3, 4), numbers(4, 2), numbers(6, 2), numbers(6, 3), memory=numbers(5, 6)))
    assert check_all(crossed) >= 20


def test_float32_noise_is_no_digit() -> None:
    inputs = [torch.tensor([[0.1, 0.2], [0.3, 0.7]]) for _ in range(3)]
    first = explain(*inputs, score=scores.Dot()).steps[1].worked[0].math.text
    assert first == "q·k = 0.1·0.1 + 0.2·0.2 = 0.05"
