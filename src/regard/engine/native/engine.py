"""The native engine as the others see it: what it supports, and a call that runs it."""

import torch
from torch import Tensor

from regard.engine.known import Wanted
from regard.engine.native.function import Inputs, Native, NotFiniteError, attention, forward_rows
from regard.engine.native.library import library, plain
from regard.engine.native.lowering import Biases, LoweredScore, kernel_step, lower_biases, lower_score, unknown_bias
from regard.engine.native.poison import cleaned
from regard.engine.native.program import program
from regard.engine.native.strips import by_strips
from regard.engine.native.visit import visited
from regard.engine.request import Aux, Request, Result
from regard.engine.strip import Rows
from regard.engine.tiled import ready, received, row_states
from regard.engine.transforms import unanswered
from regard.spec.masks import Mask
from regard.spec.normalizers import Softmax
from regard.spec.scores import Score
from regard.spec.steps import DotProduct

NAME = "native"


def supports(request: Request) -> str | None:
    """None, or why the C++ kernels cannot do this."""
    if request.query.device.type != "cpu":
        return f"it runs on the CPU, the inputs are on {request.query.device}"
    if library() is None:
        return "the package was installed without its C++ core; install it where a compiler is found"
    if kernel_step(request.score) is None:
        return f"its kernels compute q′·k′ and v·φ(a + b), and {request.score!r} does not lower to these"
    if not isinstance(request.normalizer, Softmax):
        return f"its kernels merge softmax parts, the normalizer is {request.normalizer!r}"
    if (term := unknown_bias(request.bias)) is not None:
        return f"its kernels add slopes and tables, and {term!r} does not lower to these"
    return unanswered()


def serves(score: object, mask: object, normalizer: object) -> bool:
    """Whether one call of the kernels does it, going by types alone. A mask may still be a tensor or a name."""
    closed = mask.closed if isinstance(mask, Mask) else True
    lowers = isinstance(score, Score) and kernel_step(score) is not None
    return closed and lowers and isinstance(normalizer, Softmax)


def run(request: Request) -> Result:
    """Lower and call the kernels."""
    if not request.mask.closed:
        return _finished(by_strips(request, _rows), request)
    return _with_received(request) if "received" in request.aux else _finished(_rows(request), request)


def begun(request: Request) -> tuple[Result, dict[str, Tensor]] | None:
    """The result without a graph, and what `resumed` needs to make one; None if something is not finite."""
    try:
        native, inputs, _ = lowered(request, finite=False)
        done = forward_rows(native, inputs)
    except NotFiniteError:
        return None
    return _joined(request, native, inputs, done), done


def resumed(request: Request, done: dict[str, Tensor]) -> Result:
    """The same with its graph: only what stands before and after the kernels is computed again."""
    native, inputs, _ = lowered(request, finite=False)
    return _joined(request, native, inputs, done)


def _joined(request: Request, native: Native, inputs: Inputs, done: dict[str, Tensor]) -> Result:
    """The result of a forward pass, and what each key receives from a second one, if that is asked for."""
    by_key = _by_key(request, native, inputs, done) if "received" in request.aux else None
    return _finished(attention(native, *inputs, done=done), request, by_key)


def _by_key(request: Request, native: Native, inputs: Inputs, done: dict[str, Tensor]) -> Tensor:
    found = visited(native, inputs, done["state"], Wanted(received=True))["received"]
    by_key: Tensor = found.unflatten(1, (request.plane.kv_heads, request.plane.group))
    return by_key


def _finished(rows: Rows, request: Request, by_key: Tensor | None = None) -> Result:
    found = {name: getattr(rows, "state" if name == "lse" else name) for name in request.aux if name != "received"}
    if "received" in request.aux:
        found["received"] = _received(request) if by_key is None else by_key
    return Result(rows.out.to(request.query.dtype), rows.state, Aux(**found))


def _received(request: Request) -> Tensor:
    """By the tiled engine, for what takes the kernels several calls."""
    with torch.no_grad():
        kernel, value, operands = ready(request)
        return received(kernel, row_states(kernel, value, operands), operands, request.sink)


def _with_received(request: Request) -> Result:
    """The result, and what each key receives, in a second pass that starts from the rows' state."""
    try:
        native, inputs, _ = lowered(request, finite=False)
        return _joined(request, native, inputs, forward_rows(native, inputs))
    except NotFiniteError:
        found = cleaned(request)
    clean, score, poison = (request, None, None) if found is None else found
    native, inputs, biases = lowered(clean, finite=True, score=score)
    done = forward_rows(native, inputs)
    rows = attention(native, *inputs, done=done)
    if poison is not None:
        rows = poison.restored(native, rows, biases)
    by_key = _by_key(clean, native, inputs, done)
    if rows.state.isnan().any():  # the tiled engine tells which keys such a row sees; no bit of the others changes
        by_key = torch.where(_received(request).isnan(), torch.nan, by_key)
    return _finished(rows, request, by_key)


def _rows(request: Request) -> Rows:
    """The results. Non-finite inputs take the careful way, after the kernels have met them."""
    try:
        return _attention(request, finite=False)[1]
    except NotFiniteError:
        found = cleaned(request)
    if found is None:  # a result overflowed, which is right as it is
        return _attention(request, finite=True)[1]
    clean, score, poison = found
    native, rows, biases = _attention(clean, finite=True, score=score)
    return poison.restored(native, rows, biases)


def _attention(request: Request, finite: bool, score: LoweredScore | None = None) -> tuple[Native, Rows, Biases]:
    native, inputs, biases = lowered(request, finite, score)
    return native, attention(native, *inputs), biases


def lowered(request: Request, finite: bool, score: LoweredScore | None = None) -> tuple[Native, Inputs, Biases]:
    """The call, its tensors, and the biases by kind."""
    if not finite and _unseen_could_show(request):
        raise NotFiniteError
    score = lower_score(request) if score is None else score
    biases = lower_biases(request.bias, request.plane, request.dtype)
    query, key, value = plain(score.query), plain(score.key), plain(score.value)
    given = (temperatures(request), biases.table, biases.dense, sinks(request), score.v)
    tau, table, dense, sink, v = (None if tensor is None else plain(tensor) for tensor in given)
    return native_of(request, score, biases, finite), (query, key, value, tau, table, dense, sink, v), biases


def _unseen_could_show(request: Request) -> bool:
    """Whether a number that is not finite could reach a gradient past the kernels, which skip what nobody sees.

    A score that projects gets zeros back for hidden keys, and the projection's gradient would multiply them with NaN.
    """
    step = kernel_step(request.score)
    if (isinstance(step, DotProduct) and step.plain) or not torch.is_grad_enabled():
        return False
    if not any(part.requires_grad for part in (request.query, request.key, *request.score.parameters.values())):
        return False
    return not all(bool(torch.isfinite(part.detach().sum())) for part in (request.query, request.key))


def native_of(request: Request, score: LoweredScore, biases: Biases, finite: bool) -> Native:
    """The call without its tensors."""
    return Native(
        plane=request.plane,
        program=program(request.mask, request.plane),
        mask=request.mask,
        scale=score.scale,
        cap=score.cap,
        phi=score.phi,
        dropout=request.dropout,
        aux=frozenset(request.aux),
        slopes=biases.slopes,
        bias_hides=request.bias is not None and request.bias.hides,
        finite=finite,
        buffers=request.buffers,
    )


def temperatures(request: Request) -> Tensor | None:
    """τ of every query head; None for 1."""
    tau = request.temperature
    if isinstance(tau, Tensor):
        return tau.to(request.dtype).reshape(-1).expand(request.plane.heads)
    return None if tau == 1.0 else torch.full((request.plane.heads,), tau, dtype=request.dtype, device="cpu")


def sinks(request: Request) -> Tensor | None:
    """The sink's logit of every query head."""
    return None if request.sink is None else request.sink.reshape(-1).expand(request.plane.heads)
