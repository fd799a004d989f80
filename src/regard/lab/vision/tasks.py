"""What is trained: to find twins, to caption, and to clear away noise where words say what is behind it."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from regard.lab.training import Task
from regard.lab.vision import models
from regard.lab.vision.pictures import drawn
from regard.lab.vision.scenes import NAMED, VOCABULARY, captioned, described, twinned

LEAST = 0.5  # of the noise: with less, a picture needs no words
CONTRAST = 2.0  # of pictures that are mixed with noise of variance 1


@dataclass(frozen=True)
class Looking(Task):
    """A small model and a batch of pictures that are drawn anew at every step."""

    width: int
    heads: int
    batch: int


@dataclass(frozen=True)
class Twinning(Looking):
    """Where is the like of the thing in each patch?"""

    @property
    def name(self) -> str:
        """With the seed."""
        return f"vision twins {self.seed}"

    def model(self) -> nn.Module:
        """Patches that look at patches."""
        return models.Twins(self.width, self.heads)

    def loss(self, model: nn.Module, generator: torch.Generator) -> Tensor:
        """Of the patches that hold something."""
        scene = twinned(self.batch, generator)
        asked = scene.twin >= 0
        return cross_entropy(model(drawn(scene.cells, generator))[asked], scene.twin[asked])


@dataclass(frozen=True)
class Captioning(Looking):
    """Which things are in the picture, color by color?"""

    @property
    def name(self) -> str:
        """With the seed."""
        return f"vision captions {self.seed}"

    def model(self) -> nn.Module:
        """Words that look at patches."""
        return models.Captioner(len(VOCABULARY), 2 * NAMED, self.width, self.heads)

    def loss(self, model: nn.Module, generator: torch.Generator) -> Tensor:
        """Of every word, given those before it."""
        scene = captioned(self.batch, generator, unseen=False)
        logits = model(drawn(scene.cells, generator), scene.words[:, :-1])
        return cross_entropy(logits.flatten(0, 1), scene.words[:, 1:].flatten())


@dataclass(frozen=True)
class Denoising(Looking):
    """What was the picture before the noise came over it?"""

    @property
    def name(self) -> str:
        """With the seed."""
        return f"vision noise {self.seed}"

    def model(self) -> nn.Module:
        """Patches that look at words."""
        return models.Denoiser(len(VOCABULARY), self.width, self.heads)

    def loss(self, model: nn.Module, generator: torch.Generator) -> Tensor:
        """The squared error of the pixels."""
        scene = described(self.batch, generator, unseen=False)
        clean = CONTRAST * drawn(scene.cells, generator, noise=0.0)
        level = LEAST + (1 - LEAST) * torch.rand(self.batch, generator=generator)
        share = level.view(-1, 1, 1, 1)
        noisy = (1 - share) * clean + share * torch.randn(clean.shape, generator=generator)
        return mse_loss(model(noisy, level, scene.words, scene.about), clean)
