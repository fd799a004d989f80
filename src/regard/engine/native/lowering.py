"""Lowering: a score to q′·k′ or v·φ(a + b), a factor and a cap; biases to slopes, an offset table and a tensor."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.engine.native.library import DTYPES, NO_MEMORY, Matrices, Strided, library, plain
from regard.engine.request import Request
from regard.spec.biases import Bias
from regard.spec.forms import unit
from regard.spec.plane import Plane
from regard.spec.scores import Score
from regard.spec.steps import Cap, DotProduct, HiddenLayer, OffsetTable, PairTable, Slopes

LARGE = 1e30  # rows of larger numbers overflow as the others' do: what is not finite is met early
NARROW = 16  # columns; a product with so few is cheap in float64, and a score of few units shows every rounding


def multiply(a: Tensor, b: Tensor, shape: tuple[int, int]) -> Tensor:
    """a · b of (batch, head, rows, depth) and (…, depth, columns), which broadcast; summed where `shape` has a 1."""
    size = (*shape, a.shape[2], b.shape[3])
    if 0 in (*a.shape, *b.shape):
        return a.new_zeros(size)
    if a.dtype is torch.float32 and b.shape[3] <= NARROW:
        wide = multiply(a.double(), b.double(), shape).to(a.dtype)
        return torch.where(wide.abs().amax(-1, keepdim=True) < LARGE, wide, _matrix_product(a, b, size))
    return _matrix_product(a, b, size)


def _matrix_product(a: Tensor, b: Tensor, size: tuple[int, ...]) -> Tensor:
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


UNITS = 4  # hidden units are computed by fours


@dataclass(frozen=True, eq=False)
class LoweredScore:
    """cap · tanh(scale · q′·k′ / cap), scale above 0, a cap of 0 is none; tensors are (batch, head, length, width).

    With `phi`, v · φ(q′ + k′) takes the place of q′·k′; `v` is (head, width).
    """

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    cap: float
    phi: str | None = None
    v: Tensor | None = None


def kernel_step(score: Score) -> DotProduct | HiddenLayer | None:
    """The step that a kernel computes, with a cap behind it or nothing; None if the score does not lower to one."""
    steps = score.steps()  # without a match statement: torch.compile of torch 2.9 traces none
    if len(steps) == 1 or (len(steps) == 2 and isinstance(steps[1], Cap)):
        first = steps[0]
        return first if isinstance(first, (DotProduct, HiddenLayer)) else None
    return None


def lower_score(request: Request) -> LoweredScore:
    """The inputs in one dtype; a factor that is not above 0 goes into the query."""
    first, *capped = request.score.steps()
    cap = capped[0].cap if capped and isinstance(capped[0], Cap) else 0.0
    query, key, value = request.query.flatten(1, 2), request.key.squeeze(2), request.value.squeeze(2)
    plane, dtype = request.plane, request.dtype
    if isinstance(first, HiddenLayer):
        return lower_hidden(first, query, key, value.to(dtype), (plane.heads, plane.kv_heads), cap)
    assert isinstance(first, DotProduct)
    scale = first.factor(query.shape[-1])
    if not first.plain:
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
        if first.weight is not None:
            query = project(query, _matrices(first.weight, plane.heads, dtype))
        if first.unit:
            query, key = unit(query), unit(key)
    if not scale > 0:
        query, scale = (-query, -scale) if scale < 0 else (query * 0.0, 1.0)
    return LoweredScore(query, key, value, scale, cap)


def lower_hidden(
    step: HiddenLayer, query: Tensor, key: Tensor, value: Tensor, heads: tuple[int, int], cap: float
) -> LoweredScore:
    """The sum form of 4-D inputs, in the value's dtype; `heads` are the query's and the key's."""
    dtype = value.dtype
    a = project(query.to(dtype), _matrices(step.w_query, heads[0], dtype).mT)
    b = project(key.to(dtype), _matrices(step.w_key, heads[1], dtype).mT)
    if step.b is not None:
        a = a + step.b.to(dtype).unsqueeze(-2)
    v = step.v.to(dtype).expand(heads[0], -1)
    if missing := -a.shape[-1] % UNITS:  # units of weight 0
        a, b, v = (torch.nn.functional.pad(part, (0, missing)) for part in (a, b, v))
    scale = _power_of_two(v)
    return LoweredScore(a, b, value, scale, cap, step.phi, v / scale)


def _matrices(matrix: Tensor, heads: int, dtype: torch.dtype) -> Tensor:
    """One matrix, or one for each head."""
    return matrix.to(dtype) if matrix.ndim == 2 or len(matrix) == 1 else matrix.to(dtype).expand(heads, -1, -1)


def _power_of_two(weights: Tensor) -> float:
    """What all weights are divided by, without rounding, so that the largest is at most 1."""
    largest = float(weights.detach().abs().max()) if weights.numel() else 0.0
    if not 0.0 < largest < math.inf:
        return 1.0
    most = math.frexp(torch.finfo(weights.dtype).max)[1] - 1
    return math.ldexp(1.0, min(math.frexp(largest)[1], most))


@dataclass(frozen=True, eq=False)
class Biases:
    """What the kernel adds: `slopes` (heads,), `table` (heads or 1, 2·reach + 1) over j − i, `dense` (…, query, key)"""

    slopes: Tensor | None = None
    table: Tensor | None = None
    dense: Tensor | None = None


def unknown_bias(bias: Bias) -> Bias | None:
    """The first term that has no steps."""
    return next((term for term in bias.terms() if type(term).steps is Bias.steps), None)


def lower_biases(bias: Bias | None, plane: Plane, dtype: torch.dtype) -> Biases:
    """Join the steps; gradients flow back through the joining."""
    if bias is None:
        return Biases()
    slopes: Tensor | None = None
    dense: Tensor | None = None
    tables: list[Tensor] = []
    for step in bias.steps():
        match step:
            case Slopes():
                own = step.slopes.to(dtype)
                slopes = own if slopes is None else slopes + own
            case OffsetTable():
                table = step.table.to(dtype)
                tables.append(table if step.index is None else table[:, step.index])
            case PairTable():
                tensor = step.tensor.to(dtype)
                dense = tensor if dense is None else _sum_or_hidden(dense, tensor)
    return Biases(slopes, _joined_tables(tables), dense)


def _sum_or_hidden(left: Tensor, right: Tensor) -> Tensor:
    """The sum, −inf where either hides, whatever the other is."""
    return torch.where((left == -torch.inf) | (right == -torch.inf), -torch.inf, left + right)


def _joined_tables(tables: list[Tensor]) -> Tensor | None:
    """The sum of tables over i − j, turned to j − i; the shorter go on with their last entry."""
    if not tables:
        return None
    reach = max(table.shape[1] // 2 for table in tables)
    offsets = torch.arange(reach, -reach - 1, -1, device="cpu")
    total: Tensor | None = None
    for table in tables:
        own = table.shape[1] // 2
        wide = table[:, offsets.clamp(-own, own) + own]
        total = wide if total is None else _sum_or_hidden(total, wide)
    return total
