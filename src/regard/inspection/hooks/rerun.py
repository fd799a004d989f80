"""Rerun: each function that computes attention, run so that the outputs of its heads can be changed inside it."""

from collections.abc import Callable
from types import FunctionType
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear, multi_head_attention_forward, relu

from regard.engine.sdpa_override.calls import SdpaCall
from regard.engine.sdpa_override.multihead import MultiHeadCall
from regard.inspection.hooks.parse import FastPath, is_packed, unpacked


class Edit(Protocol):
    """Changes the heads of one call."""

    def out(self, out: Tensor) -> Tensor:
        """The changed outputs of the heads, (…, head, query, width)."""

    def weights(self, weights: Tensor) -> Tensor:
        """The changed weights, (…, head, query, key), for a model that returns them. Called after `out`."""


Function = Callable[..., Any]
Rerun = Callable[[Function, Any, Any, Edit], Any]


def plain(function: Function, args: Any, kwargs: Any, edit: Edit) -> Any:
    """A function that returns the heads' outputs."""
    out = function(*args, **kwargs)
    if not isinstance(out, Tensor):
        raise ValueError("it asks attend for more than the output (aux=), which would not change with it")
    return edit.out(out)


def sdpa(function: Function, args: Any, kwargs: Any, edit: Edit) -> Any:
    """scaled_dot_product_attention, packed or not."""
    out = function(*args, **kwargs)
    if is_packed(SdpaCall(*args, **kwargs).query):
        return edit.out(unpacked(out)).reshape(out.shape)
    return edit.out(out)


def flex(function: Function, args: Any, kwargs: Any, edit: Edit) -> Any:
    """flex_attention without gradients: its backward pass would compute the weights again."""
    options = args[6] if len(args) > 6 else kwargs.get("kernel_options")
    if options and (options.get("OUTPUT_LOGSUMEXP") or options.get("OUTPUT_MAX")):
        raise ValueError(
            "flex_attention wants gradients, or gives back lse or max_scores, which would not change with its output; "
            "run it in torch.no_grad() without them"
        )
    out, *rest = function(*args, **kwargs)
    return edit.out(out), *rest


def eager(function: Function, args: Any, kwargs: Any, edit: Edit) -> Any:
    """An eager function of transformers: (batch, query, head, width), and the weights."""
    out, weights, *rest = function(*args, **kwargs)
    changed = edit.out(out.transpose(1, 2)).transpose(1, 2)
    return changed, None if weights is None else edit.weights(weights), *rest


def multi_head(function: Function, args: Any, kwargs: Any, edit: Edit) -> tuple[Tensor, Tensor | None]:
    """multi_head_attention_forward with another function in place of its output projection."""
    given, called = MultiHeadCall(*args, **kwargs), False

    def projected(merged: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        nonlocal called
        called = True
        batch = given.query.shape[1] if given.query.ndim == 3 else 1
        heads = merged.view(-1, batch, given.num_heads, merged.shape[-1] // given.num_heads)
        changed = edit.out(heads.permute(1, 2, 0, 3)).permute(2, 0, 1, 3)
        return linear(changed.reshape(merged.shape), weight, bias)

    own = _with(function, linear=projected)
    out, weights = own(**{**vars(given), "average_attn_weights": False})
    if not called:
        raise ValueError(f"{function.__name__} is not torch's own; somebody has put another in its place")
    if weights is not None:
        weights = edit.weights(weights)
        weights = weights.mean(-3) if given.average_attn_weights else weights
    return out, weights


def native(function: Function, args: Any, kwargs: Any, edit: Edit) -> tuple[Tensor, Tensor | None]:
    """nn.MultiheadAttention without its fast path: multi_head_attention_forward, which takes (length, batch, width)."""
    given, lengths = FastPath(*args, **kwargs).padded()
    padding = given.mask if given.mask_type == 1 else None
    if lengths is not None:
        padding = torch.arange(given.query.shape[1], device=lengths.device) >= lengths
    pairs = None if given.mask is None or given.mask_type == 1 else given.mask
    same = given.query is given.key and given.key is given.value
    query = given.query.transpose(0, 1)
    key, value = (query, query) if same else (given.key.transpose(0, 1), given.value.transpose(0, 1))
    parameters = (given.weight, given.bias, None, None, False, 0.0, given.out_weight, given.out_bias)
    options = {
        "training": False,
        "key_padding_mask": padding,
        "need_weights": given.need_weights,
        "attn_mask": pairs if pairs is None or pairs.ndim < 4 else pairs.flatten(0, 1),
        "average_attn_weights": given.average,
    }
    inputs = (query, key, value, given.width, given.heads, *parameters)
    out, weights = multi_head(multi_head_attention_forward, inputs, options, edit)
    out = out.transpose(0, 1)
    if lengths is not None:
        rows = zip(out, lengths.flatten().tolist(), strict=True)
        out = torch.nested.as_nested_tensor([row[:length] for row, length in rows])
    return out, weights


def encoder_layer(function: Function, args: Any, kwargs: Any, edit: Edit) -> Tensor:
    """nn.TransformerEncoderLayer without its fast path: the same operations one by one."""
    (source, width, heads, *attention, is_gelu, first, eps), rest = args[:10], args[10:]
    norms, feed, masks = rest[:4], rest[4:8], (*rest[8:], None, None)[:2]

    def attended(x: Tensor) -> Tensor:
        given = (x, x, x, width, heads, *attention, masks[0], False, True, masks[1])
        return native(function, given, {}, edit)[0]

    def fed(x: Tensor) -> Tensor:
        inner = linear(x, feed[0], feed[1])
        return linear(gelu(inner) if is_gelu else relu(inner), feed[2], feed[3])

    def normed(x: Tensor, number: int) -> Tensor:
        weight, bias = norms[2 * number : 2 * number + 2]
        return layer_norm(x, (width,), weight, bias, eps)

    if first:
        x: Tensor = source + attended(normed(source, 0))
        return x + fed(normed(x, 1))
    x = normed(source + attended(source), 0)
    return normed(x + fed(x), 1)


def _with(function: Function, **names: Any) -> Function:
    """A copy of a function with other globals under some names."""
    assert isinstance(function, FunctionType)
    namespace = {**function.__globals__, **names}
    copy = FunctionType(function.__code__, namespace, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    namespace[function.__name__] = copy  # an active mode calls it by its name
    return copy
