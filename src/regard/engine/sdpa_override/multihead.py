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

MISFIT = "its arguments do not fit together; torch says how"


@dataclass(frozen=True, eq=False)
class Rules:
    """Mask and bias of a call; `sink` if the zero key is computed as a sink of 0."""

    mask: Mask | None
    bias: Bias | None
    sink: bool


CELLS = 1 << 22  # pairs over all batch rows and heads at a time


def returned_weights(checked: Request, average: bool) -> Tensor:
    """(batch, head, query, key), or their mean over heads, (batch, query, key), which holds no more than that at once
    unless gradients are wanted. There must be no sink: torch shows it as one more key."""
    assert checked.sink is None
    plane, logits = checked.plane, logits_of(checked)
    operands = tuple(operand.tensor for operand in logits.operands)
    height = max(1, CELLS // max(1, plane.batch * plane.heads * plane.keys))
    blocks = []
    for start in range(0, max(1, plane.queries), height):
        rows = slice(start, min(plane.queries, start + height))
        tile = Tile(plane, rows, slice(0, plane.keys), mixed=True)
        x, _ = logits.tile(tile, logits.cut(operands, tile))
        unseen = (x == -torch.inf).all(-1, keepdim=True)
        weights = torch.where(unseen, 0.0, torch.where(unseen, 0.0, x).softmax(-1))
        if checked.dropout is not None:
            weights = weights * checked.dropout.factors(tile.pairs, weights.dtype)
        weights = weights.flatten(1, 2)
        blocks.append((weights.mean(1) if average else weights).to(checked.query.dtype))
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, -2)


@dataclass(frozen=True, eq=False)
class MultiHeadCall:
    """A call of multi_head_attention_forward: its arguments, in torch's order and with torch's names.

    query: (length, batch, width), or (length, width). A bool mask is True where *hidden*, a float one is added.
    """

    function: ClassVar[str] = "multi_head_attention_forward"

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

    def projected(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values by head, (batch, head, length, width); a learned key and value come last."""
        if not self._sizes_fit():
            raise ValueError(MISFIT)
        query, key, value = self._products()
        if self.bias_k is not None and self.bias_v is not None:
            batch = len(query)
            key = torch.cat([key, self.bias_k.expand(batch, 1, -1)], 1)
            value = torch.cat([value, self.bias_v.expand(batch, 1, -1)], 1)
        query, key, value = (x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in (query, key, value))
        if self.static_k is not None:
            key = self.static_k.unflatten(0, (-1, self.num_heads))
        if self.static_v is not None:
            value = self.static_v.unflatten(0, (-1, self.num_heads))
        return query, key, value

    def _products(self) -> tuple[Tensor, ...]:
        """Projected queries, keys and values, (batch, length, width) each, with one product per distinct input."""
        query, key, value, width = self.query, self.key, self.value, self.embed_dim_to_check
        weight, bias = self.in_proj_weight, self.in_proj_bias
        if self.use_separate_proj_weight:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
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

    def _sizes_fit(self) -> bool:
        """Whether torch would accept the sizes."""
        query, key, value = self.query, self.key, self.value
        width, heads = self.embed_dim_to_check, self.num_heads
        alike = query.ndim in (2, 3) and key.ndim == value.ndim == query.ndim and key.shape[:-1] == value.shape[:-1]
        if not alike or query.shape[1:-1] != key.shape[1:-1] or query.shape[-1] != width or width % heads:
            return False
        weights: tuple[Tensor | None, ...] = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        sizes = [(width, tensor.shape[-1]) for tensor in (query, key, value)]
        if not self.use_separate_proj_weight:
            weights, sizes = (self.in_proj_weight,), [(3 * width, width)]
            if key.shape[-1] != width or value.shape[-1] != width:
                return False
        if any(weight is None or weight.shape != size for weight, size in zip(weights, sizes, strict=True)):
            return False
        if self.in_proj_bias is not None and self.in_proj_bias.shape != (3 * width,):
            return False
        learned, static = (self.bias_k, self.bias_v), (self.static_k, self.static_v)
        if learned != (None, None):
            fits = all(part is not None and part.shape == (1, 1, width) for part in learned)
            return fits and static == (None, None)
        batch_heads = heads * (query.shape[1] if query.ndim == 3 else 1)
        given = [part for part in static if part is not None]
        return all(part.ndim == 3 and (part.shape[0], part.shape[2]) == (batch_heads, width // heads) for part in given)

    def rules(self, keys: int) -> Rules:
        """Mask and bias for `keys` keys; masks do not cover learned keys at the end."""
        if not self._masks_fit():
            raise ValueError(MISFIT)
        if self.trusts_causal:  # which hides keys at the end, a zero key too
            return Rules(Causal(), None, sink=False)
        sink = self.add_zero_attn and not self.need_weights
        more = keys - len(self.key) if self.static_k is None else 0
        more += self.add_zero_attn and not sink
        parts = [self._padding_part(more), self._pair_part(more)]
        masks = [part for part in parts if isinstance(part, Mask)]
        biases = [part for part in parts if isinstance(part, Bias)]
        return Rules(
            mask=reduce(and_, masks) if masks else None,
            bias=reduce(add, biases) if biases else None,
            sink=sink,
        )

    def _padding_part(self, more: int) -> Mask | Bias | None:
        """A float mask of 0 and −inf becomes a mask: nn.MultiheadAttention makes such from a bool one."""
        given = self.key_padding_mask
        if given is None:
            return None
        hidden = given if given.dtype == torch.bool else given == -torch.inf
        if given.dtype == torch.bool or (not given.requires_grad and bool((hidden | (given == 0)).all())):
            return DenseMask(pad(~hidden, (0, more), value=True).view(-1, 1, 1, given.shape[-1] + more))
        return DenseBias(pad(to_autocast(given), (0, more)).view(-1, 1, 1, given.shape[-1] + more))

    def _pair_part(self, more: int) -> Mask | Bias | None:
        given = self.attn_mask
        if given is None:
            return None
        hidden = True if given.dtype == torch.bool else -torch.inf
        plain = self.is_causal and not more and given.ndim == 2 and not given.requires_grad
        if plain and torch.equal(given, torch.full_like(given, hidden).triu_(1)):
            return Causal()
        if given.ndim == 3:
            given = given.unflatten(0, (-1, self.num_heads))
        if given.dtype == torch.bool:
            return DenseMask(pad(~given, (0, more), value=True))
        return DenseBias(pad(to_autocast(given), (0, more)))

    def _masks_fit(self) -> bool:
        """Whether torch would accept the masks."""
        pairs, padding = self.attn_mask, self.key_padding_mask
        given = [mask for mask in (pairs, padding) if mask is not None]
        if any(mask.dtype != torch.bool and not mask.is_floating_point() for mask in given):
            return False
        batch = tuple(self.query.shape[1:-1])
        if pairs is None and self.is_causal:
            return False
        if padding is not None and padding.shape != (*batch, len(self.key)):
            return False
        all_heads = self.num_heads * (batch[0] if batch else 1)
        size = (len(self.query), len(self.key))
        return pairs is None or pairs.shape in (size, (all_heads, *size))

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
        options = {
            "causal": self.trusts_causal,
            "mask": self.attn_mask is not None and not self.trusts_causal,
            "padding": self.key_padding_mask is not None,
            "learned key": self.bias_k is not None,
            "zero key": self.add_zero_attn,
            f"dropout {self.dropout_p:g}": self.training and self.dropout_p > 0,
            "weights": self.need_weights,
        }
        return ", ".join(word for word, given in options.items() if given)

    def run(self, engine: str) -> tuple[Tensor, Tensor | None]:
        query, key, value = self.projected()
        rules = self.rules(key.shape[-2])
        if self.add_zero_attn and not rules.sink:
            key, value = (pad(tensor, (0, 0, 0, 1)) for tensor in (key, value))
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
        """The heads' outputs, and the weights if they are needed."""
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
            checked = request(query, key, value, aux=(), **spec)
            out = checked.shapes.unfold(run(checked, engine).out)
            weights = returned_weights(checked, self.average_attn_weights)
        if rate == 1:
            out, weights = out * 0.0, None if weights is None else weights * 0.0
        return out, weights


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
