"""LanguageModel: tokens in, logits of the next token out."""

from typing import Any

from torch import Tensor, nn

from regard.nn.cache import KVCache
from regard.nn.embedding import Embedding, chosen
from regard.nn.generate import generate
from regard.nn.parts import AnyMask
from regard.nn.placed import placed
from regard.nn.positions import Learned, Sinusoidal
from regard.nn.stack import Encoder


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
        x = placed(self.embedding, tokens, 0 if cache is None else cache.length, self.blocks.engine, -1)
        x = self.blocks(x, mask=mask, cache=cache)
        logits: Tensor = self.head(chosen(x, at))
        return logits

    def generate(self, tokens: Tensor, count: int, **options: Any) -> Tensor:
        """The next tokens (batch, up to `count`); the options are those of `nn.stream`."""
        return generate(self, tokens, count, **options)
