"""A call of torch's scaled_dot_product_attention."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from regard.engine.autocast import lowered, off
from regard.engine.sdpa import sdpa_on
from regard.engine.sdpa_override.asked import shape_of


@dataclass(frozen=True, eq=False)
class Fused:
    """Its arguments."""

    function: ClassVar[str] = "scaled_dot_product_attention"

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False

    def tensors(self) -> dict[str, Tensor | None]:
        return {"query": self.query, "key": self.key, "value": self.value, "attn_mask": self.attn_mask}

    def sizes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return shape_of(self.query), shape_of(self.key)

    def words(self) -> str:
        found = ["causal"] if self.is_causal else []
        if self.attn_mask is not None:
            found.append("mask" if self.attn_mask.dtype == torch.bool else "bias")
        if self.dropout_p:
            found.append(f"dropout {self.dropout_p:g}")
        return ", ".join(found)

    def run(self, engine: str) -> Tensor:
        query, key, value = lowered(self.query), lowered(self.key), lowered(self.value)
        mask = None if self.attn_mask is None else lowered(self.attn_mask)
        if mask is not None and (mask.dtype not in (torch.bool, query.dtype) or mask.ndim < 2):
            raise ValueError("torch takes a mask of bools or of the query's dtype, with two axes or more")
        with off(query.device):
            rest = (mask, self.dropout_p, self.is_causal, self.scale, self.enable_gqa)
            out = sdpa_on(engine, query, key, value, *rest)
            return out if query.is_contiguous() or not self._follows(query, key, value, mask) else _like(out, query)

    def _follows(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
        """Whether torch's result would lie in memory as the query does: its fused kernel's do, and models that merge
        heads with `.transpose(1, 2).view(...)` count on it."""
        settings = (mask, self.dropout_p, self.is_causal)
        chosen = torch._fused_sdp_choice(query, key, value, *settings, scale=self.scale, enable_gqa=self.enable_gqa)
        return bool(chosen == SDPBackend.FLASH_ATTENTION.value)


def _like(out: Tensor, query: Tensor) -> Tensor:
    """The same numbers in the order of the query's axes in memory."""
    steps = query.stride()
    order = sorted(range(out.ndim), key=lambda axis: -steps[axis])
    back = [order.index(axis) for axis in range(out.ndim)]
    return out.permute(order).contiguous().permute(back)
