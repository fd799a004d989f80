"""Do results agree? Compared with the reference in float64, before anything is timed.

A forward pass is judged on strips of rows, a backward pass on its first head: what the dense reference can hold.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from regard.bench.case import Case, Inputs, Work
from regard.bench.contenders import Contender
from regard.engine.attend import attend
from regard.testing import assert_within, error

ROWS = 32  # of each strip


class DisagreementError(RuntimeError):
    """A contender gives other numbers than the reference."""


@dataclass(frozen=True)
class Truth:
    """What the case should give: by the reference in float64, and by the same formula in the case's own precision."""

    exact: tuple[Tensor, ...]
    plain: tuple[Tensor, ...]
    cut: Callable[[Tensor], Tensor]


def direction(case: Case) -> Tensor:
    """The gradient of the output that is sent back."""
    shape = case.shape
    draw = torch.Generator().manual_seed(1)
    drawn = torch.randn(shape.batch, shape.heads, shape.rows, shape.d_value, generator=draw)
    return drawn.to(shape.device, shape.dtype)


def run(case: Case, contender: Contender, work: Work, inputs: Inputs, back: Tensor | None) -> tuple[Tensor, ...]:
    """Output, and the gradients if the case has them."""
    out = work(inputs)
    if back is None:
        return (out,)
    return (out, *torch.autograd.grad(out, contender.leaves(work, inputs), back))


def truth(case: Case, inputs: Inputs) -> Truth:
    """The reference's results for some rows, or for one head with all its gradients."""
    inputs = tuple(tensor.detach() for tensor in inputs)
    wide = tuple(tensor.double() for tensor in inputs)
    if case.backward:
        cut = _first_head if case.shape.heads > 1 else _whole
        back = cut(direction(case))
        one = [tuple(cut(tensor) for tensor in given) for given in (wide, inputs)]
        return Truth(_gradients(case, one[0], back.double()), _gradients(case, one[1], back), cut)
    if case.layer:
        work = case.around(lambda x: _reference(case, x))
        return Truth((work(wide),), (work(inputs),), _whole)
    strips = tuple(slice(first, min(first + ROWS, case.shape.rows)) for first in _firsts(case.shape.rows))
    return Truth((_rows(case, wide, strips),), (_rows(case, inputs, strips),), partial(_strips, strips))


def check(case: Case, contender: Contender, found: tuple[Tensor, ...], truth: Truth) -> float | None:
    """The error of the output; None where the numbers are meant to differ. Raises if the error is too large."""
    try:
        if not contender.exact:
            assert all(bool(tensor.isfinite().all()) for tensor in found), "the result is not finite"
            return None
        for number, (tensor, exact, plain) in enumerate(zip(found, truth.exact, truth.plain, strict=True)):
            what = "gradient" if number else "output"
            if contender.ours and case.shape.device == "cpu":  # elsewhere ours may be torch's own kernels
                assert_within(truth.cut(tensor), plain, exact, what)
            elif number < 4 or tensor.ndim == 2:  # the gradient of a dense bias has no counterpart
                _agrees(truth.cut(tensor), plain, exact, case.shape.n, what)
    except AssertionError as wrong:
        raise DisagreementError(f"{contender.name} is wrong on {case.name}, nothing was timed: {wrong}") from None
    return error(truth.cut(found[0]), truth.exact[0])


def _agrees(found: Tensor, plain: Tensor, exact: Tensor, n: int, what: str) -> None:
    """As `assert_within`, but a peer may also add up n terms one by one, which loses √n roundings."""
    largest = float(exact.abs().max())
    sums = torch.finfo(torch.promote_types(found.dtype, torch.float32)).eps * n**0.5
    allowed = max(2 * error(plain, exact), max(torch.finfo(found.dtype).eps, sums) * largest)
    off = error(found, exact)
    assert off <= allowed, f"{what}: error {off:.3g}, allowed {allowed:.3g}"


def _reference(case: Case, inputs: Inputs, start: int | None = None) -> Tensor:
    spec = case.spec(case.shape, inputs)
    out: Tensor = attend(inputs[0], inputs[1], inputs[2], **spec, query_start=start, engine="reference")
    return out


def _gradients(case: Case, inputs: Inputs, back: Tensor) -> tuple[Tensor, ...]:
    leaves = tuple(tensor.clone().requires_grad_() for tensor in inputs)
    out = _reference(case, leaves)
    return (out.detach(), *torch.autograd.grad(out, leaves, back))


def _rows(case: Case, inputs: Inputs, strips: tuple[slice, ...]) -> Tensor:
    start = case.shape.n - case.shape.rows
    parts = [_reference(case, (inputs[0][..., rows, :], *inputs[1:]), start + rows.start) for rows in strips]
    return torch.cat(parts, -2)


def _firsts(rows: int) -> list[int]:
    return sorted({0, max(0, rows // 2 - ROWS // 2), max(0, rows - ROWS)})


def _first_head(tensor: Tensor) -> Tensor:
    return tensor[:, :1]


def _whole(tensor: Tensor) -> Tensor:
    return tensor


def _strips(strips: tuple[slice, ...], tensor: Tensor) -> Tensor:
    return torch.cat([tensor[..., rows, :] for rows in strips], -2)
