"""A call of torch's multi_head_attention_forward, which every nn.MultiheadAttention makes outside its fast path."""

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import linear

from regard.engine.attend import attend, run
from regard.engine.autocast import lowered, off
from regard.engine.request import Spec, request
from regard.engine.sdpa_override.arguments import Arguments
from regard.engine.sdpa_override.asked import shape_of
from regard.engine.sdpa_override.projections import projected
from regard.engine.sdpa_override.rules import Rules, rules_of
from regard.engine.sdpa_override.weights import returned_weights
from regard.spec.normalizers import Softmax
from regard.spec.scores import ScaledDot


class MultiHead(Arguments):
    """Such a call."""

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
        query, key, value = lowered(query), lowered(key), lowered(value)
        with off(query.device):
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
