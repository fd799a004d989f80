"""Translating: a Transformer of one layer and one head learns English to French from sentence pairs alone.

Why the map of such a model may be read as an alignment: the only way from the English to the French sentence is one
cross-attention with one head, so what it does not look at it cannot use (several heads or layers could share the work);
row t of the map belongs to the step that chooses French word t, when the decoder has seen the words before it; and the
encoder is one layer deep, so that a place still holds mostly its own word. Nothing tells the model which words belong
together.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch import nn as torch_nn
from torch.nn.functional import cross_entropy

from regard import nn
from regard.cached import cached_property
from regard.lab.training import Task
from regard.lab.translation import corpus, measure
from regard.lab.translation.grammar import Pair
from regard.lab.translation.vocabulary import ENGLISH, FRENCH, PAD, sources, targets
from regard.spec.masks import Lengths

SCALED, ADDITIVE = "scaled dot", "additive"
WATCHED = 40  # unseen sentences whose alignment is watched during training


@dataclass(frozen=True)
class Translating(Task):
    """`score` is that of every attention; `sentences` are trained on, none of which is held out."""

    score: str
    width: int
    batch: int
    sentences: int

    @property
    def name(self) -> str:
        """With the score and the seed."""
        return f"translation {self.score} {self.seed}"

    def model(self) -> torch_nn.Module:
        """An encoder and a decoder of one layer and one head each, with sinusoids for positions."""
        score = (lambda: nn.Additive(self.width, self.width)) if self.score == ADDITIVE else None
        return nn.Transformer(
            len(ENGLISH),
            target_vocabulary=len(FRENCH),
            layers=1,
            d_model=self.width,
            heads=1,
            d_ff=2 * self.width,
            score=score,
        )

    def loss(self, model: torch_nn.Module, generator: torch.Generator) -> Tensor:
        """Cross-entropy of each French word, given the English sentence and the French words before it."""
        source, target = self._examples
        rows = torch.randint(len(source), (self.batch,), generator=generator)
        source, target = _trimmed(source[rows]), _trimmed(target[rows])
        logits = model(source, target[:, :-1], mask=Lengths((source != PAD).sum(1)))
        return cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)

    def look(self, model: torch_nn.Module) -> dict[str, float]:
        """The alignment error on unseen sentences."""
        return {"alignment error": measure.error_rate(self._watched, measure.maps(model, self._watched))}

    @cached_property
    def _examples(self) -> tuple[Tensor, Tensor]:
        pairs = corpus.sentences(self.sentences, self.seed, unseen=False)
        return sources(pairs), targets(pairs)

    @cached_property
    def _watched(self) -> list[Pair]:
        return corpus.sentences(WATCHED, self.seed, unseen=True)


def _trimmed(rows: Tensor) -> Tensor:
    """Without the columns that are all padding."""
    return rows[:, : int((rows != PAD).sum(1).max())]
