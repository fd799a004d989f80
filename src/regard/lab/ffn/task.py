"""Bits: texts of tokens that carry bits, one of them marked, and three questions about them."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from regard.lab.ffn.model import Parts
from regard.lab.training import Task

ROUTE, ALONE, TRANSFORM, TOGETHER = "route", "transform, 1 token", "transform", "route, transform"
ASKED = {
    ROUTE: "every token tells the first bit of the marked one",
    ALONE: "a text of one token tells the parity of its bits",
    TRANSFORM: "every token tells the parity of its own bits",
    TOGETHER: "every token tells the parity of the marked one's bits",
}


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
        """With the question, the kind and the seed."""
        return f"ffn {self.question}, {self.kind.replace('×', 'x')} {self.seed}"

    def model(self) -> nn.Module:
        """The parts."""
        return Parts(self.kind, self.bits + 1, self.width, self.heads)

    def loss(self, model: nn.Module, generator: torch.Generator) -> Tensor:
        """Of texts that are drawn anew for each step."""
        tokens, place = drawn(self.batch, self.length, self.bits, generator)
        return binary_cross_entropy_with_logits(model(tokens), answers(self.question, tokens, place))

    def right(self, model: nn.Module, texts: int) -> float:
        """The share of right answers over other texts."""
        tokens, place = drawn(texts, self.length, self.bits, torch.Generator().manual_seed(self.seed + 1))
        with torch.no_grad():
            told = (model(tokens) > 0).float()
        return float((told == answers(self.question, tokens, place)).double().mean())
