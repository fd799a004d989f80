"""AttentionOnly: token embeddings, two layers of attention and nothing else between input and output."""

import torch
from torch import Tensor
from torch import nn as torch_nn

from regard import nn
from regard.spec.biases import ALiBi
from regard.spec.biases import Distance as DistanceBias

REACH = 8  # distances that have a number of their own; all that are farther share one
GAIN = 10.0


class Near(nn.Distance):
    """Learned numbers for short distances, one for all long ones; they start at 0 and move `GAIN` times as fast.

    What is learned holds at any length, because farther than `REACH` nothing changes.
    """

    def forward(self) -> DistanceBias:
        """The bias."""
        return DistanceBias(GAIN * self.table)


class AttentionOnly(torch_nn.Module):
    """Logits of the next token from two attention layers with norms and residuals; the head is the embedding.

    Layer 1 has ALiBi besides, which bounds what all far tokens together can take, however many they are. Layer 2 has
    not: it must be able to look anywhere.
    """

    def __init__(self, vocabulary: int, width: int, heads: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = torch_nn.ModuleList(
            nn.MultiHeadAttention(
                width,
                heads,
                d_k=width // 2,
                d_v=width // heads,
                mask="causal",
                position=Near(heads, REACH),
                bias=ALiBi(heads) if first else None,
                projection_bias=False,
            )
            for first in (True, False)
        )
        self.norms = torch_nn.ModuleList(torch_nn.LayerNorm(width) for _ in range(3))

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, length) to logits (batch, length, vocabulary)."""
        x = self.embedding(tokens)
        for layer, norm in zip(self.layers, self.norms, strict=False):
            x = x + layer(norm(x))
        logits: Tensor = torch.nn.functional.linear(self.norms[-1](x), self.embedding.tokens.weight)
        return logits
