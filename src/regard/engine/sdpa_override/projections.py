"""Queries, keys and values of nn.MultiheadAttention, split into heads."""

import torch
from torch import Tensor
from torch.nn.functional import linear

from regard.engine.sdpa_override.arguments import Arguments

MISFIT = "its arguments do not fit together; torch says how"


def projected(asked: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    """(batch, head, length, width) each, with the learned key and value at the end."""
    if not _fits(asked):
        raise ValueError(MISFIT)
    query, key, value = _projected(asked)
    if asked.bias_k is not None and asked.bias_v is not None:
        batch = len(query)
        key = torch.cat([key, asked.bias_k.expand(batch, 1, -1)], 1)
        value = torch.cat([value, asked.bias_v.expand(batch, 1, -1)], 1)
    query, key, value = (_split(tensor, asked.num_heads) for tensor in (query, key, value))
    if asked.static_k is not None:
        key = asked.static_k.unflatten(0, (-1, asked.num_heads))
    if asked.static_v is not None:
        value = asked.static_v.unflatten(0, (-1, asked.num_heads))
    return query, key, value


def _projected(asked: Arguments) -> tuple[Tensor, ...]:
    """(batch, length, width) each, in as few products as there are different inputs."""
    query, key, value, width = asked.query, asked.key, asked.value, asked.embed_dim_to_check
    weight, bias = asked.in_proj_weight, asked.in_proj_bias
    if asked.use_separate_proj_weight:
        weights = (asked.q_proj_weight, asked.k_proj_weight, asked.v_proj_weight)
        biases = (None, None, None) if bias is None else bias.chunk(3)
        return tuple(_product(*three) for three in zip((query, key, value), weights, biases, strict=True))
    assert weight is not None
    if query is key and key is value:
        return _product(query, weight, bias).chunk(3, -1)
    alone = _product(query, weight[:width], None if bias is None else bias[:width])
    weight, bias = weight[width:], None if bias is None else bias[width:]
    if key is value:
        return alone, *_product(key, weight, bias).chunk(2, -1)
    halves = (None, None) if bias is None else bias.chunk(2)
    return alone, *(_product(*three) for three in zip((key, value), weight.chunk(2), halves, strict=True))


def _product(tensor: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """(length, batch, width) to (batch, length, width'), without a copy of either order."""
    assert weight is not None
    if tensor.ndim == 2:
        return linear(tensor, weight, bias).unsqueeze(0)
    turned = tensor.transpose(0, 1)
    out: Tensor = (
        linear(turned, weight, bias) if turned.is_contiguous() else linear(tensor, weight, bias).transpose(0, 1)
    )
    return out


def _split(tensor: Tensor, heads: int) -> Tensor:
    split: Tensor = tensor.unflatten(-1, (heads, -1))
    return split.transpose(1, 2)


def _fits(asked: Arguments) -> bool:
    """Whether torch would find the sizes right."""
    query, key, value = asked.query, asked.key, asked.value
    width, heads = asked.embed_dim_to_check, asked.num_heads
    alike = query.ndim in (2, 3) and key.ndim == value.ndim == query.ndim and key.shape[:-1] == value.shape[:-1]
    if not alike or query.shape[1:-1] != key.shape[1:-1] or query.shape[-1] != width or width % heads:
        return False
    weights: tuple[Tensor | None, ...] = (asked.q_proj_weight, asked.k_proj_weight, asked.v_proj_weight)
    wanted = [(width, tensor.shape[-1]) for tensor in (query, key, value)]
    if not asked.use_separate_proj_weight:
        weights, wanted = (asked.in_proj_weight,), [(3 * width, width)]
        if key.shape[-1] != width or value.shape[-1] != width:
            return False
    if any(found is None or found.shape != size for found, size in zip(weights, wanted, strict=True)):
        return False
    if asked.in_proj_bias is not None and asked.in_proj_bias.shape != (3 * width,):
        return False
    return _learned_fit(asked) and _static_fit(asked)


def _learned_fit(asked: Arguments) -> bool:
    learned, given = (asked.bias_k, asked.bias_v), (asked.static_k, asked.static_v)
    if learned == (None, None):
        return True
    whole = all(part is not None and part.shape == (1, 1, asked.embed_dim_to_check) for part in learned)
    return whole and given == (None, None)


def _static_fit(asked: Arguments) -> bool:
    batch = asked.query.shape[1] if asked.query.ndim == 3 else 1
    wanted = batch * asked.num_heads, asked.embed_dim_to_check // asked.num_heads
    given = [part for part in (asked.static_k, asked.static_v) if part is not None]
    return all(part.ndim == 3 and (part.shape[0], part.shape[2]) == wanted for part in given)
