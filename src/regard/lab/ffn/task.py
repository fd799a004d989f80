"""Tokens that carry bits, one of them marked, questions about them, and a block that is taken apart.

The models have no norms, because a norm is nonlinear and neither attention nor the feed-forward layer contains one.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch import nn as torch_nn
from torch.nn.functional import binary_cross_entropy_with_logits

from regard import nn
from regard.lab.training import Task

ATTENTION, FEED, BOTH, DEEP = "attention alone", "feed-forward alone", "both", "attention × 3"
KINDS = {ATTENTION: "a", FEED: "f", BOTH: "af", DEEP: "aaa"}  # attention × 3 has as many parameters as both
ROUTE, ALONE, TRANSFORM, TOGETHER = "route", "transform, 1 token", "transform", "route, transform"
ASKED = {
    ROUTE: "every token tells the first bit of the marked one",
    ALONE: "a text of one token tells the parity of its bits",
    TRANSFORM: "every token tells the parity of its own bits",
    TOGETHER: "every token tells the parity of the marked one's bits",
}


class BlockParts(torch_nn.Module):
    """(batch, length, features) to one logit per token, through the parts, each in a residual branch."""

    def __init__(self, kind: str, features: int, width: int, heads: int) -> None:
        super().__init__()
        self.enter = torch_nn.Linear(features, width)
        self.parts = torch_nn.ModuleList(
            nn.MultiHeadAttention(width, heads, engine="reference") if part == "a" else nn.FeedForward(width)
            for part in KINDS[kind]
        )
        self.leave = torch_nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (batch, length)."""
        x = self.enter(x)
        for part in self.parts:
            x = x + part(x)
        logits: Tensor = self.leave(x)
        return logits.squeeze(-1)


def drawn(texts: int, length: int, bits: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Tokens (text, token, bit and mark) of −1 and 1, the mark last, and the place of the marked one in each text."""
    tokens = torch.randint(2, (texts, length, bits + 1), generator=generator) * 2.0 - 1
    place = torch.randint(length, (texts,), generator=generator)
    tokens[..., -1] = -1.0
    tokens[torch.arange(texts), place, -1] = 1.0
    return tokens, place


def answers(question: str, tokens: Tensor, place: Tensor) -> Tensor:
    """0 or 1 for every token."""
    bits = tokens[..., :-1]
    asked = (
        bits if question in (ALONE, TRANSFORM) else bits[torch.arange(len(bits)), place].unsqueeze(1).expand_as(bits)
    )
    return ((asked[..., 0] if question == ROUTE else asked.prod(-1)) > 0).float()


@dataclass(frozen=True)
class Bits(Task):
    """One question to one kind of model."""

    question: str
    kind: str
    length: int
    bits: int
    width: int
    heads: int
    batch: int

    @property
    def name(self) -> str:
        """Name with the question, the kind and the seed."""
        return f"ffn {self.question}, {self.kind.replace('×', 'x')} {self.seed}"

    def model(self) -> torch_nn.Module:
        """The parts."""
        return BlockParts(self.kind, self.bits + 1, self.width, self.heads)

    def loss(self, model: torch_nn.Module, generator: torch.Generator) -> Tensor:
        """Cross-entropy on new texts."""
        tokens, place = drawn(self.batch, self.length, self.bits, generator)
        return binary_cross_entropy_with_logits(model(tokens), answers(self.question, tokens, place))

    def right(self, model: torch_nn.Module, texts: int) -> float:
        """The share of right answers over other texts."""
        tokens, place = drawn(texts, self.length, self.bits, torch.Generator().manual_seed(self.seed + 1))
        with torch.no_grad():
            predicted = (model(tokens) > 0).float()
        return float((predicted == answers(self.question, tokens, place)).double().mean())
