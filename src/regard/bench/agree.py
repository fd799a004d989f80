"""Do results agree? Compared with the reference in float64, before anything is timed.

A forward pass is compared on some blocks of rows, a backward pass on its first head: what the dense reference can hold.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.bench.cases import Inputs, Workload
from regard.bench.contenders import Contender
from regard.engine.attend import attend
from regard.testing import assert_within, error

ROWS = 32  # of each block


class DisagreementError(RuntimeError):
    """A contender gives other numbers than the reference."""


@dataclass(frozen=True)
class Truth:
    """What the case should give: by the reference in float64, and by the same formula in the case's own precision.

    `select` takes the part of a result that they cover.
    """

    exact: tuple[Tensor, ...]
    plain: tuple[Tensor, ...]
    select: Callable[[Tensor], Tensor] = lambda tensor: tensor


def truth(case: Workload, inputs: Inputs) -> Truth:
    """The reference's results for some rows, or for one head with all its gradients."""
    inputs = tuple(tensor.detach() for tensor in inputs)
    wide = tuple(tensor.double() for tensor in inputs)
    output_gradient = case.output_gradient()
    if output_gradient is not None:

        def first_head(tensor: Tensor) -> Tensor:
            return tensor[:, :1] if case.shape.heads > 1 else tensor

        back = first_head(output_gradient)
        exact = _gradients(case, tuple(map(first_head, wide)), back.double())
        return Truth(exact, _gradients(case, tuple(map(first_head, inputs)), back), first_head)
    if case.layer:
        work = case.around(lambda x: _reference(case, x))
        return Truth((work(wide),), (work(inputs),))
    rows = case.shape.rows
    firsts = sorted({0, max(0, rows // 2 - ROWS // 2), max(0, rows - ROWS)})
    blocks = [slice(first, min(first + ROWS, rows)) for first in firsts]

    def reference(x: Inputs) -> Tensor:
        start = case.shape.n - rows
        return torch.cat([_reference(case, (x[0][..., block, :], *x[1:]), start + block.start) for block in blocks], -2)

    return Truth(
        (reference(wide),),
        (reference(inputs),),
        lambda tensor: torch.cat([tensor[..., block, :] for block in blocks], -2),
    )


def check(case: Workload, contender: Contender, results: tuple[Tensor, ...], truth: Truth) -> float | None:
    """The error of the output; None where the numbers are meant to differ. Raises if the error is too large."""
    try:
        if not contender.exact:
            assert all(bool(tensor.isfinite().all()) for tensor in results), "the result is not finite"
            return None
        for number, (tensor, exact, plain) in enumerate(zip(results, truth.exact, truth.plain, strict=True)):
            what = "gradient" if number else "output"
            if contender.ours and case.shape.device == "cpu":  # elsewhere ours may be torch's own kernels
                assert_within(truth.select(tensor), plain, exact, what)
            elif number < 4 or tensor.ndim == 2:  # the gradient of a dense bias has no counterpart
                _assert_peer_within(truth.select(tensor), plain, exact, case.shape.n, what)
    except AssertionError as wrong:
        raise DisagreementError(f"{contender.name} is wrong on {case.name}, nothing was timed: {wrong}") from None
    return error(truth.select(results[0]), truth.exact[0])


def _assert_peer_within(result: Tensor, plain: Tensor, exact: Tensor, n: int, what: str) -> None:
    """As `assert_within`, but a peer may also add up n terms one by one, which loses √n roundings."""
    largest = float(exact.abs().max())
    sums = torch.finfo(torch.promote_types(result.dtype, torch.float32)).eps * n**0.5
    allowed = max(2 * error(plain, exact), max(torch.finfo(result.dtype).eps, sums) * largest)
    off = error(result, exact)
    assert off <= allowed, f"{what}: error {off:.3g}, allowed {allowed:.3g}"


def _reference(case: Workload, inputs: Inputs, start: int | None = None) -> Tensor:
    spec = case.spec(inputs)
    out: Tensor = attend(inputs[0], inputs[1], inputs[2], **spec, query_start=start, engine="reference")
    return out


def _gradients(case: Workload, inputs: Inputs, output_gradient: Tensor) -> tuple[Tensor, ...]:
    leaves = tuple(tensor.clone().requires_grad_() for tensor in inputs)
    out = _reference(case, leaves)
    return (out.detach(), *torch.autograd.grad(out, leaves, output_gradient))
