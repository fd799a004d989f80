"""The call cache: a spec of numbers alone is checked and lowered once for each shape.

What is left is a copy of the C struct, the addresses of the tensors, and the call. Additive scores hold matrices. They
are cached by the matrices' shapes, without gradients only; projections and weights are computed on each call.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.engine.native.autograd import gradient_graph_of
from regard.engine.native.call import NotFiniteError, native_call, temperatures
from regard.engine.native.library import (
    LONG,
    NOT_FINITE,
    Call,
    Strided,
    address,
    lazy,
    library,
    plain,
    run_entry,
    work_of,
)
from regard.engine.native.lowering import LoweredScore, kernel_step, lower_biases, lower_hidden, lower_score
from regard.engine.request import Request
from regard.spec.part import Part
from regard.spec.scores import Score
from regard.spec.steps import DotProduct, HiddenLayer, Slopes

CAPACITY = 512  # cached calls
KINDS = (Tensor, torch.nn.Parameter)
Key = tuple[Any, ...]


class StateAddresses(NamedTuple):
    """Addresses of the row states that backward needs, and the tensors that own the memory."""

    top: int
    total: int
    peak_at: int
    owner: object


class CachedCall:
    """A call with everything but its tensors' addresses filled in."""

    def __init__(self, request: Request, score: LoweredScore) -> None:
        plane = request.plane
        biases = lower_biases(request.bias, plane, request.dtype)
        self.native = native_call(request, score, biases, finite=False)
        self.owners: list[Any] = []
        inputs = (score.query, score.key, score.value, temperatures(request), None, None, None, score.v)
        self.rest = inputs[3:]
        self.call = self.native.call(inputs, self.owners)
        self.long = work_of(self.call) > LONG
        kernels = library()
        self.entries = kernels.regard_forward, kernels.regard_backward  # type: ignore[union-attr]
        self.rows = (plane.batch, plane.kv_heads * plane.group, plane.queries)
        self.size = (*self.rows, score.value.shape[-1])
        self.dtype = request.dtype
        self.contiguous = Strided.of(torch.empty(self.size, device="cpu", dtype=self.dtype))
        # `empty_like` is faster than `empty`; it fits if the kernels write the same layout
        given = inputs[:3]
        self.plain_layout = all(tensor.is_contiguous() and tensor.dtype is self.dtype for tensor in given)
        self.out_like_query = self.plain_layout and self.size == tuple(score.query.shape)
        self.row_bytes = math.prod(self.rows) * self.dtype.itemsize  # bytes of one number for each row

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, score: Score) -> Tensor:
        """The output."""
        if self.native.phi is not None:
            return self.additive(query, key, value, score)
        if (query.requires_grad or key.requires_grad or value.requires_grad) and torch.is_grad_enabled():
            out: Tensor = _apply(self, query, key, value)
        else:
            out = self.forward(query, key, value, None)
        return out if out.dtype is query.dtype else out.to(query.dtype)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, addresses: StateAddresses | None) -> Tensor:
        """The output in the accumulating precision; what backward needs goes to `addresses`."""
        out = torch.empty_like(query) if self.out_like_query else torch.empty(self.size, dtype=self.dtype, device="cpu")
        call = self._filled(query, key, value, out, addresses)
        if run_entry(self.entries[0], call, self.long, self, query, key, value, out, addresses) == NOT_FINITE:
            raise NotFiniteError
        return out

    def additive(self, query: Tensor, key: Tensor, value: Tensor, score: Score) -> Tensor:
        """The output of an additive score."""
        plane = self.native.plane
        step = score.steps()[0]
        assert isinstance(step, HiddenLayer)
        low = lower_hidden(step, query, key, value.to(self.dtype), (plane.heads, plane.kv_heads), 0.0)
        weights = low.v.contiguous()  # type: ignore[union-attr]
        out = torch.empty(self.size, dtype=self.dtype, device="cpu")
        call = self._filled(low.query, low.key, low.value, out, None)
        call.scale, call.v = low.scale, weights.data_ptr()
        if run_entry(self.entries[0], call, self.long, self, low, weights, out) == NOT_FINITE:
            raise NotFiniteError
        return out if out.dtype is query.dtype else out.to(query.dtype)

    def backward(
        self, saved: tuple[Tensor, ...], addresses: StateAddresses, d_out: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of query, key and value; `saved` are these and the output."""
        query, key, value, out = saved
        call = self._filled(query, key, value, out, addresses)
        if d_out.dtype is not self.dtype:
            d_out = d_out.to(self.dtype)
        if lazy(d_out):
            d_out = plain(d_out)
        if d_out.is_contiguous():
            call.grad_out = self.contiguous
            call.grad_out.data = d_out.data_ptr()
        else:
            call.grad_out = Strided.of(d_out)
        if self.plain_layout:
            d_query, d_key, d_value = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
        else:
            d_query, d_key, d_value = (
                torch.empty(tensor.shape, dtype=self.dtype, device="cpu") for tensor in (query, key, value)
            )
        call.grad_query, call.grad_key, call.grad_value = d_query.data_ptr(), d_key.data_ptr(), d_value.data_ptr()
        run_entry(self.entries[1], call, self.long, self, saved, addresses, d_out, d_query, d_key, d_value)
        if query.dtype is self.dtype:
            return d_query, d_key, d_value
        return d_query.to(query.dtype), d_key.to(query.dtype), d_value.to(query.dtype)

    def state(self) -> Tensor:
        """A buffer for the row states: row maximum, row sum and key of the peak, one after the other."""
        return torch.empty(
            2 * self.row_bytes + 8 * self.row_bytes // self.dtype.itemsize, dtype=torch.uint8, device="cpu"
        )

    def addresses(self, state: Tensor, at: Tensor | None = None) -> StateAddresses:
        """Addresses of row maximum, row sum and peak; the last may be a separate tensor."""
        first = state.data_ptr()
        peak_at = first + 2 * self.row_bytes if at is None else at.data_ptr()
        return StateAddresses(first, first + self.row_bytes, peak_at, (state, at))

    def _filled(self, query: Tensor, key: Tensor, value: Tensor, out: Tensor, addresses: StateAddresses | None) -> Call:
        call = Call.from_buffer_copy(self.call)
        call.query.data, call.key.data, call.value.data = address(query), address(key), address(value)
        call.threads = torch.get_num_threads()
        call.out = address(out)
        if addresses is not None:
            call.row_max, call.row_sum, call.peak_at, _ = addresses
        return call


class _CachedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: CachedCall, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        state = call.state()
        out = call.forward(query, key, value, call.addresses(state))
        ctx.call, ctx.state = call, state
        ctx.save_for_backward(query, key, value, out)
        return out

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        call: CachedCall = ctx.call
        saved = ctx.saved_tensors
        if not torch.is_grad_enabled():
            return (None, *call.backward(saved, call.addresses(ctx.state), d_out))
        inputs, needed = (*saved[:3], *call.rest), (*ctx.needs_input_grad[1:], False, False, False, False, False)
        out, rows = saved[3], saved[3].new_zeros(call.rows)
        return (None, *gradient_graph_of(call.native, inputs, needed, (d_out, None, None), (out, rows, rows))[:3])


# skips the check for torch.func transforms, which `attend` has made already
_apply: Any = super(torch.autograd.Function, _CachedAttention).apply
_calls: dict[Key, CachedCall] = {}


def cache_key(
    query: Tensor, key: Tensor, value: Tensor, parts: tuple[Any, ...], settings: tuple[Any, ...]
) -> Key | None:
    """The key of a call of plain CPU tensors that the cache can hold, else None. Types count: True is not 1.0."""
    names: list[Any] = []
    for part in parts:
        if part is None or type(part) is str:
            names.append(part)
        elif isinstance(part, Part) and part.contents is not None:
            names.append(part.contents)
        elif getattr(part, "form", "") == "sum":
            tensors = [value for value in vars(part).values() if isinstance(value, Tensor)]
            if any(type(tensor) not in KINDS for tensor in tensors) or _needs_grad(query, key, value, *tensors):
                return None
            names.append(type(part))
            names += map(_layout, vars(part).values())
        else:
            return None
    for setting in settings:
        kind = type(setting)
        if setting is not None and kind is not float and kind is not int:
            return None
        names += (kind, setting)
    for tensor in (query, key, value):
        plain_cpu = type(tensor) in KINDS and tensor.is_cpu and not tensor.is_nested
        if not plain_cpu or tensor.is_neg() or tensor._is_zerotensor():
            return None
        names += (tensor.shape, tensor.stride(), tensor.dtype)
    return tuple(names)


def _needs_grad(*parts: object) -> bool:
    return torch.is_grad_enabled() and any(isinstance(part, Tensor) and part.requires_grad for part in parts)


def _layout(part: object) -> object:
    """What matters of a tensor's layout; anything else as it is."""
    if not isinstance(part, Tensor):
        return part
    return type(part), part.shape, part.stride(), part.dtype, part.device, lazy(part)


def cached_call(name: Key) -> CachedCall | None:
    """A cached call that needs only query, key and value; None if there is none."""
    found = _calls.get(name)
    return None if found is None or found.native.phi is not None else found


def cached_output(name: Key, query: Tensor, key: Tensor, value: Tensor, score: Score) -> Tensor | None:
    """The output of a cached call; None if it is not cached, or if something is not finite."""
    call = _calls.get(name)
    if call is None:
        return None
    try:
        return call(query, key, value, score)
    except NotFiniteError:
        return None


def cache_call(name: Key, request: Request, inputs: tuple[Tensor, Tensor, Tensor]) -> bool:
    """Store a call that needs nothing but its tensors' addresses. Returns whether it is one."""
    step = kernel_step(request.score)
    additive = isinstance(step, HiddenLayer) and len(request.score.steps()) == 1
    cacheable = (
        (additive or (isinstance(step, DotProduct) and step.plain))
        and request.mask.closed
        and (request.bias is None or all(isinstance(term, Slopes) for term in request.bias.steps()))
        and not request.aux
        and getattr(request.normalizer, "sink", None) is None
        and request.dropout is None
        and all(tensor.ndim == 4 and len(tensor) == request.plane.batch for tensor in inputs)
    )
    if not cacheable:
        return False
    score = lower_score(request)
    if not additive and score.query.data_ptr() != request.query.data_ptr():
        return False  # the kernels read a scaled copy
    if len(_calls) >= CAPACITY:
        _calls.clear()
    _calls[name] = CachedCall(request, score)
    return True
