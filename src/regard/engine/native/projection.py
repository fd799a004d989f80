"""Queries and keys times a matrix, by our own kernels: a row's bits depend on neither threads nor the other rows."""

from typing import Any

import torch
from torch import Tensor

from regard.engine.native.library import DTYPES, NO_MEMORY, Matrices, Strided, library, plain

LARGE = 1e30  # rows of larger numbers overflow as the others' do: what is not finite is met early
NARROW = 16  # columns; a product with so few is cheap in float64, and a score of few units shows every rounding


def multiply(a: Tensor, b: Tensor, shape: tuple[int, int]) -> Tensor:
    """a · b of (batch, head, rows, depth) and (…, depth, columns), which broadcast; summed where `shape` has a 1."""
    size = (*shape, a.shape[2], b.shape[3])
    if 0 in (*a.shape, *b.shape):
        return a.new_zeros(size)
    if a.dtype is torch.float32 and b.shape[3] <= NARROW:
        wide = multiply(a.double(), b.double(), shape).to(a.dtype)
        return torch.where(wide.abs().amax(-1, keepdim=True) < LARGE, wide, _product(a, b, size))
    return _product(a, b, size)


def _product(a: Tensor, b: Tensor, size: tuple[int, ...]) -> Tensor:
    out, a, b = torch.empty(size, dtype=a.dtype, device="cpu"), plain(a), plain(b)
    batch, heads = max(a.shape[0], b.shape[0]), max(a.shape[1], b.shape[1])
    rows = Matrices(DTYPES[a.dtype], batch, heads, *a.shape[2:], b.shape[3], torch.get_num_threads())
    rows.a, rows.b, rows.c = Strided.of(a), Strided.of(b), Strided.of(out)
    if library().regard_multiply(rows) == NO_MEMORY:  # type: ignore[union-attr]
        raise MemoryError("the native engine could not allocate its workspace")
    return out


def project(x: Tensor, matrix: Tensor) -> Tensor:
    """x · matrix, of (batch, head, length, width) and (width, columns) or (head, width, columns), differentiable."""
    if x.device.type != "cpu" or library() is None:
        return x @ matrix
    matrix = matrix if matrix.ndim == 3 else matrix[None]
    if not (torch.is_grad_enabled() and (x.requires_grad or matrix.requires_grad)):
        return multiply(x, matrix[None], (x.shape[0], x.shape[1]))
    found: Tensor = _Projection.apply(x, matrix)  # type: ignore[no-untyped-call]
    return found


class _Projection(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor) -> Tensor:
        ctx.save_for_backward(x, matrix)
        return multiply(x, matrix[None], (x.shape[0], x.shape[1]))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, matrix = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        if torch.is_grad_enabled():  # a graph of the gradients is wanted
            by_head = x.mT @ grad
            return grad @ matrix.mT, by_head.sum((0, 1))[None] if len(matrix) == 1 else by_head.sum(0)
        return (
            multiply(grad, matrix.mT[None], (x.shape[0], x.shape[1])) if wanted[0] else None,
            multiply(x.mT, grad, (1, len(matrix)))[0] if wanted[1] else None,
        )
