"""Places that must name a color: texts, the model, its training, and right answers by distance."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch import nn as torch_nn
from torch.nn.functional import cross_entropy

from regard import nn
from regard.lab.training import Task
from regard.spec.masks import Full, Mask, local, longformer

COLORS, OTHERS = 8, 8
START = COLORS + OTHERS  # the token of place 0: it can be made global
FULL, LOCAL, GLOBAL = "full", "local", "global + local"
WINDOW = 9
MASKS = {FULL: Full(), LOCAL: local(WINDOW), GLOBAL: longformer(WINDOW, [0])}  # of the trained models


@dataclass(frozen=True)
class ColorTexts:
    """Tokens (text, place), where the color stands and which it is, (text,)."""

    tokens: Tensor
    where: Tensor
    color: Tensor


def draw(count: int, length: int, generator: torch.Generator) -> ColorTexts:
    """A start, then tokens that mean nothing, and a color in the place of one of them."""
    tokens = torch.randint(COLORS, COLORS + OTHERS, (count, length), generator=generator)
    tokens[:, 0] = START
    where = torch.randint(1, length, (count,), generator=generator)
    color = torch.randint(COLORS, (count,), generator=generator)
    tokens[torch.arange(count), where] = color
    return ColorTexts(tokens, where, color)


class Teller(torch_nn.Module):
    """Tokens to logits of the color at every place. No positions: only the mask tells near from far."""

    def __init__(self, layers: int, width: int, mask: Mask) -> None:
        super().__init__()
        self.embedding = nn.Embedding(START + 1, width)
        self.encoder = nn.Encoder(layers, width, 1, d_ff=2 * width, mask=mask)
        self.head = torch_nn.Linear(width, COLORS)

    def forward(self, tokens: Tensor) -> Tensor:
        """(text, place) to (text, place, color)."""
        logits: Tensor = self.head(self.encoder(self.embedding(tokens)))
        return logits


@dataclass(frozen=True)
class Telling(Task):
    """`layers` of one pattern, on texts of one length."""

    pattern: str
    layers: int
    length: int
    batch: int
    width: int = 32

    @property
    def name(self) -> str:
        return f"patterns {self.pattern.replace(' + ', ' ')} {self.layers} {self.seed}"

    def model(self) -> torch_nn.Module:
        return Teller(self.layers, self.width, MASKS[self.pattern])

    def loss(self, model: torch_nn.Module, generator: torch.Generator) -> Tensor:
        texts = draw(self.batch, self.length, generator)
        return cross_entropy(model(texts.tokens).flatten(0, 1), texts.color.repeat_interleave(self.length))


def by_distance(model: torch_nn.Module, texts: ColorTexts) -> Tensor:
    """The share of places that name the color, by their distance from it: entry d is of distance d.

    The start token is left out.
    """
    with torch.no_grad():
        right = model(texts.tokens).argmax(-1) == texts.color.unsqueeze(1)
    places = torch.arange(texts.tokens.shape[1])
    distance = (places - texts.where.unsqueeze(1)).abs()[:, 1:].flatten()
    count = len(places) - 1
    hits = distance.bincount(right[:, 1:].flatten().double(), minlength=count)
    return hits / distance.bincount(minlength=count).clamp(min=1)
