"""Scores that are a product: by hand, in rectangles, zero vectors, and what is refused."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from regard.spec.forms import unit
from regard.spec.scores import Cosine, Dot, General, ScaledDot
from regard.spec.steps import default_scale


def dot(left: list[float], right: list[float]) -> float:
    return math.fsum(x * y for x, y in zip(left, right, strict=True))


def test_dot(inputs: Any) -> None:
    inputs.agrees(Dot(), lambda q, k, h, i, j: dot(q, k))


def test_scaled_dot(inputs: Any) -> None:
    inputs.agrees(ScaledDot(), lambda q, k, h, i, j: dot(q, k) / math.sqrt(5))
    inputs.agrees(ScaledDot(0.3), lambda q, k, h, i, j: dot(q, k) * 0.3)


def test_general_takes_other_widths(make_inputs: Any) -> None:
    inputs = make_inputs(d_key=4)
    weight = inputs.draw(5, 4, seed=2)
    rows = weight.tolist()
    inputs.agrees(General(weight), lambda q, k, h, i, j: dot(q, [dot(row, k) for row in rows]))
    per_head = inputs.draw(6, 5, 4, seed=3)
    inputs.agrees(General(per_head), lambda q, k, h, i, j: dot(q, [dot(row, k) for row in per_head[h].tolist()]))


def test_cosine(inputs: Any) -> None:
    inputs.agrees(Cosine(3.0), lambda q, k, h, i, j: 3 * dot(q, k) / math.sqrt(dot(q, q) * dot(k, k)))
    assert float(inputs.formula(Cosine(2.0)).abs().max()) <= 2.0


def test_a_zero_vector_scores_zero_and_gets_no_gradient(inputs: Any) -> None:
    query, key = inputs.query.clone(), inputs.key.clone()
    query[0, 0, 0, 3], key[1, 1, 0, 4] = 0.0, 0.0
    leaves = query.requires_grad_(), key.requires_grad_()
    found = Cosine().formula(*leaves, inputs.plane.all)
    assert not found[0, 0, 0, 3].any()
    assert not found[1, 1, :, :, 4].any()
    grads = torch.autograd.grad(found.sum(), leaves)
    assert all(grad.isfinite().all() for grad in grads)
    assert not grads[0][0, 0, 0, 3].any()
    assert not grads[1][1, 1, 0, 4].any()


@pytest.mark.parametrize("size", [1e-320, 1e-200, 1.0, 1e200, 1e307])
def test_unit_vectors_of_any_size(size: float) -> None:
    x = torch.tensor([3.0, -4.0], dtype=torch.float64) * size
    # a subnormal number has few digits: 1e-320 is 2024 of the smallest steps
    bound = 1e-3 if size < 1e-300 else 4 * torch.finfo(torch.float64).eps
    assert float((unit(x) - torch.tensor([0.6, -0.8], dtype=torch.float64)).abs().max()) <= bound
    assert unit(torch.zeros(2, 0)).shape == (2, 0)


def test_the_default_scale() -> None:
    assert default_scale(64) == 0.125
    assert default_scale(0) == 1.0
    assert ScaledDot().factor(16) == 0.25
    assert ScaledDot(2.0).factor(16) == 2.0


def test_parameters_form_and_work() -> None:
    weight = torch.zeros(5, 4)
    assert General(weight).parameters == {"weight": weight}
    assert Dot().parameters == {}
    assert {score.form for score in (Dot(), ScaledDot(), General(weight), Cosine())} == {"product"}
    assert not Dot().positional
    assert Dot().flops(5, 5) == 10
    assert General(weight).prepare_flops(3, 7, 5, 4) == 2 * 3 * 5 * 4


def test_scores_print_and_compare() -> None:
    assert repr(ScaledDot()) == "ScaledDot()"
    assert repr(ScaledDot(0.5)) == "ScaledDot(scale=0.5)"
    assert repr(General(torch.zeros(5, 4))) == "General(<5×4 float32>)"
    assert General(torch.zeros(2, 2)) == General(torch.zeros(2, 2)) != General(torch.ones(2, 2))
    assert Dot() == Dot() != ScaledDot()


FAILURES: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: ScaledDot(float("inf")), ValueError, "ScaledDot's scale must be finite, got inf"),
    (lambda: ScaledDot("1"), TypeError, "ScaledDot's scale must be a number, got str"),  # type: ignore[arg-type]
    (lambda: Cosine(float("nan")), ValueError, "Cosine's scale must be finite, got nan"),
    (lambda: General([[1.0]]), TypeError, "General's weight must be a torch.Tensor, got list"),  # type: ignore[arg-type]
    (lambda: General(torch.zeros(5, 5).long()), TypeError, "General's weight must be float32"),
    (lambda: Dot().check(5, 4, 2, 3), ValueError, "Dot multiplies query and key, so their widths must be equal"),
    (
        lambda: Cosine().check(5, 4, 2, 3),
        ValueError,
        "query has 5, key has 4; project one of them, or use scores.General",
    ),
    (
        lambda: General(torch.zeros(4, 5)).check(5, 4, 2, 3),
        ValueError,
        "(query width, key width) = (5, 4), got (4, 5); a Linear's weight is (out, in): pass weight.mT",
    ),
    (
        lambda: General(torch.zeros(2, 5, 4)).check(5, 4, 2, 3),
        ValueError,
        "must have 2 axes, or 3 with one entry for each of the 6 query heads, got shape (2, 5, 4)",
    ),
]


@pytest.mark.parametrize(("call", "error", "text"), FAILURES)
def test_what_is_refused(call: Callable[[], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        call()
