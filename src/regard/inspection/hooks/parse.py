"""Parse: the arguments of each function that computes attention as an AttentionCall."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, linear, pad

from regard.engine.context import to_autocast
from regard.engine.partial import KeyChunk
from regard.engine.request import Spec
from regard.engine.sdpa_override.calls import SdpaCall
from regard.engine.sdpa_override.multihead import MultiHeadArguments, projected, rules_of
from regard.inspection.hooks.call import AttentionCall, copied
from regard.spec.masks import Causal, Dense, Documents, RowWhere
from regard.spec.scores import Modified, ScaledDot


def sdpa(given: SdpaCall) -> AttentionCall:
    """scaled_dot_product_attention."""
    query, key = given.query, given.key
    spec: Spec = {"score": ScaledDot(given.scale)}
    if given.is_causal:
        spec["mask"], spec["query_start"] = Causal(), 0  # as torch counts: query 0 stands at key 0
    elif given.attn_mask is not None:
        spec["mask" if given.attn_mask.dtype == torch.bool else "bias"] = torch.atleast_2d(given.attn_mask)
    if not given.enable_gqa and query.ndim > 2 and key.ndim > 2:  # heads broadcast like any other axis
        heads = max(query.shape[-3], key.shape[-3])
        query = query.expand(*query.shape[:-3], heads, *query.shape[-2:])
    name, value, rate = "scaled_dot_product_attention", given.value, float(given.dropout_p)
    return AttentionCall(query, key, spec, name, value=value, dropout=rate)


def multi_head(*args: Any, **kwargs: Any) -> AttentionCall:
    """multi_head_attention_forward; learned and zero keys come last, as in the weights that torch returns."""
    given = MultiHeadArguments(*args, **kwargs)
    query, key, value = projected(given)
    rules = rules_of(given if given.trusts_causal else replace(given, need_weights=True), key.shape[-2])
    if given.add_zero_attn:
        key, value = pad(key, (0, 0, 0, 1)), pad(value, (0, 0, 0, 1))
    spec: Spec = {"score": ScaledDot(), "mask": rules.mask, "bias": rules.bias, "query_start": 0}
    query, key, value = to_autocast(query), to_autocast(key), to_autocast(value)
    rate = given.dropout_p if given.training else 0.0
    return AttentionCall(query, key, spec, "nn.MultiheadAttention", value=value, dropout=rate)


def native(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    width: int,
    heads: int,
    weight: Tensor,
    bias: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average: bool = True,
    mask_type: int | None = None,
) -> AttentionCall:
    """_native_multi_head_attention, the fast path of nn.MultiheadAttention. A bool mask is True where hidden."""
    present = None
    if query.is_nested:
        lengths = [len(row) for row in query.unbind()]
        present = torch.arange(max(lengths), device="cpu") < torch.tensor(
            lengths, device="cpu", dtype=torch.int64
        ).view(-1, 1)
        query, key, value = (tensor.to_padded_tensor(0.0) for tensor in (query, key, value))
    parts = zip((query, key, value), weight.split(width), bias.split(width), strict=True)
    q, k, v = (linear(*part).unflatten(-1, (heads, -1)).transpose(-3, -2) for part in parts)
    spec: Spec = {"score": ScaledDot(), "query_start": 0}
    if present is not None:  # a row past its end sees nothing and is not seen
        ids = present.long().to(q.device)
        spec["mask"] = Documents(ids, query_ids=torch.where(ids == 1, 1, 2))
    elif mask is not None:
        shown = mask.view(len(mask), 1, 1, -1) if mask_type == 1 else mask
        if mask.dtype == torch.bool:
            spec["mask"] = Dense(_unexpanded(~shown))
        else:
            spec["bias"] = _unexpanded(shown)
    return AttentionCall(q, k, spec, "nn.MultiheadAttention, fast path", value=v)


def encoder_layer(
    source: Tensor,
    width: int,
    heads: int,
    weight: Tensor,
    bias: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight: Tensor,
    norm_bias: Tensor,
    *rest: Any,
) -> AttentionCall:
    """_transformer_encoder_layer_fwd, the fast path of nn.TransformerEncoderLayer."""
    mask, mask_type = (*rest[6:], None, None)[:2]
    x = layer_norm(source, (width,), norm_weight, norm_bias, eps) if norm_first else source
    call = native(x, x, x, width, heads, weight, bias, out_weight, out_bias, mask, mask_type=mask_type)
    return replace(call, mechanism="nn.TransformerEncoderLayer, fast path")


def flex(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor],
    block_mask: tuple[Any, ...],
    scale: float,
    options: Any = None,
    score_tensors: tuple[Tensor, ...] = (),
    mask_tensors: tuple[Tensor, ...] = (),
) -> AttentionCall:
    """flex_attention. Its functions take the tensors that they use as last arguments."""
    score = ScaledDot(scale)
    spec: Spec = {
        "score": score if _returns_score(score_mod) else Modified(score, _bound(score_mod, score_tensors)),
        "mask": RowWhere(_bound(block_mask[-1], mask_tensors)),
        "query_start": 0,
    }
    return AttentionCall(query, key, spec, "flex_attention", value=value)


def attend(query: Tensor, key: Tensor, value: Tensor, *, aux: Any = (), engine: str = "", **spec: Any) -> AttentionCall:
    """regard.attend."""
    dropout = spec.pop("dropout", 0.0)
    query, key, value = to_autocast(query), to_autocast(key), to_autocast(value)
    parts = Spec(**spec)  # type: ignore[typeddict-item]
    return AttentionCall(query, key, parts, "regard.attend", value=value, dropout=dropout)


def attend_chunks(query: Tensor, pieces: Sequence[KeyChunk], *, engine: str = "", **spec: Any) -> AttentionCall:
    """regard.attend over the keys of a cache."""
    if len(pieces) > 1 or pieces[0].start != 0:
        raise ValueError("its cache has let go of keys, so that no single matrix holds every query and key")
    return attend(query, pieces[0].key, pieces[0].value, engine=engine, **spec)


def _returns_score(function: Callable[..., Tensor]) -> bool:
    """Whether a graph returns its first argument, as torch's default function does."""
    if not isinstance(function, torch.fx.GraphModule):
        return False
    nodes = list(function.graph.nodes)
    return bool(nodes[-1].args[0] is nodes[0])


def _bound(function: Callable[..., Tensor], tensors: tuple[Tensor, ...]) -> Callable[..., Tensor]:
    copies = tuple(copied(tensor) for tensor in tensors)
    return lambda *args: function(*args, *copies)


def _unexpanded(tensor: Tensor) -> Tensor:
    """With leading axes of constant content, which come from expanded tensors, reduced to 1."""
    for axis in range(tensor.ndim - 2):
        if tensor.shape[axis] > 1 and bool((tensor == tensor.narrow(axis, 0, 1)).all()):
            tensor = tensor.narrow(axis, 0, 1)
    return tensor
