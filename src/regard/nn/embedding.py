"""Embedding: tokens become vectors, with their positions if the scheme adds to vectors."""

import math

import torch
from torch import Tensor, nn

from regard.checks import dtype, is_tensor, shape, whole
from regard.nn.positions import Learned, Sinusoidal, Start

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
