"""Texts that repeat themselves, an attention-only model that learns to continue them, and scores of its heads."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch import nn as torch_nn
from torch.nn.functional import cross_entropy

from regard import nn
from regard.cached import cached_property
from regard.inspection.capture import capture
from regard.inspection.heads import head_table
from regard.lab.training import Task
from regard.spec.biases import ALiBi
from regard.spec.biases import Distance as DistanceBias

REACH = 8  # distances that have a number of their own; all that are farther share one
GAIN = 10.0
WATCHED = 8  # texts that are watched during training


def drawn(rows: int, length: int, vocabulary: int, generator: torch.Generator) -> Tensor:
    """(rows, length): random tokens, and then the same again. A token may come twice in a half."""
    first = torch.randint(vocabulary, (rows, length // 2), generator=generator)
    return torch.cat([first, first], 1)


def repeated(rows: int, length: int, vocabulary: int, generator: torch.Generator) -> Tensor:
    """(rows, length): different tokens in random order, and then the same again: each has one right successor."""
    half = length // 2
    if half > vocabulary:
        raise ValueError(f"a half of {half} different tokens needs as many in the vocabulary, which has {vocabulary}")
    first = torch.rand(rows, vocabulary, generator=generator).argsort(1)[:, :half]
    return torch.cat([first, first], 1)


def second_half(logits: Tensor, tokens: Tensor) -> Tensor:
    """The mean cross-entropy of the tokens that can be known: all of the second half but its first."""
    half = tokens.shape[1] // 2
    return cross_entropy(logits[:, half:-1].flatten(0, 1), tokens[:, half + 1 :].flatten())


def first_half(logits: Tensor, tokens: Tensor) -> Tensor:
    """The mean cross-entropy of the tokens of the first half, which nothing foretells."""
    half = tokens.shape[1] // 2
    return cross_entropy(logits[:, : half - 1].flatten(0, 1), tokens[:, 1:half].flatten())


@dataclass(frozen=True)
class RepeatScores:
    """Losses of both halves, the share of known tokens that are likeliest, and two scores of each (layer, head).

    `induction` is the mean weight of the second half on tokens that followed the same token before, `previous` that of
    all tokens on the one before.
    """

    first: float
    second: float
    right: float
    induction: Tensor
    previous: Tensor


def seen(model: torch_nn.Module, tokens: Tensor) -> RepeatScores:
    """What a model makes of repeated texts."""
    half = tokens.shape[1] // 2
    with torch.no_grad():
        captured = capture(model, tokens)
        logits = captured.output
        asked = torch.arange(tokens.shape[1]) >= half
        induction = head_table(captured, which=("induction",), ids=tokens, queries=asked)
        previous = head_table(captured, which=("previous",), ids=tokens)
        right = (logits[:, half:-1].argmax(-1) == tokens[:, half + 1 :]).double().mean()
    shape = (len(captured), -1)
    return RepeatScores(
        float(first_half(logits, tokens)),
        float(second_half(logits, tokens)),
        float(right),
        torch.tensor(induction["induction"], dtype=torch.float64).view(shape),
        torch.tensor(previous["previous"], dtype=torch.float64).view(shape),
    )


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


@dataclass(frozen=True)
class Inducing(Task):
    """Texts of one length whose second half repeats the first; the loss is that of the second half."""

    length: int
    vocabulary: int
    width: int
    heads: int
    batch: int

    @property
    def name(self) -> str:
        """Name with the seed."""
        return f"induction {self.seed}"

    def model(self) -> torch_nn.Module:
        """Two layers of attention."""
        return AttentionOnly(self.vocabulary, self.width, self.heads)

    def loss(self, model: torch_nn.Module, generator: torch.Generator) -> Tensor:
        """Cross-entropy of the second half of new texts."""
        tokens = drawn(self.batch, self.length, self.vocabulary, generator)
        return second_half(model(tokens), tokens)

    def look(self, model: torch_nn.Module) -> dict[str, float]:
        """Losses, and the best head of either kind."""
        scores = seen(model, self._watched)
        return {
            "first half": scores.first,
            "second half": scores.second,
            "induction": float(scores.induction[1].max()),
            "previous": float(scores.previous[0].max()),
        }

    @cached_property
    def _watched(self) -> Tensor:
        return repeated(WATCHED, self.length, self.vocabulary, torch.Generator().manual_seed(self.seed + 1))
