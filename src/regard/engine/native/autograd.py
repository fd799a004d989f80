"""One call of the native kernels: the C struct, the forward and backward passes, the autograd function."""

from typing import Any

import torch
from torch import Tensor

from regard.engine.native.call import Inputs, NativeCall, NotFiniteError
from regard.engine.native.library import NOT_FINITE, Call, Strided, address, plain, run_kernel
from regard.engine.tiled.engine import gradient_graph
from regard.engine.tiled.tiles import Logits, Rows, Schedule, TiledCall
from regard.spec.forms import Form, additive_form, capped_form, dense_form, offset_form, product_form, slope_form
from regard.spec.normalizers import Softmax
from regard.spec.scores.base import ACTIVATIONS

STATISTICS = ("entropy", "peak", "peak_at", "distance", "max_logit")


def attention(native: NativeCall, *inputs: Tensor | None, done: dict[str, Tensor] | None = None) -> Rows:
    """Rows of `Inputs`; out, lse and entropy are differentiable.

    `done` is what `forward_rows` returned for the same call: then nothing is computed again.
    """
    plane = native.plane
    batch_heads = (plane.batch, plane.kv_heads, plane.group, plane.queries)
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in inputs):
        outputs = _NativeAttention.apply(native, done, *inputs)  # type: ignore[no-untyped-call]
    else:
        outputs = _outputs(forward_rows(native, inputs, for_backward=False) if done is None else done)  # type: ignore[arg-type]
    rest = outputs[1].new_zeros(()).expand(batch_heads)
    shaped = [tensor.reshape(*batch_heads, *tensor.shape[3:]) for tensor in outputs]
    return Rows(*[*shaped, rest])


def _outputs(rows: dict[str, Tensor]) -> tuple[Tensor, ...]:
    """out, lse and all statistics; zeros for those that were not asked for."""
    lse = rows["lse"]
    blank = torch.zeros((), dtype=lse.dtype, device="cpu").expand(lse.shape)
    return rows["out"], lse, *(rows.get(name, blank) for name in STATISTICS)


def forward_rows(native: NativeCall, inputs: Inputs, for_backward: bool = True) -> dict[str, Tensor]:
    """out, lse and the statistics asked for, (batch, head, query) each; `state` and `at` are for backward."""
    plane, value = native.plane, inputs[2]
    dtype = torch.promote_types(value.dtype, torch.float32)
    size = (plane.batch, plane.heads, plane.queries)
    rows = {
        "out": torch.empty((*size, value.shape[-1]), dtype=dtype, device="cpu"),
        "lse": torch.empty(size, dtype=dtype, device="cpu"),
    }
    rows |= {
        name: torch.empty(size, dtype=dtype, device="cpu")
        for name in STATISTICS
        if name in native.aux and name != "peak_at"
    }
    owners: list[Any] = []
    call = native.call(inputs, owners)
    for name, tensor in rows.items():
        setattr(call, name, tensor.data_ptr())
    if for_backward:
        rows["state"], rows["at"] = (
            torch.empty((2, *size), dtype=dtype, device="cpu"),
            torch.empty(size, dtype=torch.int64, device="cpu"),
        )
        point_to_state(call, rows["state"], rows["at"])
    elif "peak_at" in native.aux:
        rows["at"] = torch.empty(size, dtype=torch.int64, device="cpu")
        call.peak_at = rows["at"].data_ptr()
    if run_kernel("regard_forward", call, owners, rows) == NOT_FINITE and not native.finite:
        raise NotFiniteError
    if "peak_at" in native.aux:
        rows["peak_at"] = rows["at"].clone() if for_backward else rows["at"]
    return rows


def point_to_state(call: Call, state: Tensor, at: Tensor) -> None:
    """Where the kernels write and read what backward needs of each query: top, total, and the key of the peak."""
    first = address(state)
    call.row_max, call.row_sum, call.peak_at = first, first + state.nbytes // 2, address(at)


def backward_rows(
    native: NativeCall,
    inputs: Inputs,
    needed: tuple[bool, ...],
    given: tuple[Tensor | None, ...],
    rows: tuple[Tensor, ...],
) -> list[Tensor | None]:
    """Gradients of the inputs, from those of out, lse and entropy; `rows` are out, entropy, state and at."""
    query, key, value, tau, table, dense, sink, weights = inputs
    out, entropy, state, at = rows
    d_out = out.new_zeros(()).expand_as(out) if given[0] is None else given[0]
    if native.finite:  # nothing flows through a result that is not finite
        d_out = torch.where(out.isfinite(), d_out, 0.0)
        out = torch.where(out.isfinite(), out, 0.0)
    owners: list[Any] = []
    call = native.call(inputs, owners)
    gradients = {
        name: torch.empty(tensor.shape, dtype=out.dtype, device="cpu")
        for name, tensor in (("grad_query", query), ("grad_key", key), ("grad_value", value))
    }
    if needed[3] and tau is not None:
        gradients["grad_temperature"] = torch.empty(tau.shape, dtype=out.dtype, device="cpu")
    if needed[4] and table is not None:
        gradients["grad_offset_table"] = torch.empty(table.shape, dtype=out.dtype, device="cpu")
    if needed[6] and sink is not None:
        gradients["grad_sink"] = torch.empty(sink.shape, dtype=out.dtype, device="cpu")
    if needed[7] and weights is not None:
        gradients["grad_v"] = torch.empty(weights.shape, dtype=out.dtype, device="cpu")
    for name, tensor in (*gradients.items(), ("out", out)):
        setattr(call, name, address(tensor))
    point_to_state(call, state, at)
    if needed[5] and dense is not None:
        gradients["grad_dense"] = torch.zeros(dense.shape, dtype=out.dtype, device="cpu")
        call.grad_dense = Strided.of(gradients["grad_dense"])
    d_out = plain(d_out.to(out.dtype))
    call.grad_out = Strided.of(d_out)
    for name, grad in (("grad_lse", given[1]), ("grad_entropy", given[2])):
        if grad is not None:
            grad = plain(grad).contiguous()
            owners.append(grad)
            setattr(call, name, address(grad))
    call.entropy = address(entropy)
    run_kernel("regard_backward", call, owners, gradients, out, rows, d_out)
    names = ("query", "key", "value", "temperature", "offset_table", "dense", "sink", "v")
    return [
        gradients[f"grad_{name}"].to(tensor.dtype) if need and tensor is not None else None
        for name, tensor, need in zip(names, inputs, needed, strict=True)
    ]


class _NativeAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, native: NativeCall, done: dict[str, Tensor] | None, *inputs: Tensor | None
    ) -> tuple[Tensor, ...]:
        rows = forward_rows(native, inputs) if done is None else done  # type: ignore[arg-type]
        outputs = _outputs(rows)
        ctx.native = native.stored()
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, rows["out"], outputs[2], rows["state"], rows["at"], *native.buffers)
        ctx.mark_non_differentiable(*outputs[3:])
        return outputs

    @staticmethod
    def backward(ctx: Any, *given: Tensor | None) -> tuple[Tensor | None, ...]:
        native: NativeCall = ctx.native.restored()
        saved = ctx.saved_tensors
        inputs, rows = saved[:8], saved[8:12]
        needed = ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():
            out, entropy, state, _ = rows
            return (None, None, *gradient_graph_of(native, inputs, needed, given, (out, state[0], entropy)))
        return (None, None, *backward_rows(native, inputs, needed, given, rows))


def gradient_graph_of(
    native: NativeCall,
    inputs: Inputs,
    needed: tuple[bool, ...],
    given: tuple[Tensor | None, ...],
    results: tuple[Tensor, ...],
) -> list[Tensor | None]:
    """Gradients as a graph, by the tiled engine's formula."""
    query, key, value, tau, table, dense, sink, weights = inputs
    dtype = torch.promote_types(query.dtype, torch.float32)
    plane = native.plane
    batch_heads = (plane.batch, plane.kv_heads, plane.group, plane.queries)
    with torch.enable_grad():
        q, k = query.to(dtype).unflatten(1, (plane.kv_heads, plane.group)), key.to(dtype).unsqueeze(2)
        form = product_form(q * native.scale, k)
        if native.phi is not None and weights is not None:
            v = weights.view(plane.kv_heads, plane.group, weights.shape[-1]) * native.scale
            form = additive_form(q, k, v, ACTIVATIONS[native.phi])
        if native.cap:
            form = capped_form(form, native.cap)
        biases: list[Form] = []
        if native.slopes is not None:
            biases.append(slope_form(native.slopes.to(dtype).view(plane.kv_heads, plane.group, 1, 1)))
        if table is not None:
            turned = table.flip(1)
            split = turned[None] if len(table) == 1 else turned.view(plane.kv_heads, plane.group, table.shape[1])
            biases.append(offset_form(split.unsqueeze(-1)))
        if dense is not None:
            biases.append(dense_form(dense))
        logits = Logits(
            score=form,
            biases=tuple(biases),
            bias_hides=native.bias_hides,
            mask=native.mask,
            temperature=1.0 if tau is None else None,
            temperatures=None if tau is None else tau.view(plane.kv_heads, plane.group, 1, 1),
            nonfinite=None,
            dtype=dtype,
        )
        schedule = Schedule.of(plane, native.mask, logits.tile_width, whole_rows=False)
        kernel = TiledCall(logits, schedule, Softmax(), native.dropout, native.aux | {"entropy"}, None, value.shape[-1])
        operands = tuple(operand.tensor for operand in logits.operands)
        grads = tuple(
            (result.new_zeros(()).expand_as(result) if grad is None else grad).reshape(*batch_heads, *result.shape[3:])
            for grad, result in zip(given, results, strict=False)
        )
        last = None if sink is None else sink.view(plane.kv_heads, plane.group, 1)
        return gradient_graph(kernel, (value.to(dtype).unsqueeze(2), *operands), inputs, list(needed), grads, last)
