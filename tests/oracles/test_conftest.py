"""The comparison that all oracles use must itself fail: on a wrong value, a wrong gradient, NaN and float32."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

EPS = torch.finfo(torch.float64).eps
X = {"x": torch.linspace(-1, 1, 7, dtype=torch.float64)}


def test_accepts_a_few_roundings(agree: Callable[..., None]) -> None:
    agree(lambda x: x.sin() * (1 + 16 * EPS), torch.sin, X, order=2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x: x.sin() * (1 + 1e-13), "output"),
        (lambda x: x.sin() + 1e-13 * (torch.arange(7) == 3), "output"),
        (lambda x: torch.where(torch.arange(7) == 3, torch.nan, x.sin()), "output: ours is not finite"),
        (lambda x: x.float().sin(), "output: ours is torch.float32"),
        (lambda x: x.sin()[:-1], "output: .*shape"),
        (lambda x: x.sin().detach() + 0 * x, "derivative by x"),
        (lambda x: x.sin() + (x - x.detach()) * (x - x.detach()), "second derivative by x"),
    ],
)
def test_refuses(agree: Callable[..., None], wrong: Callable[[Tensor], Tensor], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        agree(wrong, torch.sin, X, order=2)


def test_refuses_an_oracle_that_proves_nothing(agree: Callable[..., None]) -> None:
    with pytest.raises(AssertionError, match="output: theirs is not finite"):
        agree(torch.sin, torch.log, X)
    with pytest.raises(AssertionError, match="0 everywhere"):
        agree(torch.zeros_like, torch.zeros_like, X)


def test_refuses_an_input_without_a_gradient(agree: Callable[..., None]) -> None:
    with pytest.raises(RuntimeError, match="not have been used"):
        agree(lambda x, y: x.sin(), lambda x, y: x.sin(), {**X, "y": X["x"]})
