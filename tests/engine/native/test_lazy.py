"""Tensors whose numbers are not what lies in memory: torch's lazy negative, and zeros without memory."""

import pytest
import torch
from torch import Tensor

from regard import attend, biases
from regard.engine.request import Spec


def negative(size: tuple[int, ...]) -> Tensor:
    """A view that torch negates when it is read."""
    found = torch.view_as_complex(torch.randn(*size, 2, dtype=torch.float64)).conj().imag
    assert found.is_neg()
    return found


@pytest.mark.parametrize("place", range(3))
def test_a_lazy_negative_is_negated(place: int) -> None:
    given = list(torch.randn(3, 1, 2, 7, 8, dtype=torch.float64))
    given[place] = negative((1, 2, 7, 8))
    bias = negative((7, 7))
    for _ in range(2):  # the second call is one that was seen before
        for spec in (Spec(), Spec(bias=biases.Dense(bias))):
            right = attend(given[0], given[1], given[2], engine="reference", **spec)
            torch.testing.assert_close(
                attend(given[0], given[1], given[2], engine="native", **spec), right, rtol=1e-12, atol=1e-12
            )


@pytest.mark.parametrize("spec", [Spec(), Spec(bias=biases.Dense(torch.zeros(7, 7)))])
def test_a_gradient_may_be_lazy(spec: Spec) -> None:
    given = [tensor.requires_grad_() for tensor in torch.randn(3, 1, 2, 7, 8, dtype=torch.float64)]
    zeros = torch._efficientzerotensor((1, 2, 7, 8), dtype=torch.float64)
    for upstream in (negative((1, 2, 7, 8)), zeros):
        found = []
        for engine in ("reference", "native"):
            out = attend(given[0], given[1], given[2], engine=engine, **spec)
            found.append(torch.autograd.grad(out, given, upstream))
        for right, ours in zip(*found, strict=True):
            torch.testing.assert_close(ours, right, rtol=1e-12, atol=1e-12)
