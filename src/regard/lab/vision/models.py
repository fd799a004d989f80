"""Three models: patches that look at patches, words that look at patches, and patches that look at words."""

import torch
from torch import Tensor
from torch import nn as torch_nn

from regard import nn
from regard.lab.vision.pictures import CELL, CELLS, whole

PLACE = 1.0  # how large vectors of places begin where a picture may be mere noise


def alike(model: torch_nn.Module) -> None:
    """Let keys begin as queries do: like then looks at like before anything is learned, if only a little."""
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, nn.MultiHeadAttention):
                part.k_proj.weight.copy_(part.q_proj.weight)


class Patches(torch_nn.Module):
    """A picture as one vector per patch, with its place: (batch, 3, pixel, pixel) to (batch, cell, width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.look = torch_nn.Conv2d(3, width, CELL, CELL)
        self.places = nn.Learned(CELLS, width)

    def forward(self, pictures: Tensor) -> Tensor:
        """Patches, row by row."""
        found: Tensor = self.places(self.look(pictures).flatten(2).transpose(1, 2))
        return found


class Twins(torch_nn.Module):
    """A vision transformer that says of every patch in which cell its like stands: logits (batch, cell, cell)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.patches = Patches(width)
        self.encoder = nn.Encoder(1, width, heads, d_ff=2 * width)
        self.head = torch_nn.Linear(width, CELLS)
        alike(self)

    def forward(self, pictures: Tensor) -> Tensor:
        """Every patch attends to every patch."""
        found: Tensor = self.head(self.encoder(self.patches(pictures)))
        return found


class Captioner(torch_nn.Module):
    """An encoder of patches and a decoder of words: logits of the next word, (batch, word, vocabulary)."""

    def __init__(self, vocabulary: int, words: int, width: int, heads: int) -> None:
        super().__init__()
        self.patches = Patches(width)
        self.embedding = nn.Embedding(vocabulary, width, position=nn.Learned(words, width))
        self.decoder = nn.Decoder(1, width, heads, d_ff=2 * width)
        self.head = torch_nn.Linear(width, vocabulary)

    def forward(self, pictures: Tensor, words: Tensor) -> Tensor:
        """Every word attends to the words before it, and to the patches."""
        found: Tensor = self.head(self.decoder(self.embedding(words), self.patches(pictures)))
        return found


class Denoiser(torch_nn.Module):
    """A clean picture from a noisy one, how noisy it is, and words for the things at some places.

    A place has one vector, whether it is looked at or spoken of.
    """

    def __init__(self, vocabulary: int, width: int, heads: int) -> None:
        super().__init__()
        self.patches = Patches(width)
        torch_nn.init.normal_(self.patches.places.weight, std=PLACE)
        self.level = torch_nn.Linear(1, width)
        self.embedding = nn.Embedding(vocabulary, width)
        self.block = nn.Block(width, heads, looks_at="memory", d_ff=4 * width)
        alike(self.block)
        self.norm = torch_nn.LayerNorm(width)
        self.paint = torch_nn.Linear(width, 3 * CELL * CELL)

    def forward(self, noisy: Tensor, level: Tensor, words: Tensor, where: Tensor) -> Tensor:
        """Every patch attends to the patches, and to the words; `level` is the share of noise, (batch,)."""
        text = self.embedding(words) + self.patches.places.weight[where]
        x = self.block(self.patches(noisy) + self.level(level.view(-1, 1, 1)), text)
        return whole(self.paint(self.norm(x)).unflatten(-1, (3, CELL, CELL)))
