"""Queries and keys times a matrix: right, differentiable twice, and the same bits for any threads and rows."""

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from regard.engine.native.library import library
from regard.engine.native.lowering import project

pytestmark = pytest.mark.skipif(library() is None, reason="the package was built without a compiler")


@pytest.mark.parametrize("heads", [1, 3])
def test_derivatives(heads: int) -> None:
    x = torch.randn(2, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    matrix = torch.randn(heads, 5, 6, dtype=torch.float64, requires_grad=True)
    assert gradcheck(project, (x, matrix))
    assert gradgradcheck(project, (x, matrix))


@pytest.mark.parametrize("size", [(1, 1, 0, 3, 4), (0, 2, 5, 3, 4), (2, 2, 5, 0, 4), (2, 2, 5, 3, 0)], ids=str)
def test_nothing_to_multiply(size: tuple[int, int, int, int, int]) -> None:
    batch, heads, rows, depth, columns = size
    x = torch.randn(batch, heads, rows, depth, requires_grad=True)
    matrix = torch.randn(depth, columns, requires_grad=True)
    out = project(x, matrix)
    assert torch.equal(out, torch.zeros(batch, heads, rows, columns))
    out.sum().backward()
    assert x.grad is not None
    assert matrix.grad is not None
    assert torch.equal(matrix.grad, torch.zeros(depth, columns))


def test_no_heads_keep_their_shape_in_a_graph_of_gradients() -> None:
    x = torch.randn(2, 0, 4, 5, requires_grad=True)
    matrix = torch.randn(0, 5, 6, requires_grad=True)
    grads = torch.autograd.grad(project(x, matrix).sum(), (x, matrix), create_graph=True)
    assert [grad.shape for grad in grads] == [x.shape, matrix.shape]


def test_numbers_that_torch_has_not_written_yet() -> None:
    x = torch.view_as_complex(torch.randn(1, 2, 9, 5, 2)).conj().imag  # a sign that is still to change
    assert x.is_neg()
    matrix = torch.randn(5, 6)
    assert torch.equal(project(x, matrix), project(x.clone(), matrix))


def _grads(x: Tensor, matrix: Tensor) -> tuple[Tensor, ...]:
    out = project(x, matrix)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    return out, *torch.autograd.grad(out, (x, matrix), weight)


@pytest.mark.parametrize("width", [3, 33, 64])
def test_same_bits(width: int) -> None:
    before = torch.get_num_threads()
    x = torch.randn(2, 2, 700, width).mT.contiguous().mT.requires_grad_()
    matrix = torch.randn(width, 40).mT.contiguous().mT.requires_grad_()
    found = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        found.append(_grads(x, matrix))
    torch.set_num_threads(before)
    for one in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], one, strict=True))
    assert torch.equal(project(x[1:, :, 99:105], matrix), found[0][0][1:, :, 99:105])
