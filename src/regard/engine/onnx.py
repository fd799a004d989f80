"""ONNX: attend as operators that ONNX has, for torch.onnx.export.

A product score with a plain softmax becomes torch's scaled_dot_product_attention, which the exporter writes as the
operator Attention (opset 23 and later) or as products and a softmax; everything else becomes the reference formula.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._decomp import register_decomposition
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.nn.functional import scaled_dot_product_attention

from regard.engine import reference
from regard.engine.nonfinite import sees_any
from regard.engine.request import Aux, Request, Result, request
from regard.engine.sdpa import is_causal
from regard.spec.dropout import Dropout
from regard.spec.normalizers import Softmax
from regard.spec.plane import Plane
from regard.spec.steps import DotProduct, shows_everything

if TYPE_CHECKING:
    from regard.engine.ring import Ring


def attend_exported(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    spec: Mapping[str, Any],
    aux: Any = (),
    engine: "str | Ring" = "auto",
    key_start: int = 0,
) -> Tensor | tuple[Tensor, Aux]:
    """What `attend` returns, while torch.onnx.export traces it. Names of engines have no meaning there."""
    if not isinstance(engine, str):
        raise ValueError("torch.onnx.export writes a graph for one process, a Ring has several; leave out engine=")
    dropout = spec.get("dropout", 0.0)
    rate = dropout.p if isinstance(dropout, Dropout) else dropout
    if rate:
        raise ValueError(
            f"torch.onnx.export: attention weights are dropped with probability {rate}, which no ONNX operator does; "
            "call .eval() on the module before the export, or leave out dropout="
        )
    checked = request(query, key, value, aux=aux, key_start=key_start, **spec)
    start = spec.get("query_start")
    start = checked.shapes.keys - checked.shapes.queries if start is None else start
    try:
        result = _fused(checked, _known_zero(start - key_start)) or reference.run(checked)
    except GuardOnDataDependentSymNode as error:
        raise ValueError(
            "torch.onnx.export: a function of the spec decides by the numbers in a tensor (with if, bool, int or "
            ".item()), which a graph cannot; use torch's operators, such as torch.where"
        ) from error
    out = checked.shapes.unfold(result.out)
    if not checked.aux:
        return out
    return out, Aux(**{name: checked.shapes.unfold(getattr(result.aux, name)) for name in checked.aux})


def decompose(
    operator: Any, decode_spec: Callable[..., Mapping[str, Any]], empty_results: Callable[..., list[Tensor]]
) -> None:
    """Tell torch.onnx.export what the operator of an ExportedProgram is made of.

    The exporter reads torch's table of decompositions. FakeTensors would read it as well, before the operator's own
    rule for shapes, unless the operator is also in the table of such rules.
    """

    def formula(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> list[Tensor]:
        tensors, integers, floats, spec, aux, engine, saves = rest
        names = tuple(aux.split(",")) if aux else ()
        results = attend_exported(query, key, value, decode_spec(spec, integers, floats, tensors), names, engine)
        rows = empty_results(query, key, value, "", saves)[1:]  # for a backward pass that an exported graph has not
        if isinstance(results, Tensor):
            return [results, *rows]
        return [results[0], *(getattr(results[1], name) for name in names), *rows]

    register_decomposition(operator)(formula)
    register_decomposition(operator, type="meta")(
        lambda query, key, value, *rest: empty_results(query, key, value, rest[-3], rest[-1])
    )


def _known_zero(start: object) -> bool:
    """Whether it is 0 for every size that the graph may meet."""
    if isinstance(start, torch.SymInt):
        return bool(start.node.expr == 0)
    return isinstance(start, int) and start == 0


def _fused(checked: Request, from_zero: bool) -> Result | None:
    """Torch's own attention; None if the spec is more than that."""
    steps = checked.score.steps()
    plain = isinstance(checked.normalizer, Softmax) and checked.normalizer.sink is None and not checked.aux
    if len(steps) != 1 or not isinstance(steps[0], DotProduct) or not plain:
        return None
    dtype = checked.dtype
    form = checked.score.lower(checked.query.to(dtype), checked.key.to(dtype))
    query, key = (operand.tensor for operand in form.operands)
    query, key, value = (query / checked.temperatures).flatten(1, 2), key.squeeze(2), checked.value.to(dtype).squeeze(2)
    options: dict[str, Any] = {"scale": 1.0, "enable_gqa": checked.plane.group > 1}
    seen = checked.mask.steps(checked.plane)
    causal = is_causal(seen) and from_zero
    if checked.bias is None and (causal or shows_everything(seen)):
        out = scaled_dot_product_attention(query, key, value, is_causal=causal, **options)
        return _result(checked, out)
    visible, bias = reference.mask_and_bias(checked)
    visible = visible[(None,) * (5 - visible.ndim)].expand(-1, -1, -1, checked.plane.queries, checked.plane.keys)
    mask = _per_head(visible, checked.plane)
    if checked.bias is not None:
        mask = _per_head(torch.where(visible, bias / checked.temperatures, -torch.inf), checked.plane)
    # a hidden key takes no part even if it is not finite; a visible one makes its rows NaN
    bad = ~(key.isfinite().all(-1) & value.isfinite().all(-1))
    key, value = (torch.where(tensor.isfinite(), tensor, 0.0) for tensor in (key, value))
    out = scaled_dot_product_attention(query, key, value, attn_mask=mask, **options)
    out = out.unflatten(1, (checked.plane.kv_heads, checked.plane.group))
    out = torch.where(sees_any(visible, bad.unsqueeze(2)), torch.nan, out)
    return _result(checked, torch.where(visible.any(-1, keepdim=True), out, 0.0).flatten(1, 2))


def _per_head(tensor: Tensor, plane: Plane) -> Tensor:
    """(batch or 1, kv head or 1, group or 1, query, key) as (batch or 1, head or 1, query, key)."""
    if tensor.shape[1] == tensor.shape[2] == 1:
        return tensor.squeeze(1)
    return tensor.expand(-1, plane.kv_heads, plane.group, -1, -1).flatten(1, 2)


def _result(checked: Request, out: Tensor) -> Result:
    out = out.unflatten(1, (checked.plane.kv_heads, checked.plane.group)).to(checked.query.dtype)
    return Result(out, out.new_full(out.shape[:-1], torch.nan), Aux())
