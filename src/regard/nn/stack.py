"""Encoder and Decoder: blocks one after another."""

from contextlib import nullcontext
from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.checks import whole
from regard.nn.block import Block, norm_of
from regard.nn.cache import KVCache
from regard.nn.parts import AnyBias, AnyMask


class _Stack(nn.Module):
    """Blocks, and a last norm if they norm first. With `checkpointing` set, backward computes each block again."""

    looks_at = "self"

    def __init__(
        self,
        layers: int,
        d_model: int,
        heads: int,
        *,
        norm: str = "layer",
        order: str = "pre",
        eps: float = 1e-5,
        **block: Any,
    ) -> None:
        super().__init__()
        shared: dict[str, Any] = {"looks_at": self.looks_at, "norm": norm, "order": order, "eps": eps} | block
        blocks = (Block(d_model, heads, **shared) for _ in range(whole("layers", layers, 0)))
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm_of(norm, d_model, eps) if order == "pre" else None
        self.d_model, self.checkpointing, self.engine = d_model, False, block.get("engine", "auto")

    def _through(self, x: Tensor, memory: Tensor | None, **call: Any) -> Tensor:
        cache: KVCache | None = call["cache"]
        if cache is not None and self.checkpointing and self.training:
            raise ValueError("checkpointing runs each block twice, which a cache would see; leave out one of the two")
        with nullcontext() if cache is None else cache.restored():
            for block in self.blocks:
                if self.checkpointing and self.training:
                    x = checkpoint(block, x, memory, use_reentrant=False, **call)
                else:
                    x = block(x, memory, **call)
        if self.norm is not None:
            x = self.norm(x)
        return x


class Encoder(_Stack):
    """`layers` blocks of self-attention; every keyword of `Block` and `MultiHeadAttention` is taken.

    A module that is given, such as `position=nn.T5(8)`, is shared by all layers; a function that makes one, such as
    `score=lambda: nn.Additive(32, 64)`, gives each layer its own.

    >>> import torch, regard
    >>> encoder = regard.nn.Encoder(6, 256, 8, position=regard.nn.Rotary(32))
    >>> encoder(torch.randn(2, 100, 256)).shape
    torch.Size([2, 100, 256])
    """

    def forward(self, x: Tensor, *, mask: AnyMask = None, bias: AnyBias = None, cache: KVCache | None = None) -> Tensor:
        """(batch, length, d_model) to the same."""
        return self._through(x, None, mask=mask, bias=bias, cache=cache)


class Decoder(_Stack):
    """`layers` blocks of causal self-attention and attention over a memory."""

    looks_at = "both"

    def __init__(self, layers: int, d_model: int, heads: int, *, mask: AnyMask = "causal", **block: Any) -> None:
        super().__init__(layers, d_model, heads, mask=mask, **block)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        *,
        mask: AnyMask = None,
        bias: AnyBias = None,
        memory_mask: AnyMask = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """(batch, length, d_model) and a memory (batch, memory length, width) to (batch, length, d_model)."""
        return self._through(x, memory, mask=mask, bias=bias, memory_mask=memory_mask, cache=cache)
