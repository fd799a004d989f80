"""Models over tokens: Embedding, LanguageModel, and the Transformer with encoder and decoder."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from regard.checks import dtype, is_tensor, shape, whole
from regard.nn.cache import KVCache
from regard.nn.generate import generate
from regard.nn.parts import AnyMask
from regard.nn.positions import Learned, Sinusoidal, Start, at_offsets
from regard.nn.stack import Decoder, Encoder

INTEGERS = ("int64", "int32")


def chosen(x: Tensor, at: Tensor | None) -> Tensor:
    """(batch, length, d_model) as it is, or the place `at` of each row, (batch, 1, d_model)."""
    if at is None:
        return x
    if is_tensor("at", at).shape != x.shape[:1]:
        raise ValueError(f"at must name one place for each of the {len(x)} rows, got shape {shape(at)}")
    return x[torch.arange(len(x), device=x.device), at.to(x.device)].unsqueeze(1)


class Embedding(nn.Module):
    """One learned vector per token, normal with std d_model^(−1/2); `position` is `Sinusoidal` or `Learned`.

    With sinusoids the vectors are multiplied by √d_model, as in the first paper, so that neither drowns the other.
    """

    def __init__(
        self,
        vocabulary: int,
        d_model: int,
        *,
        position: Sinusoidal | Learned | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(whole("vocabulary", vocabulary, 1), whole("d_model", d_model, 1))
        self.position, self.dropout = position, nn.Dropout(dropout)
        self.scale = math.sqrt(d_model) if isinstance(position, Sinusoidal) else 1.0
        nn.init.normal_(self.tokens.weight, std=d_model**-0.5)

    def forward(self, tokens: Tensor, start: Start = 0) -> Tensor:
        """(batch, length) of integers to (batch, length, d_model); the first stands at `start`."""
        if dtype(is_tensor("tokens", tokens)) not in INTEGERS:
            raise TypeError(f"tokens must be integers, got {dtype(tokens)} {shape(tokens)}; convert them with .long()")
        try:
            x: Tensor = self.tokens(tokens)
        except IndexError as error:
            wrong = tokens[(tokens < 0) | (tokens >= self.tokens.num_embeddings)]
            raise ValueError(
                f"tokens must lie in 0 to {self.tokens.num_embeddings - 1}, got {int(wrong[0])}"
            ) from error
        x = x if self.scale == 1.0 else x * self.scale
        x = x if self.position is None else self.position(x, start)
        out: Tensor = self.dropout(x)
        return out


class LanguageModel(nn.Module):
    """Causal blocks over token embeddings, with a head that shares their weights unless `tied` is False.

    `position` is any scheme: `Sinusoidal` and `Learned` are added to embeddings, all others go to the attention layers.
    Every keyword of `Block` is taken.

    >>> import torch, regard
    >>> model = regard.nn.LanguageModel(1000, layers=2, d_model=64, heads=4, position=regard.nn.Rotary(16))
    >>> model(torch.randint(1000, (1, 7))).shape
    torch.Size([1, 7, 1000])
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        layers: int,
        d_model: int,
        heads: int,
        position: nn.Module | None = None,
        tied: bool = True,
        mask: AnyMask = "causal",
        dropout: float = 0.0,
        **block: Any,
    ) -> None:
        super().__init__()
        before = position if isinstance(position, Sinusoidal | Learned) else None
        inside = None if before is not None else position
        self.embedding = Embedding(vocabulary, d_model, position=before, dropout=dropout)
        self.blocks = Encoder(layers, d_model, heads, mask=mask, position=inside, dropout=dropout, **block)
        self.head = nn.Linear(d_model, vocabulary, bias=False)
        if tied:
            self.head.weight = self.embedding.tokens.weight
        else:
            nn.init.normal_(self.head.weight, std=d_model**-0.5)

    def forward(
        self, tokens: Tensor, *, mask: AnyMask = None, cache: KVCache | None = None, at: Tensor | None = None
    ) -> Tensor:
        """Logits (batch, length, vocabulary), of the token after each; with a `cache`, `tokens` go on where it stands.

        `at` (batch,) names one place of each row, for whose next token alone logits (batch, 1, vocabulary) are made.
        """
        x = at_offsets(self.embedding, tokens, 0 if cache is None else cache.length, self.blocks.engine, -1)
        x = self.blocks(x, mask=mask, cache=cache)
        logits: Tensor = self.head(chosen(x, at))
        return logits

    def generate(self, tokens: Tensor, count: int, **options: Any) -> Tensor:
        """The next tokens (batch, up to `count`); the options are those of `nn.stream`."""
        return generate(self, tokens, count, **options)


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
        x = at_offsets(self.source, source, 0, self.encoder.engine, -1)
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
        x = at_offsets(self.target, target, 0 if cache is None else cache.length, self.decoder.engine, -1)
        x = self.decoder(x, memory, mask=mask, memory_mask=memory_mask, cache=cache)
        logits: Tensor = self.head(chosen(x, at))
        return logits
