"""Reading the topics of few texts: the model, its training with a rate of dropout, and its scores."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch import nn as torch_nn
from torch.nn.functional import cross_entropy

from regard import nn
from regard.cached import cached_property
from regard.inspection.capture import capture
from regard.inspection.interventions import Ablate, Forbid, intervene
from regard.lab.training import Task

HEADS = 4
NEW = 512  # texts that are never trained on


@dataclass(frozen=True, eq=False)
class TopicTexts:
    """Words, (row, place), and the topic of each row."""

    words: Tensor
    topics: Tensor


class Reader(torch_nn.Module):
    """One learned query attends to all words, in several heads; a linear map of the output gives the topic."""

    def __init__(self, vocabulary: int, width: int, heads: int, topics: int, dropout: float) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.norm = torch_nn.LayerNorm(width)
        self.query = torch_nn.Parameter(torch.randn(1, 1, width))
        self.attention = nn.MultiHeadAttention(width, heads, dropout=dropout)
        self.topic = torch_nn.Linear(width, topics)

    def forward(self, words: Tensor) -> Tensor:
        """(row, place) to logits (row, topic)."""
        x = self.norm(self.words(words))
        attended = self.attention(self.query.expand(len(words), -1, -1), x)
        logits: Tensor = self.topic(attended.squeeze(1))
        return logits


@dataclass(frozen=True)
class TopicReading(Task):
    """Name the topic of a text; every step has all texts. `dropout` acts on the attention weights alone.

    A word is, with probability `hint`, one of the `own` words of the text's topic, else one of all words. Words are
    numbered topic by topic; the last `common` belong to none.
    """

    dropout: float
    texts: int = 64
    length: int = 24
    topics: int = 4
    own: int = 12
    common: int = 60
    hint: float = 0.25
    width: int = 32
    heads: int = HEADS

    @property
    def name(self) -> str:
        return f"dropout {self.dropout:g} {self.seed}"

    def model(self) -> torch_nn.Module:
        return Reader(self.topics * self.own + self.common, self.width, self.heads, self.topics, self.dropout)

    def loss(self, model: torch_nn.Module, generator: torch.Generator) -> Tensor:
        return cross_entropy(model(self.seen.words), self.seen.topics)

    def look(self, model: torch_nn.Module) -> dict[str, float]:
        """Losses without dropout, on the texts of the training and on others."""
        texts = {"trained on": self.seen, "new": self.new}
        return {name: float(cross_entropy(model(each.words), each.topics)) for name, each in texts.items()}

    @cached_property
    def seen(self) -> TopicTexts:
        """The texts of the training."""
        return self.drawn(self.texts, self.seed + 1)

    @cached_property
    def new(self) -> TopicTexts:
        """Texts of the same kind that are never trained on."""
        return self.drawn(NEW, self.seed + 2)

    def drawn(self, rows: int, seed: int) -> TopicTexts:
        """Random texts."""
        generator = torch.Generator().manual_seed(seed)
        topic = torch.randint(self.topics, (rows,), generator=generator)
        shape = (rows, self.length)
        topical = topic.unsqueeze(1) * self.own + torch.randint(self.own, shape, generator=generator)
        other = torch.randint(self.topics * self.own + self.common, shape, generator=generator)
        return TopicTexts(torch.where(torch.rand(shape, generator=generator) < self.hint, topical, other), topic)


def right(model: torch_nn.Module, texts: TopicTexts) -> float:
    """The share of texts whose topic is named correctly."""
    with torch.no_grad():
        return float((model(texts.words).argmax(-1) == texts.topics).double().mean())


@dataclass(frozen=True)
class ReaderScores:
    """Shares of topics that a trained reader gets right, and the effective number of words that a head attends to."""

    trained_on: float
    new: float
    half: float  # half of the words hidden
    headless: float  # one head ablated, mean over the heads
    words: float


def read(model: torch_nn.Module, seen: TopicTexts, new: TopicTexts, generator: torch.Generator) -> ReaderScores:
    """Evaluate a reader without dropout."""
    forbidden = torch.rand(new.words.shape, generator=generator).argsort(1) < new.words.shape[1] // 2
    with intervene(model, Forbid(forbidden)):
        half = right(model, new)
    ablated = []
    for head in range(HEADS):
        with intervene(model, Ablate(), heads=head):
            ablated.append(right(model, new))
    with torch.no_grad():
        words = float(capture(model, new.words)[0].entropy().exp().mean())
    return ReaderScores(right(model, seen), right(model, new), half, sum(ablated) / HEADS, words)
