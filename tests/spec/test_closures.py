"""The tensors that a user's function reads: closures, defaults, partial arguments, modules and bound methods."""

import functools
from typing import Any

import torch
from torch import Tensor

from regard.spec.closures import captured_tensors, read_tensors


def test_tensors_that_a_function_closes_over_are_found() -> None:
    first, second, third, fixed = (torch.zeros(2, requires_grad=number < 3) for number in range(4))
    layer = torch.nn.Linear(2, 1)
    nested: list[Any] = [first, (second, fixed)]

    def inner(s: Tensor, extra: Tensor = third) -> Tensor:
        result: Tensor = s + nested[0] + extra
        return result

    def outer(s: Tensor, *_: Tensor) -> Tensor:
        result: Tensor = inner(s) + layer(s)
        return result

    def same(captured: tuple[Tensor, ...], expected: list[Tensor]) -> bool:
        return {id(one) for one in captured} == {id(one) for one in expected}

    assert same(captured_tensors(outer), [first, second, third, *layer.parameters()])
    assert same(captured_tensors(functools.partial(inner, extra=second)), [first, second, third])
    assert same(captured_tensors(layer.forward), list(layer.parameters()))
    assert captured_tensors(torch.tanh) == ()


def test_tensors_without_gradients_are_read_but_not_captured() -> None:
    fixed = torch.zeros(2)
    assert read_tensors(lambda s: s + fixed)[0] is fixed
    assert captured_tensors(lambda s: s + fixed) == ()
