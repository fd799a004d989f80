"""Parse: the arguments of each function that computes attention as an AttentionCall."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, linear, pad

from regard.engine.context import to_autocast
from regard.engine.partial import KeyChunk
from regard.engine.request import Spec
from regard.engine.sdpa_override.calls import SdpaCall
from regard.engine.sdpa_override.multihead import MultiHeadCall
from regard.inspection.hooks.call import AttentionCall, copied
from regard.spec.masks import Causal, Dense, Documents, RowWhere
from regard.spec.scores import Modified, ScaledDot


class _Layer(threading.local):
    query: tuple[int, ...] | None = None  # the shape of the query that a layer of transformers passes


layer = _Layer()


def is_packed(query: Tensor) -> bool:
    """Whether the queries are the heads of a group, (batch, kv head, group, width): transformers 5.23 and later pass a
    single query of grouped heads to scaled_dot_product_attention this way."""
    shape = layer.query
    if shape is None or len(shape) != 4 or shape[2] != 1 or query.ndim != 4 or query.shape[2] == 1:
        return False
    return shape[1] == query.shape[1] * query.shape[2]


def unpacked(tensor: Tensor) -> Tensor:
    """(batch, kv head, group, width) as (batch, head, 1, width)."""
    return tensor.reshape(tensor.shape[0], -1, 1, tensor.shape[3])


def sdpa(*args: Any, **kwargs: Any) -> AttentionCall:
    """scaled_dot_product_attention; a packed call has the heads of the layer."""
    given = SdpaCall(*args, **kwargs)
    if is_packed(given.query):
        mask, group = given.attn_mask, given.query.shape[2]
        if mask is not None and mask.ndim == 4 and mask.shape[2] == group:
            mask = unpacked(mask)
        given = replace(given, query=unpacked(given.query), attn_mask=mask, enable_gqa=True)
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


def is_known_kernel(func: Any) -> bool:
    """Whether `kernel` parses an operator: one of scaled_dot_product_attention's, not those for packed sequences."""
    return str(func.__name__).startswith("_scaled_dot_product_")


def kernel(func: Any, *args: Any, **kwargs: Any) -> AttentionCall:
    """A kernel of scaled_dot_product_attention that was called directly."""
    names = [argument.name for argument in func._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    query, key, value = (given[name] for name in ("query", "key", "value"))
    if any(tensor.is_nested for tensor in (query, key, value)):
        raise ValueError("it gives nested tensors to a kernel of scaled_dot_product_attention")
    mask = given.get("attn_mask", given.get("attn_bias"))
    options = {name: given[name] for name in ("dropout_p", "is_causal", "scale") if name in given}
    gqa = query.ndim == 4 and query.shape[1] != key.shape[1]
    return replace(
        sdpa(query, key, value, mask, **options, enable_gqa=gqa), mechanism=f"aten.{func.__name__.partition('.')[0]}"
    )


def multi_head(*args: Any, **kwargs: Any) -> AttentionCall:
    """multi_head_attention_forward; learned and zero keys come last, as in the weights that torch returns."""
    given = MultiHeadCall(*args, **kwargs)
    query, key, value = given.projected()
    rules = (given if given.trusts_causal else replace(given, need_weights=True)).rules(key.shape[-2])
    if given.add_zero_attn:
        key, value = pad(key, (0, 0, 0, 1)), pad(value, (0, 0, 0, 1))
    spec: Spec = {"score": ScaledDot(), "mask": rules.mask, "bias": rules.bias, "query_start": 0}
    query, key, value = to_autocast(query), to_autocast(key), to_autocast(value)
    rate = given.dropout_p if given.training else 0.0
    return AttentionCall(query, key, spec, "nn.MultiheadAttention", value=value, dropout=rate)


class FastPath(NamedTuple):
    """Arguments of _native_multi_head_attention, the fast path of nn.MultiheadAttention. A bool mask is True where
    hidden; it hides keys if `mask_type` is 1, else pairs."""

    query: Tensor
    key: Tensor
    value: Tensor
    width: int
    heads: int
    weight: Tensor
    bias: Tensor
    out_weight: Tensor
    out_bias: Tensor
    mask: Tensor | None = None
    need_weights: bool = True
    average: bool = True
    mask_type: int | None = None

    def padded(self) -> tuple["FastPath", Tensor | None]:
        """With padded tensors in place of nested ones, and the lengths of their rows, (batch, 1); None for others."""
        if not self.query.is_nested:
            return self, None
        query, key, value = (tensor.to_padded_tensor(0.0) for tensor in (self.query, self.key, self.value))
        lengths = torch.tensor([len(row) for row in self.query.unbind()], device=query.device, dtype=torch.int64)
        return self._replace(query=query, key=key, value=value), lengths.view(-1, 1)


def native(*args: Any, **kwargs: Any) -> AttentionCall:
    """The fast path of nn.MultiheadAttention."""
    given, lengths = FastPath(*args, **kwargs).padded()
    inputs, mask = (given.query, given.key, given.value), given.mask
    parts = zip(inputs, given.weight.split(given.width), given.bias.split(given.width), strict=True)
    q, k, v = (linear(*part).unflatten(-1, (given.heads, -1)).transpose(-3, -2) for part in parts)
    spec: Spec = {"score": ScaledDot(), "query_start": 0}
    if lengths is not None:  # a row past its end sees nothing and is not seen
        ids = (torch.arange(given.query.shape[1], device=q.device) < lengths).long()
        spec["mask"] = Documents(ids, query_ids=torch.where(ids == 1, 1, 2))
    elif mask is not None:
        table = mask.view(len(mask), 1, 1, -1) if given.mask_type == 1 else mask
        if mask.dtype == torch.bool:
            spec["mask"] = Dense(_unexpanded(~table))
        else:
            spec["bias"] = _unexpanded(table)
    return AttentionCall(q, k, spec, "nn.MultiheadAttention, fast path", value=v)


def encoder_layer(source: Tensor, width: int, heads: int, *args: Any) -> AttentionCall:
    """_transformer_encoder_layer_fwd, the fast path of nn.TransformerEncoderLayer."""
    attention, (_, norm_first, eps, norm_weight, norm_bias) = args[:4], args[4:9]
    mask, mask_type = (*args[15:], None, None)[:2]
    x = layer_norm(source, (width,), norm_weight, norm_bias, eps) if norm_first else source
    call = native(x, x, x, width, heads, *attention, mask, mask_type=mask_type)
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
