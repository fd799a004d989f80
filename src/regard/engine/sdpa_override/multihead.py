"""Calls of torch's multi_head_attention_forward, which nn.MultiheadAttention makes outside its fast path."""

from dataclasses import dataclass
from functools import reduce
from operator import add, and_
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from regard.engine.attend import attend, run
from regard.engine.context import autocast_disabled, to_autocast
from regard.engine.request import Request, Spec, request
from regard.engine.sdpa_override.calls import shape_of
from regard.engine.tiled.engine import logits_of
from regard.engine.tiled.tiles import Tile
from regard.spec.biases import Bias
from regard.spec.biases import Dense as DenseBias
from regard.spec.masks import Causal, Mask
from regard.spec.masks import Dense as DenseMask
from regard.spec.normalizers import Softmax
from regard.spec.scores import ScaledDot


@dataclass(frozen=True, eq=False)
class MultiHeadArguments:
    """Arguments of multi_head_attention_forward, in torch's order and with torch's names.

    query: (length, batch, width), or (length, width). A bool mask is True where *hidden*, a float one is added.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    embed_dim_to_check: int
    num_heads: int
    in_proj_weight: Tensor | None
    in_proj_bias: Tensor | None
    bias_k: Tensor | None
    bias_v: Tensor | None
    add_zero_attn: bool
    dropout_p: float
    out_proj_weight: Tensor
    out_proj_bias: Tensor | None
    training: bool = True
    key_padding_mask: Tensor | None = None
    need_weights: bool = True
    attn_mask: Tensor | None = None
    use_separate_proj_weight: bool = False
    q_proj_weight: Tensor | None = None
    k_proj_weight: Tensor | None = None
    v_proj_weight: Tensor | None = None
    static_k: Tensor | None = None
    static_v: Tensor | None = None
    average_attn_weights: bool = True
    is_causal: bool = False

    @property
    def trusts_causal(self) -> bool:
        """Whether torch would use the causal hint instead of the mask."""
        return self.is_causal and self.key_padding_mask is None and not self.need_weights


MISFIT = "its arguments do not fit together; torch says how"


def projected(asked: MultiHeadArguments) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values by head, (batch, head, length, width); a learned key and value come last."""
    if not _sizes_fit(asked):
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


def _projected(asked: MultiHeadArguments) -> tuple[Tensor, ...]:
    """(batch, length, width) each, with one product per distinct input."""
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


def _sizes_fit(asked: MultiHeadArguments) -> bool:
    """Whether torch would accept the sizes."""
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


def _learned_fit(asked: MultiHeadArguments) -> bool:
    learned, given = (asked.bias_k, asked.bias_v), (asked.static_k, asked.static_v)
    if learned == (None, None):
        return True
    whole = all(part is not None and part.shape == (1, 1, asked.embed_dim_to_check) for part in learned)
    return whole and given == (None, None)


def _static_fit(asked: MultiHeadArguments) -> bool:
    batch = asked.query.shape[1] if asked.query.ndim == 3 else 1
    wanted = batch * asked.num_heads, asked.embed_dim_to_check // asked.num_heads
    given = [part for part in (asked.static_k, asked.static_v) if part is not None]
    return all(part.ndim == 3 and (part.shape[0], part.shape[2]) == wanted for part in given)


@dataclass(frozen=True, eq=False)
class Rules:
    """Mask and bias of a call; `sink` if the zero key is computed as a sink of 0."""

    mask: Mask | None
    bias: Bias | None
    sink: bool


def rules_of(asked: MultiHeadArguments, keys: int) -> Rules:
    """Mask and bias for `keys` keys; masks do not cover learned keys at the end."""
    if not _masks_fit(asked):
        raise ValueError(MISFIT)
    if asked.trusts_causal:  # which hides keys at the end, a zero key too
        return Rules(Causal(), None, sink=False)
    sink = asked.add_zero_attn and not asked.need_weights
    more = keys - len(asked.key) if asked.static_k is None else 0
    more += asked.add_zero_attn and not sink
    parts = [_padding_part(asked.key_padding_mask, more), _pair_part(asked, more)]
    masks = [part for part in parts if isinstance(part, Mask)]
    biases = [part for part in parts if isinstance(part, Bias)]
    return Rules(
        mask=reduce(and_, masks) if masks else None,
        bias=reduce(add, biases) if biases else None,
        sink=sink,
    )


def _padding_part(given: Tensor | None, more: int) -> Mask | Bias | None:
    """A float mask of 0 and −inf becomes a mask: nn.MultiheadAttention makes such from a bool one."""
    if given is None:
        return None
    hidden = given if given.dtype == torch.bool else given == -torch.inf
    if given.dtype == torch.bool or (not given.requires_grad and bool((hidden | (given == 0)).all())):
        return DenseMask(pad(~hidden, (0, more), value=True).view(-1, 1, 1, given.shape[-1] + more))
    return DenseBias(pad(to_autocast(given), (0, more)).view(-1, 1, 1, given.shape[-1] + more))


def _pair_part(asked: MultiHeadArguments, more: int) -> Mask | Bias | None:
    given = asked.attn_mask
    if given is None:
        return None
    if asked.is_causal and not more and _is_causal(given):
        return Causal()
    if given.ndim == 3:
        given = given.unflatten(0, (-1, asked.num_heads))
    if given.dtype == torch.bool:
        return DenseMask(pad(~given, (0, more), value=True))
    return DenseBias(pad(to_autocast(given), (0, more)))


def _is_causal(given: Tensor) -> bool:
    """Whether the mask is the causal one."""
    if given.ndim != 2 or given.requires_grad:
        return False
    if given.dtype == torch.bool:
        return torch.equal(given, torch.ones_like(given).triu_(1))
    return torch.equal(given, torch.full_like(given, -torch.inf).triu_(1))


def _masks_fit(asked: MultiHeadArguments) -> bool:
    """Whether torch would accept the masks."""
    pairs, padding = asked.attn_mask, asked.key_padding_mask
    if any(mask is not None and mask.dtype != torch.bool and not mask.is_floating_point() for mask in (pairs, padding)):
        return False
    batch = tuple(asked.query.shape[1:-1])
    if pairs is None and asked.is_causal:
        return False
    if padding is not None and padding.shape != (*batch, len(asked.key)):
        return False
    all_heads = asked.num_heads * (batch[0] if batch else 1)
    size = (len(asked.query), len(asked.key))
    return pairs is None or pairs.shape in (size, (all_heads, *size))


CELLS = 1 << 22  # pairs over all batch rows and heads at a time


def returned_weights(asked: Request, average: bool) -> Tensor:
    """(batch, head, query, key), or their mean over heads, (batch, query, key), which holds no more than that at once
    unless gradients are wanted. There must be no sink: torch shows it as one more key."""
    assert asked.sink is None
    plane, logits = asked.plane, logits_of(asked)
    operands = tuple(operand.tensor for operand in logits.operands)
    height = max(1, CELLS // max(1, plane.batch * plane.heads * plane.keys))
    blocks = []
    for start in range(0, max(1, plane.queries), height):
        rows = slice(start, min(plane.queries, start + height))
        tile = Tile(plane, rows, slice(0, plane.keys), mixed=True)
        x, _ = logits.tile(tile, logits.cut(operands, tile))
        unseen = (x == -torch.inf).all(-1, keepdim=True)
        weights = torch.where(unseen, 0.0, torch.where(unseen, 0.0, x).softmax(-1))
        if asked.dropout is not None:
            weights = weights * asked.dropout.factors(tile.pairs, weights.dtype)
        weights = weights.flatten(1, 2)
        blocks.append((weights.mean(1) if average else weights).to(asked.query.dtype))
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, -2)


class MultiHeadCall(MultiHeadArguments):
    """A call of multi_head_attention_forward."""

    function: ClassVar[str] = "multi_head_attention_forward"

    def tensors(self) -> dict[str, Tensor | None]:
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def sizes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        query, key = shape_of(self.query), shape_of(self.key)
        if len(query) not in (2, 3) or len(key) != len(query):
            return query, key
        keys = key[0] if self.static_k is None else shape_of(self.static_k)[1]
        width = self.embed_dim_to_check // max(1, self.num_heads)
        return (*query[1:-1], self.num_heads, query[0], width), (*key[1:-1], self.num_heads, keys, width)

    def words(self) -> str:
        told = {
            "causal": self.trusts_causal,
            "mask": self.attn_mask is not None and not self.trusts_causal,
            "padding": self.key_padding_mask is not None,
            "learned key": self.bias_k is not None,
            "zero key": self.add_zero_attn,
            f"dropout {self.dropout_p:g}": self.training and self.dropout_p > 0,
            "weights": self.need_weights,
        }
        return ", ".join(word for word, true in told.items() if true)

    def run(self, engine: str) -> tuple[Tensor, Tensor | None]:
        query, key, value = projected(self)
        rules = rules_of(self, key.shape[-2])
        if self.add_zero_attn and not rules.sink:
            key, value = (torch.nn.functional.pad(tensor, (0, 0, 0, 1)) for tensor in (key, value))
        query, key, value = to_autocast(query), to_autocast(key), to_autocast(value)
        with autocast_disabled(query.device):
            out, weights = self._attended(query, key, value, rules, engine)
        if self.query.ndim == 3 and self.query.transpose(0, 1).is_contiguous():
            merged = out.transpose(1, 2).flatten(2)  # (batch, length, width), as the inputs lie in memory
            out = linear(merged, self.out_proj_weight, self.out_proj_bias).transpose(0, 1)
        else:
            merged = out.permute(2, 0, 1, 3).flatten(2)
            out = linear(merged, self.out_proj_weight, self.out_proj_bias)
        if self.query.ndim == 2:
            return out.squeeze(1), None if weights is None else weights.squeeze(0)
        return out, weights

    def _attended(
        self, query: Tensor, key: Tensor, value: Tensor, rules: Rules, engine: str
    ) -> tuple[Tensor, Tensor | None]:
        """The heads' outputs, and the weights if they are asked for."""
        rate = self.dropout_p if self.training else 0.0
        spec = Spec(
            score=ScaledDot(),
            mask=rules.mask,
            bias=rules.bias,
            temperature=1.0,
            normalizer=Softmax(0.0 if rules.sink else None),
            dropout=0.0 if rate == 1 else rate,
            query_start=0,
        )
        if not self.need_weights:
            out, weights = attend(query, key, value, engine=engine, **spec), None
        else:
            asked = request(query, key, value, aux=(), **spec)
            out = asked.shapes.unfold(run(asked, engine).out)
            weights = returned_weights(asked, self.average_attn_weights)
        if rate == 1:
            out, weights = out * 0.0, None if weights is None else weights * 0.0
        return out, weights
