"""Relater: one layer of attention over items, and an answer to each question at each place."""

import torch
from torch import Tensor
from torch import nn as torch_nn

from regard import nn

READINGS = ("linear", "each", "mixed")


class Relater(torch_nn.Module):
    """Embeddings of type, payload and, if `length` is given, place; x + attention(norm(x)); an answer to each question.

    `shared` gives queries and keys one projection. Without `joined` there is no W_O: heads stand side by side. What
    reads the sum is a linear map of it ("linear"), of the positive part of every single number ("each"), or of a hidden
    layer that mixes all numbers first ("mixed").
    """

    def __init__(
        self,
        *,
        types: int,
        payloads: int,
        length: int,
        width: int,
        heads: int,
        questions: int,
        shared: bool,
        joined: bool,
        reading: str,
    ) -> None:
        super().__init__()
        self.types, self.payloads = nn.Embedding(types, width), nn.Embedding(payloads, width)
        self.places = nn.Embedding(length, width) if length else None
        self.norm = torch_nn.LayerNorm(width)
        self.attention = nn.MultiHeadAttention(width, heads, projection_bias=False)
        if shared:
            self.attention.k_proj = self.attention.q_proj
        if not joined:
            self.attention.out_proj = torch_nn.Identity()  # type: ignore[assignment]
        middle: dict[str, list[torch_nn.Module]] = {
            "linear": [],
            "each": [torch_nn.ReLU()],
            "mixed": [torch_nn.Linear(width, width), torch_nn.ReLU()],
        }
        self.reading = torch_nn.Sequential(*middle[reading], torch_nn.Linear(width, questions * payloads))
        self.shape = (questions, payloads)

    def forward(self, types: Tensor, payloads: Tensor) -> Tensor:
        """(row, place) twice, to logits (row, place, question, payload)."""
        x = self.types(types) + self.payloads(payloads)
        if self.places is not None:
            x = x + self.places(torch.arange(types.shape[1]).expand_as(types))
        x = self.norm(x)
        answers: Tensor = self.reading(x + self.attention(x)).unflatten(-1, self.shape)
        return answers
