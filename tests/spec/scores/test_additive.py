"""Scores v · φ(a + b): by hand, in rectangles, as one layer over the concatenation, and what is refused."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.spec.scores import Additive, ConcatMLP

PHI: dict[str, Callable[[float], float]] = {
    "tanh": math.tanh,
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
}


def dot(left: list[float], right: list[float]) -> float:
    return math.fsum(x * y for x, y in zip(left, right, strict=True))


def test_additive_takes_other_widths(make_inputs: Any) -> None:
    inputs = make_inputs(d_key=4)
    w_query, w_key, v = (inputs.draw(*shape, seed=seed) for seed, shape in ((2, (6, 5)), (3, (6, 4)), (4, (6,))))

    def number(q: list[float], k: list[float], h: int, i: int, j: int) -> float:
        hidden = [math.tanh(dot(a, q) + dot(b, k)) for a, b in zip(w_query.tolist(), w_key.tolist(), strict=True)]
        return dot(v.tolist(), hidden)

    inputs.agrees(Additive(w_query, w_key, v), number)


def test_additive_with_parameters_per_head(inputs: Any) -> None:
    w_query, w_key, v = (
        inputs.draw(*shape, seed=seed) for seed, shape in ((2, (6, 4, 5)), (3, (2, 4, 5)), (4, (6, 4)))
    )

    def number(q: list[float], k: list[float], h: int, i: int, j: int) -> float:
        hidden = [
            math.tanh(dot(a, q) + dot(b, k)) for a, b in zip(w_query[h].tolist(), w_key[h // 3].tolist(), strict=True)
        ]
        return dot(v[h].tolist(), hidden)

    inputs.agrees(Additive(w_query, w_key, v), number)


def test_a_bias_inside_the_hidden_layer(make_inputs: Any) -> None:
    inputs = make_inputs(d_key=4)
    shapes = (2, (6, 5)), (3, (6, 4)), (4, (6,)), (5, (6,))
    w_query, w_key, v, b = (inputs.draw(*shape, seed=seed) for seed, shape in shapes)

    def number(q: list[float], k: list[float], h: int, i: int, j: int) -> float:
        rows = zip(w_query.tolist(), w_key.tolist(), b.tolist(), strict=True)
        return dot(v.tolist(), [math.tanh(dot(one, q) + dot(other, k) + offset) for one, other, offset in rows])

    score = Additive(w_query, w_key, v, b)
    inputs.agrees(score, number)
    assert torch.equal(inputs.formula(score), inputs.formula(ConcatMLP(w_query, w_key, b, v)))
    assert set(score.parameters) == {"w_query", "w_key", "v", "b"}


def test_the_sign_of_query_and_key(inputs: Any) -> None:
    """Without a bias the score changes its sign with query and key; with one it does not."""
    w_query, w_key, v, b = (inputs.draw(*shape, seed=seed) for seed, shape in enumerate(((6, 5), (6, 5), (6,), (6,))))
    for bias in (None, b):
        score = Additive(w_query, w_key, v, bias)
        mirrored = score.formula(-inputs.query, -inputs.key, inputs.plane.all)
        assert torch.equal(inputs.formula(score), -mirrored) is (bias is None)


@pytest.mark.parametrize("activation", PHI)
def test_one_layer_over_the_concatenation(activation: str, inputs: Any) -> None:
    """W [q; k] + b with one matrix, split into its two halves."""
    weight, b, v = inputs.draw(6, 10, seed=2), inputs.draw(6, seed=3), inputs.draw(6, seed=4)
    score = ConcatMLP(weight[:, :5], weight[:, 5:], b, v, activation)

    def number(q: list[float], k: list[float], h: int, i: int, j: int) -> float:
        hidden = [PHI[activation](dot(row, q + k) + one) for row, one in zip(weight.tolist(), b.tolist(), strict=True)]
        return dot(v.tolist(), hidden)

    inputs.agrees(score, number)


def test_without_an_offset(inputs: Any) -> None:
    w_query, w_key, v = inputs.draw(6, 5, seed=2), inputs.draw(6, 5, seed=3), inputs.draw(6, seed=4)
    zero = torch.zeros(6, dtype=torch.float64)
    without, with_zero = (inputs.formula(ConcatMLP(w_query, w_key, b, v)) for b in (None, zero))
    assert torch.equal(without, with_zero)
    assert torch.equal(without, inputs.formula(Additive(w_query, w_key, v)))


def test_parameters_form_and_work() -> None:
    w_query, w_key, b, v = torch.zeros(6, 5), torch.zeros(6, 4), torch.zeros(6), torch.zeros(6)
    score = ConcatMLP(w_query, w_key, b, v)
    assert set(score.parameters) == {"w_query", "w_key", "b", "v"}
    assert set(ConcatMLP(w_query, w_key, None, v).parameters) == {"w_query", "w_key", "v"}
    assert score.form == Additive(w_query, w_key, v).form == "sum"
    assert score.flops(5, 4) == 12
    assert score.prepare_flops(3, 7, 5, 4) == 2 * 6 * (3 * 5 + 7 * 4)
    assert repr(Additive(w_query, w_key, v)) == "Additive(<6×5 float32>, <6×4 float32>, [0.0, 0.0, 0.0, 0.0, 0.0, 0.0])"


def additive(w_query: Tensor, w_key: Tensor, v: Tensor) -> Callable[[], None]:
    return lambda: Additive(w_query, w_key, v).check(5, 4, 2, 3)


def zeros(*shape: int) -> Tensor:
    return torch.zeros(shape)


FAILURES: list[tuple[Callable[[], object], type[Exception], str]] = [
    (
        additive(zeros(6, 4), zeros(6, 4), zeros(6)),
        ValueError,
        "Additive's w_query must end in (6, 5), got shape (6, 4)",
    ),
    (additive(zeros(6, 5), zeros(7, 4), zeros(6)), ValueError, "Additive's w_key must end in (6, 4), got shape (7, 4)"),
    (additive(zeros(6, 5), zeros(6, 4), zeros(7)), ValueError, "Additive's v must end in (6,), got shape (7,)"),
    (
        additive(zeros(5), zeros(6, 4), zeros(6)),
        ValueError,
        "w_query must have 2 axes, or 3 with one entry for each of the 6",
    ),
    (
        additive(zeros(6, 5), zeros(6, 6, 4), zeros(6)),
        ValueError,
        "one entry for each of the 2 key heads, got shape (6, 6, 4)",
    ),
    (
        lambda: Additive(zeros(6, 5), zeros(6, 4), zeros(6), zeros(5)).check(5, 4, 2, 3),
        ValueError,
        "Additive's b must end in (6,), got shape (5,)",
    ),
    (lambda: Additive(1, 2, 3), TypeError, "Additive's w_query must be a torch.Tensor, got int"),  # type: ignore[arg-type]
    (lambda: Additive(zeros(6, 5), zeros(6, 5), zeros(6).long()), TypeError, "Additive's v must be float32"),
    (
        lambda: ConcatMLP(zeros(6, 5), zeros(6, 5), None, zeros(6), "swish"),
        ValueError,
        "ConcatMLP's activation must be one of tanh, relu, gelu, sigmoid, got 'swish'",
    ),
    (
        lambda: ConcatMLP(zeros(6, 5), zeros(6, 5), zeros(5), zeros(6)).check(5, 5, 2, 3),
        ValueError,
        "ConcatMLP's b must end in (6,), got shape (5,)",
    ),
    (
        lambda: ConcatMLP(zeros(6, 5), zeros(6, 5), zeros(3, 6), zeros(6)).check(5, 5, 2, 3),
        ValueError,
        "ConcatMLP's b must have 1 axes, or 2 with one entry for each of the 6 query heads, got shape (3, 6)",
    ),
]


@pytest.mark.parametrize(("call", "error", "text"), FAILURES)
def test_what_is_refused(call: Callable[[], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        call()
