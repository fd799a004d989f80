"""Three models and their tasks: patches attend to patches, words to patches, and patches to words.

They find twins, write captions, and remove noise where words say what is behind it. Below the tasks: what trained
models make of pictures they have never seen, and where they look.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch import nn as torch_nn
from torch.nn.functional import cross_entropy, mse_loss

from regard import nn
from regard.inspection.capture import capture
from regard.inspection.interventions import Ablate, intervene
from regard.lab.training import Task
from regard.lab.vision.scenes import (
    CELL,
    CELLS,
    COLORS,
    NAMED,
    SIDE,
    START,
    THINGS,
    VOCABULARY,
    WordedScene,
    captioned,
    described,
    drawn,
    recognized,
    twinned,
    whole,
)

PLACE = 1.0  # how large vectors of places begin where a picture may be mere noise
LEAST = 0.5  # of the noise: with less, a picture needs no words
CONTRAST = 2.0  # of pictures that are mixed with noise of variance 1
STEPS = 8  # from noise to a picture


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
        patches: Tensor = self.places(self.look(pictures).flatten(2).transpose(1, 2))
        return patches


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
        logits: Tensor = self.head(self.encoder(self.patches(pictures)))
        return logits


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
        logits: Tensor = self.head(self.decoder(self.embedding(words), self.patches(pictures)))
        return logits


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
        """Name with the seed."""
        return f"vision twins {self.seed}"

    def model(self) -> torch_nn.Module:
        """Patches that look at patches."""
        return Twins(self.width, self.heads)

    def loss(self, model: torch_nn.Module, generator: torch.Generator) -> Tensor:
        """Cross-entropy of the patches that hold something."""
        scene = twinned(self.batch, generator)
        asked = scene.twin >= 0
        return cross_entropy(model(drawn(scene.cells, generator))[asked], scene.twin[asked])


@dataclass(frozen=True)
class Captioning(Looking):
    """Which things are in the picture, color by color?"""

    @property
    def name(self) -> str:
        """Name with the seed."""
        return f"vision captions {self.seed}"

    def model(self) -> torch_nn.Module:
        """Words that look at patches."""
        return Captioner(len(VOCABULARY), 2 * NAMED, self.width, self.heads)

    def loss(self, model: torch_nn.Module, generator: torch.Generator) -> Tensor:
        """Cross-entropy of every word, given those before it."""
        scene = captioned(self.batch, generator, unseen=False)
        logits = model(drawn(scene.cells, generator), scene.words[:, :-1])
        return cross_entropy(logits.flatten(0, 1), scene.words[:, 1:].flatten())


@dataclass(frozen=True)
class Denoising(Looking):
    """What was the picture before the noise came over it?"""

    @property
    def name(self) -> str:
        """Name with the seed."""
        return f"vision noise {self.seed}"

    def model(self) -> torch_nn.Module:
        """Patches that look at words."""
        return Denoiser(len(VOCABULARY), self.width, self.heads)

    def loss(self, model: torch_nn.Module, generator: torch.Generator) -> Tensor:
        """The squared error of the pixels."""
        scene = described(self.batch, generator, unseen=False)
        clean = CONTRAST * drawn(scene.cells, generator, noise=0.0)
        level = LEAST + (1 - LEAST) * torch.rand(self.batch, generator=generator)
        share = level.view(-1, 1, 1, 1)
        noisy = (1 - share) * clean + share * torch.randn(clean.shape, generator=generator)
        return mse_loss(model(noisy, level, scene.words, scene.about), clean)


LAYERS: dict[type[torch_nn.Module], str] = {Twins: "encoder.*", Captioner: "decoder.*.cross", Denoiser: "block.cross"}


@dataclass(frozen=True)
class PictureResults:
    """For each unseen picture: the share of answers that are right, the same with the attention ablated, and the mean
    weight on what the question is about. `chance` and `uniform` are what guessing and equal weights would give.

    `weights` are (picture, head, query, key), `heads` those that were measured, `picture` what was looked at or, from
    noise, made.
    """

    right: Tensor
    without: Tensor
    weight: Tensor
    chance: float
    uniform: float
    weights: Tensor
    picture: Tensor
    cells: Tensor
    words: Tensor
    about: Tensor
    heads: tuple[int, ...]


def twins(model: torch_nn.Module, count: int, generator: torch.Generator) -> PictureResults:
    """For every patch that holds something: is the cell of its twin found, and does it attend there?"""
    scene = twinned(count, generator)
    pictures, asked = drawn(scene.cells, generator), scene.twin >= 0
    right, without = _both(model, lambda: _per(model(pictures).argmax(-1) == scene.twin, asked))
    weights = capture(model, pictures)[0].dense()
    there = weights.gather(-1, scene.twin.clamp(min=0)[:, None, :, None].expand(-1, weights.shape[1], -1, 1))[..., 0]
    weight, head = _best(torch.stack([_per(head, asked) for head in there.unbind(1)], 1))
    none = torch.empty(count, 0, dtype=torch.long)
    guess, uniform = 1 / (CELLS - 1), 1 / CELLS
    shown = (weights, pictures, scene.cells, none, scene.twin)
    return PictureResults(right, without, weight, guess, uniform, *shown, (head,))


def captions(model: torch_nn.Module, count: int, generator: torch.Generator) -> PictureResults:
    """For every word: is it right when the model writes alone, and does it attend to its patch?"""
    scene = captioned(count, generator, unseen=True)
    pictures = drawn(scene.cells, generator)
    right, without = _both(model, lambda: (written(model, pictures, scene) == scene.words[:, 1:]).double().mean(1))
    weights = capture(model, pictures, scene.words[:, :-1]).cross[0].dense()
    there = weights.gather(-1, scene.about[:, None, :, None].expand(-1, weights.shape[1], -1, 1))[..., 0].double()
    # colors and shapes may be read by different heads
    kinds = [_best(there[..., word::2].mean(-1)) for word in (0, 1)]
    weight = torch.stack([of_kind for of_kind, _ in kinds]).mean(0)
    guess, uniform = 1 / len(COLORS), 1 / CELLS  # there are as many shapes as colors
    shown = (weights, pictures, scene.cells, scene.words, scene.about)
    return PictureResults(right, without, weight, guess, uniform, *shown, tuple(head for _, head in kinds))


def written(model: torch_nn.Module, pictures: Tensor, scene: WordedScene) -> Tensor:
    """The caption that the model writes, the likeliest word at each step."""
    words = torch.full((len(pictures), 1), VOCABULARY.index(START))
    while words.shape[1] < scene.words.shape[1]:
        words = torch.cat([words, model(pictures, words)[:, -1:].argmax(-1)], 1)
    return words[:, 1:]


def noise(model: torch_nn.Module, count: int, generator: torch.Generator) -> PictureResults:
    """For every cell that words describe: does the picture made from noise show that thing there?"""
    scene = described(count, generator, unseen=True)
    start = torch.randn(count, 3, SIDE * CELL, SIDE * CELL, generator=generator)
    asked = scene.cells >= 0
    picture = made(model, start, scene)
    right = _per(recognized(picture / CONTRAST) == scene.cells, asked)
    with intervene(model, Ablate(), layers=LAYERS[type(model)]):
        without = _per(recognized(made(model, start, scene) / CONTRAST) == scene.cells, asked)
    weights = capture(model, start, torch.ones(count), scene.words, scene.about)[0].dense()
    own = scene.about[:, None, :] == torch.arange(CELLS)[:, None]
    there = (weights * own[:, None]).sum(-1)
    weight, head = _best(torch.stack([_per(head, asked) for head in there.unbind(1)], 1))
    guess, uniform = 1 / (THINGS + 1), 2 / scene.words.shape[1]
    shown = (weights, picture, scene.cells, scene.words, scene.about)
    return PictureResults(right, without, weight, guess, uniform, *shown, (head,))


def made(model: torch_nn.Module, noisy: Tensor, scene: WordedScene) -> Tensor:
    """A picture from noise: at each step the model says what is behind it, and a part of the noise is taken away."""
    levels = torch.linspace(1.0, LEAST, STEPS).tolist()
    for level, following in zip(levels, [*levels[1:], 0.0], strict=True):
        clean = model(noisy, torch.full((len(noisy),), level), scene.words, scene.about)
        rest = (noisy - (1 - level) * clean) / level
        noisy = (1 - following) * clean + following * rest
    return noisy


def _per(values: Tensor, asked: Tensor) -> Tensor:
    """The mean of each picture over what was asked of it."""
    return (values.double() * asked).sum(-1) / asked.sum(-1)


def _both(model: torch_nn.Module, right: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    """The score of the model as it is, and with the measured heads ablated."""
    as_it_is = right()
    with intervene(model, Ablate(), layers=LAYERS[type(model)]):
        return as_it_is, right()


def _best(heads: Tensor) -> tuple[Tensor, int]:
    """The head with the most weight in the first half of the pictures, and its weight in the others."""
    half = len(heads) // 2
    chosen = int(heads[:half].mean(0).argmax())
    return heads[half:, chosen], chosen
