"""Scores made from another: soft caps and a user's function, and what is refused."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.spec.scores import Cosine, Dot, General, Modified, ScaledDot, SoftCapped


def dot(left: list[float], right: list[float]) -> float:
    return math.fsum(x * y for x, y in zip(left, right, strict=True))


def test_a_soft_cap(inputs: Any) -> None:
    inputs.agrees(SoftCapped(Dot(), 2.0), lambda q, k, h, i, j: 2 * math.tanh(dot(q, k) / 2))
    assert float(inputs.formula(SoftCapped(Dot(), 0.5)).abs().max()) <= 0.5


def test_a_function_gets_absolute_positions(inputs: Any) -> None:
    slope = inputs.draw(6, seed=2)
    score = Modified(ScaledDot(), lambda s, b, h, i, j: s * 2 + slope[h] * (i - j) + b)

    def number(q: list[float], k: list[float], h: int, i: int, j: int) -> float:
        return 2 * dot(q, k) / math.sqrt(5) + float(slope[h]) * (i - j)

    batch = torch.arange(2).view(2, 1, 1, 1, 1)
    right = inputs.by_hand(number) + batch
    assert float((inputs.formula(score) - right).abs().max()) <= 64 * torch.finfo(torch.float64).eps * 20
    inputs.agrees(Modified(Dot(), lambda s, b, h, i, j: s - j), lambda q, k, h, i, j: dot(q, k) - j)


def test_they_can_be_nested(inputs: Any) -> None:
    score = SoftCapped(Modified(SoftCapped(Dot(), 3.0), lambda s, b, h, i, j: s + i), 5.0)
    inputs.agrees(score, lambda q, k, h, i, j: 5 * math.tanh((3 * math.tanh(dot(q, k) / 3) + i) / 5))


def test_a_function_may_return_less_than_all_pairs(inputs: Any) -> None:
    found = inputs.formula(Modified(Dot(), lambda s, b, h, i, j: 0.5 * j))
    assert torch.equal(found.expand(2, 2, 3, 7, 11)[0, 0, 0, 0], torch.arange(11, dtype=torch.float64) / 2)
    assert inputs.formula(Modified(Dot(), lambda s, b, h, i, j: s.float())).dtype == torch.float64


def test_they_take_over_what_the_inner_score_knows() -> None:
    weight = torch.zeros(5, 4)
    for score in (SoftCapped(General(weight), 2.0), Modified(General(weight), lambda s, b, h, i, j: s)):
        assert score.parameters == {"weight": weight}
        assert score.flops(5, 4) == General(weight).flops(5, 4)
        assert score.prepare_flops(3, 7, 5, 4) == General(weight).prepare_flops(3, 7, 5, 4)
        with pytest.raises(ValueError, match="General's weight"):
            score.check(5, 5, 2, 3)
    assert SoftCapped(Cosine(), 1.0).form == "product"
    assert not SoftCapped(Cosine(), 1.0).positional
    assert Modified(Dot(), lambda s, b, h, i, j: s).form == "function"
    assert Modified(Dot(), lambda s, b, h, i, j: s).positional


def test_scores_print() -> None:
    assert repr(SoftCapped(ScaledDot(), 50.0)) == "SoftCapped(ScaledDot(), 50.0)"

    def louder(s: Tensor, *_: Tensor) -> Tensor:
        return 2 * s

    assert repr(Modified(Dot(), louder)) == "Modified(Dot(), louder)"


# called with what no annotation allows
capped: Any = SoftCapped
modified: Any = Modified
FAILURES: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: capped(Dot(), 0), ValueError, "SoftCapped's cap must be a finite number above 0, got 0"),
    (lambda: capped(Dot(), "5"), TypeError, "SoftCapped's cap must be a number, got str"),
    (
        lambda: capped(5.0, Dot()),
        TypeError,
        "SoftCapped(score, cap) changes one of regard.scores, got float; it comes first",
    ),
    (lambda: modified(Dot(), 3), TypeError, "Modified takes a function of (score, b, h, i, j), got int"),
    (lambda: modified(abs, Dot()), TypeError, "Modified(score, fn) changes one of regard.scores, got builtin_function"),
]


@pytest.mark.parametrize(("call", "error", "text"), FAILURES)
def test_what_is_refused(call: Callable[[], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        call()


RETURNED: list[tuple[Any, type[Exception], str]] = [
    (None, TypeError, "must return the new scores as a tensor, got NoneType"),
    (True, TypeError, "must return the new scores as a tensor, got bool"),
    (
        torch.ones(11, dtype=torch.bool),
        TypeError,
        "must return floating-point numbers, got bool; to hide pairs use masks.Where",
    ),
    (torch.ones(3), ValueError, "(batch, kv head, group, query, key) = (2, 2, 3, 7, 11), got (3,)"),
    (torch.ones(1, 1, 1, 1, 1, 11), ValueError, "got (1, 1, 1, 1, 1, 11)"),
]


@pytest.mark.parametrize(("value", "error", "text"), RETURNED)
def test_what_a_function_must_not_return(value: Any, error: type[Exception], text: str, inputs: Any) -> None:
    with pytest.raises(error, match=re.escape(text)):
        inputs.formula(Modified(Dot(), lambda s, b, h, i, j: value))
