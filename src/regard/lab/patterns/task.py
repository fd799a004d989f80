"""Telling: somewhere in a text stands a color, and every place must name it. Who cannot reach it must guess."""

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


def mask_of(pattern: str, window: int) -> Mask:
    """The mask by name."""
    known = {FULL: Full(), LOCAL: local(window), GLOBAL: longformer(window, [0])}
    if pattern not in known:
        raise ValueError(f"pattern must be one of {', '.join(known)}, got {pattern!r}")
    return known[pattern]


@dataclass(frozen=True)
class Texts:
    """Tokens (text, place), where the color stands and which it is, (text,)."""

    tokens: Tensor
    where: Tensor
    color: Tensor


def draw(count: int, length: int, generator: torch.Generator) -> Texts:
    """A start, then tokens that mean nothing, and a color in the place of one of them."""
    tokens = torch.randint(COLORS, COLORS + OTHERS, (count, length), generator=generator)
    tokens[:, 0] = START
    where = torch.randint(1, length, (count,), generator=generator)
    color = torch.randint(COLORS, (count,), generator=generator)
    tokens[torch.arange(count), where] = color
    return Texts(tokens, where, color)


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
    window: int
    length: int
    width: int
    batch: int

    @property
    def name(self) -> str:
        """With the pattern and its layers."""
        return f"patterns {self.pattern.replace(' + ', ' ')} {self.layers} {self.seed}"

    def model(self) -> torch_nn.Module:
        """An encoder with that mask in every layer."""
        return Teller(self.layers, self.width, mask_of(self.pattern, self.window))

    def loss(self, model: torch_nn.Module, generator: torch.Generator) -> Tensor:
        """Of all places of new texts."""
        given = draw(self.batch, self.length, generator)
        logits = model(given.tokens)
        return cross_entropy(logits.flatten(0, 1), given.color.repeat_interleave(self.length))


def by_distance(model: torch_nn.Module, texts: Texts) -> Tensor:
    """The share of places that name the color, by their distance from it: entry d is of distance d.

    The start is left out: it looks on, and has no color of its own to tell.
    """
    with torch.no_grad():
        right = model(texts.tokens).argmax(-1) == texts.color.unsqueeze(1)
    places = torch.arange(texts.tokens.shape[1])
    distance = (places - texts.where.unsqueeze(1)).abs()[:, 1:].flatten()
    hits = torch.zeros(len(places) - 1, dtype=torch.float64)
    counts = torch.zeros_like(hits)
    hits.index_add_(0, distance, right[:, 1:].flatten().double())
    counts.index_add_(0, distance, torch.ones(len(distance), dtype=torch.float64))
    return hits / counts.clamp(min=1)
