"""Block: attention mixes positions, the feed-forward layer works on each; around both, add and norm."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.nn.attention import MultiHeadAttention
from regard.nn.cache import KVCache
from regard.nn.feed_forward import FeedForward
from regard.nn.parts import AnyBias, AnyMask
from regard.spec.dropout import check_rate
from regard.spec.part import Part

PLAIN = (torch.float32, torch.float64)
LARGE = 1 << 15  # numbers; below it one call of torch's is as quick


class RMSNorm(nn.RMSNorm):
    """x / √(mean(x²) + eps) · weight over the last axis. What is not float32 or float64 goes torch's way."""

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        alike = x.dtype in PLAIN and getattr(self.weight, "dtype", None) == x.dtype
        if torch.compiler.is_exporting() or x.numel() < LARGE or not alike or self.eps is None:
            return super().forward(x)
        norm: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scaled: Tensor = x * (norm.square() / x.shape[-1] + self.eps).rsqrt()
        # without gradients the product is ours to overwrite
        return scaled * self.weight if torch.is_grad_enabled() else scaled.mul_(self.weight)


WITHIN = ("mask", "bias", "position")


def _own(options: dict[str, Any]) -> dict[str, Any]:
    """What one attention is given: a function makes a part for it alone."""
    return {
        name: value() if callable(value) and not isinstance(value, nn.Module | Part) else value
        for name, value in options.items()
    }


def norm_of(kind: str, d_model: int, eps: float) -> nn.Module:
    """`layer` or `rms`."""
    if kind not in ("layer", "rms"):
        raise ValueError(f"norm must be 'layer' or 'rms', got {kind!r}")
    return nn.LayerNorm(d_model, eps) if kind == "layer" else RMSNorm(d_model, eps)


class Block(nn.Module):
    """One layer of a Transformer: self-attention, cross-attention or both, then a feed-forward layer.

    Each part stands in a residual branch. With `order="pre"` the norm comes first, x + part(norm(x)); with "post" last,
    norm(x + part(x)), as in the first paper. `norm` is "layer" or "rms". `looks_at` says where attention looks: "self",
    "memory" or "both". `dropout` acts on the branches, inside the feed-forward layer, and on attention weights unless
    `attention_dropout` is given; all in training mode only. What else MultiHeadAttention takes goes to both attentions;
    mask, bias and position, which are of one sequence, to the self-attention alone if there is one. A module that is
    given is shared; a function that makes one, such as `score=lambda: nn.Additive(32, 64)`, makes each attention its
    own.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        looks_at: str = "self",
        d_ff: int | None = None,
        activation: str = "gelu",
        norm: str = "layer",
        order: str = "pre",
        eps: float = 1e-5,
        feed_bias: bool = True,
        dropout: float = 0.0,
        attention_dropout: float | None = None,
        memory_width: int | None = None,
        **attention: Any,
    ) -> None:
        super().__init__()
        if looks_at not in ("self", "memory", "both"):
            raise ValueError(f"looks_at must be 'self', 'memory' or 'both', got {looks_at!r}")
        if order not in ("pre", "post"):
            raise ValueError(f"order must be 'pre' (norm first) or 'post' (norm last), got {order!r}")
        check_rate(dropout)
        self.order, self.dropout = order, dropout
        attention["dropout"] = dropout if attention_dropout is None else attention_dropout
        width: dict[str, Any] = {"d_key": memory_width, "d_value": memory_width}
        crossing = attention
        if looks_at == "both":
            crossing = {name: part for name, part in attention.items() if name not in WITHIN}
        self.attention = MultiHeadAttention(d_model, heads, **_own(attention)) if looks_at != "memory" else None
        self.cross = MultiHeadAttention(d_model, heads, **width, **_own(crossing)) if looks_at != "self" else None
        self.feed_forward = FeedForward(d_model, d_ff, activation=activation, bias=feed_bias, dropout=dropout)
        self.attention_norm = norm_of(norm, d_model, eps) if self.attention is not None else None
        self.cross_norm = norm_of(norm, d_model, eps) if self.cross is not None else None
        self.feed_norm = norm_of(norm, d_model, eps)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: AnyMask = None,
        bias: AnyBias = None,
        memory_mask: AnyMask = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """(batch, length, d_model) to the same; `mask` and `bias` are of the self-attention."""
        attention, cross = self.attention, self.cross
        if attention is not None:
            x = self._added(x, lambda y: attention(y, mask=mask, bias=bias, cache=cache), self.attention_norm)
        if cross is not None:
            if memory is None:
                raise ValueError("this block looks at a memory (the encoder's output), and none came; pass memory=")
            x = self._added(x, lambda y: cross(y, memory, mask=memory_mask, cache=cache), self.cross_norm)
        return self._added(x, self.feed_forward, self.feed_norm)

    def _added(self, x: Tensor, part: Callable[[Tensor], Tensor], norm: nn.Module | None) -> Tensor:
        """Add and norm, in the block's order."""
        assert norm is not None
        branch = part(norm(x) if self.order == "pre" else x)
        if self.training and self.dropout:
            branch = functional.dropout(branch, self.dropout)
        out: Tensor = x + branch if self.order == "pre" else norm(x + branch)
        return out

    def extra_repr(self) -> str:
        """The order and the rate of dropout."""
        return f"order={self.order!r}" + (f", dropout={self.dropout}" if self.dropout else "")
