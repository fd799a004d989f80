"""The native engine: what it supports, how it runs, how it treats non-finite inputs, and what a plan says of it."""

from ctypes import byref, c_int64
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.engine.context import transform_unsupported
from regard.engine.memory import MemoryCounter
from regard.engine.native.autograd import attention, forward_rows
from regard.engine.native.call import Inputs, NativeCall, NotFiniteError, lower_request
from regard.engine.native.library import absence, library
from regard.engine.native.lowering import Biases, LoweredScore, kernel_step, lower_score, unknown_bias
from regard.engine.native.row_blocks import LOOK, by_row_blocks, height_of
from regard.engine.native.second_pass import NativeSecondPass
from regard.engine.request import Aux, Request, Result
from regard.engine.second_pass import PassOutputs
from regard.engine.tiled.engine import lower_tiled, received, states_without_output
from regard.engine.tiled.tiles import Rows
from regard.spec.masks import Full, Mask
from regard.spec.normalizers import Softmax
from regard.spec.scores import Score

FAR = 1e30  # where tanh and sigmoid have long been flat


@dataclass(frozen=True, eq=False)
class NativeNonFinite:
    """What was taken out: rows of queries (batch, head, query) and keys (batch, key head, key), and the raw values."""

    query: Tensor
    key: Tensor
    value: Tensor

    def restored(self, native: NativeCall, rows: Rows, biases: Biases) -> Rows:
        """NaN and Inf in exactly the rows that see them; no gradient flows through those.

        Which rows see what is attention itself: equal scores, and marks for values. A second one, in which bad keys
        score more, finds the first that a row sees.
        """
        with torch.no_grad():
            dtype = rows.out.dtype
            kinds = (self.value.isnan(), self.value == torch.inf, self.value == -torch.inf)
            marks = torch.cat([*kinds, self.key.unsqueeze(-1)], -1).to(dtype)
            plain = replace(native, scale=1.0, cap=0.0, phi=None, dropout=None, aux=frozenset({"peak_at"}), slopes=None)
            hidden = [None if t is None else torch.where(t.isneginf(), t, 0.0) for t in (biases.table, biases.dense)]
            one = torch.ones((*self.query.shape, 1), dtype=dtype, device="cpu")
            scored = attention(plain, one, self.key.unsqueeze(-1).to(dtype), marks, None, *hidden, None, None)
            seen = attention(plain, 0 * one, self.key.unsqueeze(-1).to(dtype), marks, None, *hidden, None, None)
            meets = seen.out > 0
            width = self.value.shape[-1]
            nan, plus, minus = meets[..., :width], meets[..., width : 2 * width], meets[..., 2 * width : 3 * width]
            bad_query = self.query.view_as(seen.state) & (seen.state != -torch.inf)
            bad_row = meets[..., -1] | bad_query
            nonfinite = torch.where(plus, torch.inf, torch.where(minus, -torch.inf, 0.0)).to(dtype)
            nonfinite = torch.where(nan | (plus & minus) | bad_row.unsqueeze(-1), torch.nan, nonfinite)
            first = torch.where(bad_query, seen.peak_at, scored.peak_at)
        changed = {
            name: torch.where(bad_row, torch.nan, getattr(rows, name))
            for name in ("state", "entropy", "peak", "distance", "max_logit")
        }
        out = torch.where(nonfinite == 0, rows.out, nonfinite)
        return replace(rows, out=out, peak_at=torch.where(bad_row, first, rows.peak_at), **changed)


def finite_request(request: Request) -> tuple[Request, LoweredScore, NativeNonFinite] | None:
    """The request with zeros for what is not finite, or whose lowered score is not; None if all is finite.

    An activation that is flat far out makes a finite score of Inf: there the lowered score has a large constant.
    """
    score = lower_score(request)
    raw_query, raw_key = score.query.detach(), score.key.detach()
    bad_query, bad_key = ~raw_query.isfinite().all(-1), ~raw_key.isfinite().all(-1)
    finite = request.value.detach().isfinite()
    if not bool(bad_query.any() | bad_key.any() | ~finite.all()):
        return None
    bad_query |= ~request.query.detach().isfinite().all(-1).flatten(1, 2)
    bad_key |= ~request.key.detach().isfinite().all(-1).squeeze(2)
    clean = replace(
        request,
        query=torch.where(bad_query.view(request.query.shape[:-1]).unsqueeze(-1), 0.0, request.query),
        key=torch.where(bad_key.unsqueeze(2).unsqueeze(-1), 0.0, request.key),
        value=torch.where(finite, request.value, 0.0),
    )
    lowered = lower_score(clean)
    if score.phi in ("tanh", "sigmoid"):
        lowered = replace(
            lowered,
            query=torch.where(bad_query.unsqueeze(-1), _bounded(raw_query), lowered.query),
            key=torch.where(bad_key.unsqueeze(-1), _bounded(raw_key), lowered.key),
        )
        bad_query, bad_key = raw_query.isnan().any(-1), raw_key.isnan().any(-1)
    return clean, lowered, NativeNonFinite(bad_query, bad_key, request.value.detach().squeeze(2))


def _bounded(raw: Tensor) -> Tensor:
    return raw.nan_to_num(0.0, FAR, -FAR).clamp(-FAR, FAR)


NAME = "native"


def supports(request: Request) -> str | None:
    """None, or why the C++ kernels cannot do this."""
    if request.query.device.type != "cpu":
        return f"it runs on the CPU, the inputs are on {request.query.device}"
    if (why_absent := absence()) is not None:
        return why_absent
    if kernel_step(request.score) is None:
        return f"its kernels compute q′·k′ and v·φ(a + b), and {request.score!r} does not lower to these"
    if not isinstance(request.normalizer, Softmax):
        return f"its kernels merge softmax parts, the normalizer is {request.normalizer!r}"
    if request.bias is not None and (term := unknown_bias(request.bias)) is not None:
        return f"its kernels add slopes and tables, and {term!r} does not lower to these"
    return transform_unsupported()


def serves(score: object, mask: object, normalizer: object) -> bool:
    """Whether one call of the kernels does it, going by types alone. A mask may still be a tensor or a name."""
    closed = mask.closed if isinstance(mask, Mask) else True
    lowers = isinstance(score, Score) and kernel_step(score) is not None
    return closed and lowers and isinstance(normalizer, Softmax)


def run(request: Request) -> Result:
    """Lower and call the kernels."""
    if not request.mask.closed:
        return _finished(by_row_blocks(request, lambda block: kernel_rows(block, states=False)[3]), request)
    if "received" in request.aux:
        return _with_received(request)
    return _finished(kernel_rows(request, states=False)[3], request)


def begun(request: Request) -> tuple[Result, dict[str, Tensor]] | None:
    """The result without a graph, and what `resumed` needs to make one; None if something is not finite."""
    try:
        native, inputs, _ = lower_request(request, finite=False)
        done = forward_rows(native, inputs)
    except NotFiniteError:
        return None
    return _joined(request, native, inputs, done), done


def resumed(request: Request, done: dict[str, Tensor]) -> Result:
    """The same with its graph: only what stands before and after the kernels is computed again."""
    native, inputs, _ = lower_request(request, finite=False)
    return _joined(request, native, inputs, done)


def _joined(request: Request, native: NativeCall, inputs: Inputs, done: dict[str, Tensor]) -> Result:
    """The result of a forward pass, and what each key receives from a second one, if that is asked for."""
    by_key = _by_key(request, native, inputs, done) if "received" in request.aux else None
    return _finished(attention(native, *inputs, done=done), request, by_key)


def _by_key(request: Request, native: NativeCall, inputs: Inputs, done: dict[str, Tensor]) -> Tensor:
    found = NativeSecondPass(native, inputs, done["state"]).run(PassOutputs(received=True))["received"]
    by_key: Tensor = found.unflatten(1, (request.plane.kv_heads, request.plane.group))
    return by_key


def _finished(rows: Rows, request: Request, by_key: Tensor | None = None) -> Result:
    aux = {name: getattr(rows, "state" if name == "lse" else name) for name in request.aux if name != "received"}
    if "received" in request.aux:
        aux["received"] = _received(request) if by_key is None else by_key
    return Result(rows.out.to(request.query.dtype), rows.state, Aux(**aux))


def _received(request: Request) -> Tensor:
    """The weights that each key receives, by the tiled engine: the kernels would need several calls."""
    with torch.no_grad():
        kernel, value, operands = lower_tiled(request)
        return received(kernel, states_without_output(kernel, value, operands), operands, request.sink)


def kernel_rows(request: Request, states: bool = True) -> tuple[NativeCall, Inputs, dict[str, Tensor], Rows]:
    """The call, its inputs, what `forward_rows` gave, and the results with their graph.

    Without `states`, row states are kept only for gradients, and the dict is empty. Non-finite inputs are replaced once
    the kernels have met them, and their effect is put back where it is visible.
    """

    def computed(native: NativeCall, inputs: Inputs) -> tuple[dict[str, Tensor], Rows]:
        done = forward_rows(native, inputs) if states else None
        return done or {}, attention(native, *inputs, done=done)

    try:
        native, inputs, _ = lower_request(request, finite=False)
        return native, inputs, *computed(native, inputs)
    except NotFiniteError:
        finite = finite_request(request)
    # None: all inputs are finite and a result overflowed, which is right as it is
    clean, score, nonfinite = (request, None, None) if finite is None else finite
    native, inputs, biases = lower_request(clean, finite=True, score=score)
    done, rows = computed(native, inputs)
    return native, inputs, done, rows if nonfinite is None else nonfinite.restored(native, rows, biases)


def _with_received(request: Request) -> Result:
    """The result, and what each key receives, in a second pass that starts from the rows' state."""
    native, inputs, done, rows = kernel_rows(request)
    by_key = _by_key(request, native, inputs, done)
    if rows.state.isnan().any():  # the tiled engine tells which keys such a row sees; no bit of the others changes
        by_key = torch.where(_received(request).isnan(), torch.nan, by_key)
    return _finished(rows, request, by_key)


PAIR = 20  # bytes per pair while a mask's function is evaluated: a few int64


def cost(request: Request) -> tuple[int, int]:
    """Pairs whose logit the forward pass computes, and bytes that it holds beyond inputs and outputs.

    A mask without closed form is planned as if it hid nothing.
    """
    core = library()
    assert core is not None
    open_mask = not request.mask.closed
    asked = replace(request, mask=Full()) if open_mask else request
    core.regard_workspace_peak()  # what was needed before this plan
    with MemoryCounter() as held:
        native, inputs, _ = lower_request(asked, finite=False)
        alive: list[Any] = []
        call = native.call(inputs, alive)
    pairs, workspace = c_int64(), c_int64()
    core.regard_plan(byref(call), byref(pairs), byref(workspace))
    plane = request.plane
    rows = plane.batch * plane.heads * plane.queries * request.dtype.itemsize
    copies = int(request.query.dtype != request.dtype)
    total = core.regard_workspace_peak() + held.peak + 3 * rows + copies * rows * request.value.shape[-1]
    if open_mask:
        cells = plane.batch * plane.heads * min(height_of(plane), plane.queries) * plane.keys
        total += cells + PAIR * min(cells, LOOK)
    return pairs.value, total
