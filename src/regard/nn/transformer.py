"""Transformer: an encoder, and a decoder that looks at what it made."""

from typing import Any

from torch import Tensor, nn

from regard.nn.cache import KVCache
from regard.nn.embedding import Embedding, chosen
from regard.nn.parts import AnyMask
from regard.nn.placed import placed
from regard.nn.positions import Sinusoidal
from regard.nn.stack import Decoder, Encoder


class Transformer(nn.Module):
    """Encoder and decoder over tokens, as in "Attention Is All You Need": sequence in, logits of the next token out.

    `vocabulary` counts source tokens, `target_vocabulary` target tokens (the same unless given). Positions are
    sinusoids unless the blocks get a scheme of their own (`position=`). The head's weights are the target embedding's.
    Every keyword of `Block` is taken by both stacks.

    >>> import torch, regard
    >>> model = regard.nn.Transformer(1000, layers=2, d_model=64, heads=4)
    >>> source, target = torch.randint(1000, (2, 1, 7))
    >>> model(source, target).shape
    torch.Size([1, 7, 1000])
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        layers: int,
        d_model: int,
        heads: int,
        target_vocabulary: int | None = None,
        decoder_layers: int | None = None,
        dropout: float = 0.0,
        **block: Any,
    ) -> None:
        super().__init__()
        target = vocabulary if target_vocabulary is None else target_vocabulary

        def embedding(size: int) -> Embedding:
            position = Sinusoidal(d_model) if block.get("position") is None else None
            return Embedding(size, d_model, position=position, dropout=dropout)

        self.source, self.target = embedding(vocabulary), embedding(target)
        self.encoder = Encoder(layers, d_model, heads, dropout=dropout, **block)
        self.decoder = Decoder(
            layers if decoder_layers is None else decoder_layers, d_model, heads, dropout=dropout, **block
        )
        self.head = nn.Linear(d_model, target, bias=False)
        self.head.weight = self.target.tokens.weight

    def forward(self, source: Tensor, target: Tensor, *, mask: AnyMask = None, target_mask: AnyMask = None) -> Tensor:
        """Logits (batch, target length, target vocabulary); `mask` hides padding of the source."""
        return self.decode(target, self.encode(source, mask=mask), mask=target_mask, memory_mask=mask)

    def encode(self, source: Tensor, *, mask: AnyMask = None) -> Tensor:
        """The memory (batch, source length, d_model)."""
        x = placed(self.source, source, 0, self.encoder.engine, -1)
        out: Tensor = self.encoder(x, mask=mask)
        return out

    def decode(
        self,
        target: Tensor,
        memory: Tensor,
        *,
        mask: AnyMask = None,
        memory_mask: AnyMask = None,
        cache: KVCache | None = None,
        at: Tensor | None = None,
    ) -> Tensor:
        """Logits of the token after each of `target`; with a cache, only new tokens need to come.

        `at` (batch,) names one place of each row, for whose next token alone logits are made.
        """
        x = placed(self.target, target, 0 if cache is None else cache.length, self.decoder.engine, -1)
        x = self.decoder(x, memory, mask=mask, memory_mask=memory_mask, cache=cache)
        logits: Tensor = self.head(chosen(x, at))
        return logits
