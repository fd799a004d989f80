"""Normalizers on rows of logits: definitions, laws, hidden pairs, derivatives."""

import re

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from regard.spec.normalizers import Hard, Normalizer, Softmax, Sparsemax

EPS = torch.finfo(torch.float64).eps


def rows(seed: int = 0) -> Tensor:
    """Logits of 20 rows over 9 keys, some hidden, the last row without any."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(20, 9, generator=generator, dtype=torch.float64)
    logits = logits.masked_fill(torch.rand(20, 9, generator=generator) < 0.3, -torch.inf)
    logits[-1] = -torch.inf
    return logits


def within(actual: Tensor, expected: Tensor, bound: float) -> None:
    """No element further away; fails on NaN."""
    assert actual.shape == expected.shape
    assert float((actual - expected).abs().max()) <= bound


def test_hard_takes_the_first_of_the_largest() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0], [-torch.inf, -5.0, -6.0], [-torch.inf] * 3, [2.0, 2.0, 2.0]])
    weights, state = Hard().weights(logits)
    assert torch.equal(weights, torch.tensor([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]))
    assert torch.equal(state, torch.tensor([1, 1, -1, 0]))


def test_hard_passes_no_gradient() -> None:
    logits = rows().requires_grad_()
    weights, _ = Hard().weights(logits)
    assert not weights.requires_grad
    assert not Hard().backward(weights, torch.ones_like(weights)).any()


def test_sparsemax_is_the_nearest_point_of_the_simplex() -> None:
    """At the nearest point w of a convex set, (x − w)·(z − w) ≤ 0 for every other point z: the corners suffice."""
    logits = rows()[:-1]
    weights, state = Sparsemax().weights(logits)
    assert (weights >= 0).all()
    within(weights.sum(-1), torch.ones(19, dtype=torch.float64), 9 * EPS)
    seen = logits != -torch.inf
    x = torch.where(seen, logits, 0.0)
    for corner in range(9):
        z = torch.eye(9, dtype=torch.float64)[corner]
        product = (torch.where(seen, x - weights, 0.0) * (z - weights)).sum(-1)
        assert (product[seen[:, corner]] <= 64 * EPS * x.abs().max()).all()
    assert ((weights == 0) & seen).any()
    within(weights, torch.where(seen, x - state.unsqueeze(-1), 0.0).clamp(min=0), 8 * EPS * float(x.abs().max()))


def test_sparsemax_of_few_keys() -> None:
    logits = torch.tensor([[0.0, 0.0], [0.3, -0.1], [2.0, 0.0], [-7.0, -torch.inf], [1e30, -1e30]], dtype=torch.float64)
    weights, _ = Sparsemax().weights(logits)
    right = torch.tensor([[0.5, 0.5], [0.7, 0.3], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    within(weights, right, EPS)


@pytest.mark.parametrize("normalizer", [Hard(), Sparsemax()], ids=repr)
def test_hidden_keys_and_empty_rows_get_no_weight(normalizer: Normalizer) -> None:
    logits = rows()
    weights, state = normalizer.weights(logits)
    assert (weights[logits == -torch.inf] == 0).all()
    assert not weights.isnan().any()
    assert state[-1] == (-1 if isinstance(normalizer, Hard) else -torch.inf)
    none, empty = normalizer.rows(logits[:, :0])
    assert none.shape == (20, 0)
    assert (empty == state[-1]).all()


@pytest.mark.parametrize("normalizer", [Hard(), Sparsemax()], ids=repr)
@pytest.mark.parametrize("constant", [-1e3, 1e6])
def test_a_constant_changes_nothing(normalizer: Normalizer, constant: float) -> None:
    logits = rows()
    moved = normalizer.weights(logits + constant)[0]
    within(moved, normalizer.weights(logits)[0], 2 * EPS * (abs(constant) + 10))


def test_the_backward_formula_of_sparsemax_is_its_derivative() -> None:
    logits = rows()[:-1].masked_fill(rows()[:-1] == -torch.inf, -50.0).requires_grad_()
    weights, _ = Sparsemax().weights(logits)
    grad = torch.randn(weights.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (right,) = torch.autograd.grad(weights, logits, grad)
    within(Sparsemax().backward(weights.detach(), grad), right, 32 * EPS)
    assert gradcheck(lambda x: Sparsemax().weights(x)[0], (logits[:4].detach().requires_grad_(),), atol=1e-7, rtol=1e-5)


def test_gradients_at_keys_without_weight_do_not_matter() -> None:
    weights, _ = Sparsemax().weights(rows())
    grad = torch.ones_like(weights)
    clean = Sparsemax().backward(weights, grad)
    assert torch.equal(Sparsemax().backward(weights, grad.masked_fill(weights == 0, torch.inf)), clean)


def test_only_softmax_can_be_merged() -> None:
    assert Softmax().mergeable
    assert not Hard().mergeable
    assert not Sparsemax().mergeable


def test_a_sink_is_a_number_or_one_logit_per_head() -> None:
    for sink in (None, 0, -2.5, torch.tensor(1.0), torch.zeros(4), torch.zeros(1)):
        Softmax(sink).check(4)
    with pytest.raises(TypeError, match="Softmax's sink must be a number, got str"):
        Softmax("0")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Softmax's sink must be a number, got list"):
        Softmax([0.0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Softmax's sink must be finite, got inf"):
        Softmax(float("inf"))
    with pytest.raises(TypeError, match="Softmax's sink must be float32"):
        Softmax(torch.zeros(4, dtype=torch.int64))
    text = "a number or one logit for each of the 4 query heads, got shape (2, 2)"
    with pytest.raises(ValueError, match=re.escape(text)):
        Softmax(torch.zeros(2, 2)).check(4)


def test_values_print_and_compare() -> None:
    assert repr(Softmax()) == "Softmax()"
    assert repr(Softmax(0.5)) == "Softmax(sink=0.5)"
    assert repr(Hard()) == "Hard()"
    assert Softmax(torch.zeros(2)) == Softmax(torch.zeros(2))
    assert Softmax(torch.zeros(2)) != Softmax(torch.ones(2))
    assert Hard() != Sparsemax()


def test_a_new_normalizer_must_say_how() -> None:
    class Half(Normalizer):
        pass

    with pytest.raises(NotImplementedError, match=r"Half must define weights\(logits\)"):
        Half().weights(rows())
    with pytest.raises(NotImplementedError, match=r"Half must define backward\(weights, grad\)"):
        Half().backward(rows(), rows())
