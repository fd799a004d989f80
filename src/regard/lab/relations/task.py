"""Relating: what is trained, and what is watched meanwhile."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from regard.cached import cached_property
from regard.lab.relations.model import READINGS, Relater
from regard.lab.relations.texts import NOWHERE, Texts, drawn, wanted
from regard.lab.training import Task

WATCHED = 256  # texts that are watched during training


@dataclass(frozen=True)
class Relating(Task):
    """Texts that never come again; the loss is the mean over the questions, of all places that want something."""

    questions: tuple[str, ...]
    types: int
    copies: int
    payloads: int
    placed: bool
    width: int
    heads: int
    shared: bool
    joined: bool
    reading: str
    batch: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reading not in READINGS:
            raise ValueError(f"reading must be one of {', '.join(READINGS)}, got {self.reading!r}")

    @property
    def name(self) -> str:
        """What is asked, how, and the seed."""
        parts = [*self.questions, f"{self.heads} heads", *(["shared"] if self.shared else [])]
        parts += [] if self.joined else ["side by side"]
        return f"relations {' '.join(parts)} {self.seed}"

    def model(self) -> nn.Module:
        """One layer of attention."""
        return Relater(
            types=self.types,
            payloads=self.payloads,
            length=self.types * self.copies if self.placed else 0,
            width=self.width,
            heads=self.heads,
            questions=len(self.questions),
            shared=self.shared,
            joined=self.joined,
            reading=self.reading,
        )

    def texts(self, rows: int, generator: torch.Generator) -> Texts:
        """New texts."""
        return drawn(rows, self.types, self.copies, self.payloads, generator)

    def answers(self, texts: Texts) -> Tensor:
        """What is right, (row, place, question)."""
        return torch.stack([wanted(texts, question, self.payloads) for question in self.questions], -1)

    def loss(self, model: nn.Module, generator: torch.Generator) -> Tensor:
        """Of new texts."""
        texts = self.texts(self.batch, generator)
        return cross_entropy(model(*texts.inputs).flatten(0, 2), self.answers(texts).flatten(), ignore_index=NOWHERE)

    def look(self, model: nn.Module) -> dict[str, float]:
        """The share of right answers to each question."""
        return right(self, model, self._watched)

    @cached_property
    def _watched(self) -> Texts:
        return self.texts(WATCHED, torch.Generator().manual_seed(self.seed + 1))


def right(task: Relating, model: nn.Module, texts: Texts) -> dict[str, float]:
    """The share of right answers to each question, over all places that want one."""
    with torch.no_grad():
        found = model(*texts.inputs).argmax(-1)
    answers = task.answers(texts)
    known = answers != NOWHERE
    hits = ((found == answers) & known).double().sum((0, 1)) / known.sum((0, 1))
    return dict(zip(task.questions, hits.tolist(), strict=True))
