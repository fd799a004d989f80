"""sdpa: torch's scaled_dot_product_attention on our engines; and the engine 'sdpa', a call of torch's own."""

from typing import Any, overload

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from regard import arrays, checks
from regard.arrays import Array
from regard.engine.attend import attend
from regard.engine.context import autocast_disabled, refuse_trace, tracing_state
from regard.engine.nested import is_jagged
from regard.engine.request import Aux, Request, Result
from regard.spec.normalizers import Softmax
from regard.spec.scores import ScaledDot
from regard.spec.steps import Band, DotProduct, MaskStep, PairTable, shows_everything


@overload
def sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | Array | None = ...,
    dropout_p: float = ...,
    is_causal: bool = ...,
    scale: float | None = ...,
    enable_gqa: bool = ...,
) -> Tensor: ...


@overload
def sdpa(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Tensor | Array | None = ...,
    dropout_p: float = ...,
    is_causal: bool = ...,
    scale: float | None = ...,
    enable_gqa: bool = ...,
) -> Array: ...


def sdpa(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Tensor | Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """`torch.nn.functional.scaled_dot_product_attention` with the same names, order and meaning: swap the import.

    query: (…, head, query, d); key: (…, head, key, d); value: (…, head, key, d_v). `is_causal` counts from the top left
    (query 0 sees key 0 only) and excludes `attn_mask`; `dropout_p` is applied as given, in training or not; a bool
    `attn_mask` is True where visible, a float one is added. Heads that differ need `enable_gqa=True`. NumPy
    arrays give a NumPy array.
    """
    options = (attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if isinstance(query, Tensor) and isinstance(key, Tensor) and isinstance(value, Tensor):
        return sdpa_on("auto", query, key, value, *options)
    tensors, numpy = arrays.inputs(("query", "key", "value"), (query, key, value))
    if not numpy:
        return sdpa_on("auto", tensors[0], tensors[1], tensors[2], *options)
    with torch.no_grad(), autocast_disabled(torch.device("cpu")):
        return arrays.array_of(sdpa_on("auto", tensors[0], tensors[1], tensors[2], *options), query)


def sdpa_on(
    engine: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | Array | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor:
    """The same on the engine of that name."""
    if not torch.compiler.is_compiling() and tracing_state() is not None:
        refuse_trace()
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if (tensor if is_jagged(tensor) else checks.is_tensor(name, tensor)).ndim < 2:
            raise ValueError(f"{name} must have at least 2 axes, (length, width), got shape {checks.shape(tensor)}")
    if attn_mask is not None and is_causal:
        raise ValueError(
            "sdpa takes attn_mask or is_causal, not both; for both use attend(mask=masks.Causal() & masks.Dense(...))"
        )
    query, key, value = _repeated(query, key, value) if enable_gqa else _broadcast(query, key, value)
    visible, added = _mask_and_bias(attn_mask)
    out = attend(
        query,
        key,
        value,
        score=ScaledDot(scale),
        mask="causal" if is_causal else visible,
        bias=added,
        dropout=0.0 if dropout_p == 1 else dropout_p,
        query_start=0,
        engine=engine,
    )
    assert isinstance(out, Tensor)
    return out * 0.0 if dropout_p == 1 else out


def _broadcast(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Heads broadcast like any other axis; one key and value head for many queries needs no widening."""
    heads = [tensor.shape[-3] if tensor.ndim > 2 else 1 for tensor in (query, key, value)]
    if len({head for head in heads if head != 1}) > 1:
        raise ValueError(
            f"query, key and value have {heads[0]}, {heads[1]} and {heads[2]} heads; "
            "pass enable_gqa=True if query heads share key heads"
        )
    if heads[1] == heads[2] and heads[1] in (1, heads[0]):
        return query, key, value
    return _widened(query, max(heads)), _widened(key, max(heads)), _widened(value, max(heads))


def _repeated(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Grouped heads are `attend`'s own; only key and value heads that differ in number must be copied."""
    heads = [tensor.shape[-3] if tensor.ndim > 2 else 1 for tensor in (query, key, value)]
    if any(head == 0 or heads[0] % head for head in heads[1:]):
        raise ValueError(
            f"the heads of key and value must divide the query's {heads[0]}, got {heads[1]} and {heads[2]}"
        )
    if heads[1] == heads[2]:
        return query, key, value
    return query, _copied(key, heads[0]), _copied(value, heads[0])


def _copied(tensor: Tensor, heads: int) -> Tensor:
    """Each head as often as it takes to have `heads`."""
    if tensor.ndim == 2 or tensor.shape[-3] == 1:
        return _widened(tensor, heads)
    return tensor.repeat_interleave(heads // tensor.shape[-3], -3)


def _widened(tensor: Tensor, heads: int) -> Tensor:
    """One head seen as many, without a copy."""
    if tensor.is_nested and tensor.shape[1] != heads:
        raise ValueError(f"heads of nested tensors do not broadcast; give {heads} heads, got {tensor.shape[1]}")
    if tensor.is_nested:
        return tensor
    if tensor.ndim == 2:
        tensor = tensor.unsqueeze(0)
    return tensor.expand(*tensor.shape[:-3], heads, *tensor.shape[-2:])


def _mask_and_bias(attn_mask: Tensor | Array | None) -> tuple[Tensor | None, Tensor | None]:
    """(visible, added), at most one of the two."""
    if attn_mask is None:
        return None, None
    mask = torch.atleast_2d(checks.is_tensor("attn_mask", arrays.tensor_of("attn_mask", attn_mask)))
    if mask.dtype == torch.bool:
        return mask, None
    if mask.is_floating_point():
        return None, mask
    raise TypeError(
        "attn_mask must be bool (True = visible) or float (added to the scores), "
        f"got {checks.dtype(mask)}; convert it with attn_mask.bool()"
    )


NAME = "sdpa"


def supports(request: Request) -> str | None:
    """None, or why torch's function cannot do this."""
    if _product(request) is None:
        return f"torch computes q·k·scale only, not {request.score!r}"
    if not isinstance(request.normalizer, Softmax) or request.normalizer.sink is not None:
        return f"torch has a plain softmax only, not {request.normalizer!r}"
    if isinstance(request.temperature, Tensor):
        return "torch takes its scale as one number, not a temperature as a tensor"
    if request.dropout is not None:
        return "torch draws another dropout pattern"
    if request.aux:
        return f"torch returns the output only, not {', '.join(request.aux)}"
    if request.bias is not None and _table(request.bias.steps()) is None:
        return f"torch takes a bias as a dense tensor only, not {request.bias!r}"
    start, steps = request.plane.starts, request.mask.steps(request.plane)
    if is_causal(steps):
        if request.bias is not None:
            return "torch takes a causal flag or a dense bias, not both"
        if start.numel() > 1 or int(start) != 0:
            return "torch's causal rule starts at the top left, the queries here do not stand at 0"
    elif not shows_everything(steps) and _table(steps) is None:
        return f"torch takes a mask as a dense tensor only, not {request.mask!r}"
    return None


def _product(request: Request) -> DotProduct | None:
    """The score as a dot product of the inputs as they are; None if it is another."""
    match request.score.steps():
        case (DotProduct(plain=True) as step,):
            return step
    return None


def is_causal(steps: tuple[MaskStep, ...]) -> bool:
    """Whether these are the steps of the causal mask."""
    return len(steps) == 1 and isinstance(steps[0], Band) and (steps[0].before, steps[0].after) == (None, 0)


def _table(steps: tuple[Any, ...]) -> Tensor | None:
    """The tensor of a mask or bias that is one table of pairs; None if it is another."""
    return steps[0].tensor if len(steps) == 1 and isinstance(steps[0], PairTable) else None


def run(request: Request) -> Result:
    """Call torch; there is no row state to give back."""
    query, key, value = request.query.flatten(1, 2), request.key.squeeze(2), request.value.squeeze(2)
    product, attn_mask = _product(request), _table(request.mask.steps(request.plane))
    assert product is not None
    assert isinstance(request.temperature, float)
    if request.bias is not None:
        table = _table(request.bias.steps())
        assert table is not None
        bias = (table / request.temperature).to(request.query.dtype)  # divided by τ like the scores
        attn_mask = bias if attn_mask is None else torch.where(attn_mask, bias, -torch.inf)
    out = scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=attn_mask,
        is_causal=is_causal(request.mask.steps(request.plane)),
        scale=product.factor(query.shape[-1]) / request.temperature,
        enable_gqa=request.plane.group > 1,
    )
    out = out.unflatten(1, (request.plane.kv_heads, request.plane.group))
    return Result(out, out.new_full(out.shape[:-1], torch.nan), Aux())
