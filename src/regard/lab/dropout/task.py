"""A small reader learns the topic of a text from few texts, over and over again."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch import nn as torch_nn
from torch.nn.functional import cross_entropy

from regard import nn
from regard.cached import cached_property
from regard.lab.training import Task

HELD = 512  # texts that are never trained on


@dataclass(frozen=True, eq=False)
class TopicTexts:
    """Words, (row, place), and the topic of each row."""

    words: Tensor
    topics: Tensor


def drawn(
    rows: int, length: int, topics: int, own: int, common: int, hint: float, generator: torch.Generator
) -> TopicTexts:
    """Texts whose words are, with the chance `hint`, one of the `own` words of their topic, else one of all.

    Words are numbered topic by topic; the last `common` belong to none.
    """
    subject = torch.randint(topics, (rows,), generator=generator)
    topical = subject.unsqueeze(1) * own + torch.randint(own, (rows, length), generator=generator)
    other = torch.randint(topics * own + common, (rows, length), generator=generator)
    chosen = torch.rand(rows, length, generator=generator) < hint
    return TopicTexts(torch.where(chosen, topical, other), subject)


class Reader(torch_nn.Module):
    """One learned question looks at all words, in several heads; a linear map of what it finds tells the topic."""

    def __init__(self, vocabulary: int, width: int, heads: int, topics: int, dropout: float) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.norm = torch_nn.LayerNorm(width)
        self.question = torch_nn.Parameter(torch.randn(1, 1, width))
        self.attention = nn.MultiHeadAttention(width, heads, dropout=dropout)
        self.topic = torch_nn.Linear(width, topics)

    def forward(self, words: Tensor) -> Tensor:
        """(row, place) to logits (row, topic)."""
        x = self.norm(self.words(words))
        attended = self.attention(self.question.expand(len(words), -1, -1), x)
        logits: Tensor = self.topic(attended.squeeze(1))
        return logits


@dataclass(frozen=True)
class TopicReading(Task):
    """`texts` texts, all of them in every step; `dropout` acts on the attention weights alone."""

    dropout: float
    texts: int
    length: int
    topics: int
    own: int
    common: int
    hint: float
    width: int
    heads: int

    @property
    def name(self) -> str:
        """Name with the rate and the seed."""
        return f"dropout {self.dropout:g} {self.seed}"

    def model(self) -> torch_nn.Module:
        """One layer of attention."""
        return Reader(self.topics * self.own + self.common, self.width, self.heads, self.topics, self.dropout)

    def loss(self, model: torch_nn.Module, generator: torch.Generator) -> Tensor:
        """Cross-entropy on all texts of the training."""
        return cross_entropy(model(self.seen.words), self.seen.topics)

    def look(self, model: torch_nn.Module) -> dict[str, float]:
        """Losses without dropout, on the texts of the training and on others."""
        return {"trained on": losses(model, self.seen), "new": losses(model, self.new)}

    @cached_property
    def seen(self) -> TopicTexts:
        """The texts of the training."""
        return self._drawn(self.texts, 1)

    @cached_property
    def new(self) -> TopicTexts:
        """Texts of the same kind that are never trained on."""
        return self._drawn(HELD, 2)

    def _drawn(self, rows: int, offset: int) -> TopicTexts:
        generator = torch.Generator().manual_seed(self.seed + offset)
        return drawn(rows, self.length, self.topics, self.own, self.common, self.hint, generator)


def losses(model: torch_nn.Module, texts: TopicTexts) -> float:
    """The mean cross-entropy."""
    with torch.no_grad():
        return float(cross_entropy(model(texts.words), texts.topics))


def right(model: torch_nn.Module, texts: TopicTexts) -> float:
    """The share of texts whose topic is found."""
    with torch.no_grad():
        return float((model(texts.words).argmax(-1) == texts.topics).double().mean())
