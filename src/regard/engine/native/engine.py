"""The native engine as the others see it: what it supports, and a call that runs it."""

import torch
from torch import Tensor

from regard.engine.native.function import Native, NotFiniteError, attention
from regard.engine.native.library import library
from regard.engine.native.lowering import PRODUCTS, Biases, inner, lower_biases, lower_score
from regard.engine.native.poison import cleaned
from regard.engine.native.program import closed, program
from regard.engine.native.strips import by_strips
from regard.engine.request import Aux, Request, Result
from regard.engine.strip import Rows
from regard.engine.tiled import ready, received, with_sink
from regard.spec.normalizers import Softmax

NAME = "native"


def supports(request: Request) -> str | None:
    """None, or why the C++ kernels cannot do this."""
    if request.query.device.type != "cpu":
        return f"it runs on the CPU, the inputs are on {request.query.device}"
    if library() is None:
        return "the package was installed without its C++ core; install it where a compiler is found"
    if not isinstance(inner(request.score), PRODUCTS):
        return f"its kernels compute q′·k′, and {request.score!r} does not lower to that"
    if not isinstance(request.normalizer, Softmax):
        return f"its kernels merge softmax parts, the normalizer is {request.normalizer!r}"
    return None


def run(request: Request) -> Result:
    """Lower, call the kernels, merge the sink."""
    rows = _rows(request) if closed(request.mask) else by_strips(request, _rows)
    rows = with_sink(rows, request)
    found = {name: getattr(rows, "state" if name == "lse" else name) for name in request.aux if name != "received"}
    if "received" in request.aux:
        with torch.no_grad():
            kernel, _, operands = ready(request)
            found["received"] = received(kernel, rows.state, operands)
    return Result(rows.out.to(request.query.dtype), rows.state, Aux(**found))


def _rows(request: Request) -> Rows:
    """The results before the sink. Non-finite inputs take the careful way, after the kernels have met them."""
    try:
        return _attention(request, finite=False)[1]
    except NotFiniteError:
        found = cleaned(request)
    if found is None:  # a result overflowed, which is right as it is
        return _attention(request, finite=True)[1]
    native, rows, biases = _attention(found[0], finite=True)
    return found[1].restored(native, rows, biases)


def _attention(request: Request, finite: bool) -> tuple[Native, Rows, Biases]:
    score = lower_score(request)
    biases = lower_biases(request.bias, request.plane, request.dtype)
    native = Native(
        plane=request.plane,
        program=program(request.mask, request.plane),
        mask=request.mask,
        scale=score.scale,
        cap=score.cap,
        dropout=request.dropout,
        aux=frozenset(request.aux),
        slopes=biases.slopes,
        bias_hides=request.bias is not None and request.bias.hides,
        finite=finite,
    )
    rows = attention(native, score.query, score.key, score.value, _temperatures(request), biases.table, biases.dense)
    return native, rows, biases


def _temperatures(request: Request) -> Tensor | None:
    """τ of every query head; None for 1."""
    tau = request.temperature
    if isinstance(tau, Tensor):
        return tau.to(request.dtype).reshape(-1).expand(request.plane.heads)
    return None if tau == 1.0 else torch.full((request.plane.heads,), tau, dtype=request.dtype)
