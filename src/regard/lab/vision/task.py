"""Three models and their tasks: patches attend to patches, words to patches, and patches to words.

They find twins, write captions, and remove noise where words say what is behind it. Below the tasks: what trained
models make of pictures they have never seen, and where they look.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch import nn as torch_nn
from torch.nn.functional import cross_entropy, mse_loss

from regard import nn
from regard.inspection.capture import capture
from regard.inspection.interventions import Ablate, intervene
from regard.lab.training import Task
from regard.lab.vision import scenes
from regard.lab.vision.scenes import CELL, CELLS, NAMED, SIDE, VOCABULARY, Scene

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
        patches: Tensor = self.places(self.look(pictures).flatten(2).transpose(1, 2))
        return patches


class Twins(torch_nn.Module):
    """A vision transformer that predicts for every patch the cell of its like: logits (batch, cell, cell)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.patches = Patches(width)
        self.encoder = nn.Encoder(1, width, heads, d_ff=2 * width)
        self.head = torch_nn.Linear(width, CELLS)
        alike(self)

    def forward(self, pictures: Tensor) -> Tensor:
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
        return scenes.from_patches(self.paint(self.norm(x)).unflatten(-1, (3, CELL, CELL)))


@dataclass(frozen=True)
class Looking(Task):
    """A small model and a batch of pictures that are drawn anew at every step."""

    kind: ClassVar[str]
    width: int
    heads: int
    batch: int

    @property
    def name(self) -> str:
        return f"vision {self.kind} {self.seed}"


@dataclass(frozen=True)
class Twinning(Looking):
    """Where is the like of the thing in each patch? Cross-entropy of the patches that hold something."""

    kind: ClassVar[str] = "twins"

    def model(self) -> torch_nn.Module:
        return Twins(self.width, self.heads)

    def loss(self, model: torch_nn.Module, generator: torch.Generator) -> Tensor:
        scene = scenes.twinned(self.batch, generator)
        occupied = scene.cells >= 0
        return cross_entropy(model(scenes.drawn(scene.cells, generator))[occupied], scene.about[occupied])


@dataclass(frozen=True)
class Captioning(Looking):
    """Which things are in the picture, color by color? Cross-entropy of every word, given those before it."""

    kind: ClassVar[str] = "captions"

    def model(self) -> torch_nn.Module:
        return Captioner(len(VOCABULARY), 2 * NAMED, self.width, self.heads)

    def loss(self, model: torch_nn.Module, generator: torch.Generator) -> Tensor:
        scene = scenes.captioned(self.batch, generator, unseen=False)
        logits = model(scenes.drawn(scene.cells, generator), scene.words[:, :-1])
        return cross_entropy(logits.flatten(0, 1), scene.words[:, 1:].flatten())


@dataclass(frozen=True)
class Denoising(Looking):
    """What was the picture before the noise came over it? The squared error of the pixels."""

    kind: ClassVar[str] = "noise"

    def model(self) -> torch_nn.Module:
        return Denoiser(len(VOCABULARY), self.width, self.heads)

    def loss(self, model: torch_nn.Module, generator: torch.Generator) -> Tensor:
        scene = scenes.described(self.batch, generator, unseen=False)
        clean = CONTRAST * scenes.drawn(scene.cells, generator, noise=0.0)
        level = LEAST + (1 - LEAST) * torch.rand(self.batch, generator=generator)
        share = level.view(-1, 1, 1, 1)
        noisy = (1 - share) * clean + share * torch.randn(clean.shape, generator=generator)
        return mse_loss(model(noisy, level, scene.words, scene.about), clean)


LAYERS: dict[type[torch_nn.Module], str] = {Twins: "encoder.*", Captioner: "decoder.*.cross", Denoiser: "block.cross"}


@dataclass(frozen=True)
class PictureResults:
    """For each unseen picture: the share of answers that are right, the same with the attention ablated, and the mean
    weight on what the question is about. `chance` and `uniform` are what guessing and equal weights would give.

    `weights` are (picture, head, query, key), `heads` those that were measured, `picture` the input or, from noise, the
    output.
    """

    right: Tensor
    without: Tensor
    weight: Tensor
    chance: float
    uniform: float
    weights: Tensor
    picture: Tensor
    scene: Scene
    heads: tuple[int, ...]


def twins(model: torch_nn.Module, count: int, generator: torch.Generator) -> PictureResults:
    """For every patch that holds something: is the cell of its twin predicted, and does it attend there?"""
    scene = scenes.twinned(count, generator)
    pictures, occupied = scenes.drawn(scene.cells, generator), scene.cells >= 0
    predictions = _with_and_without(model, lambda: model(pictures).argmax(-1))
    right, without = (_mean(each == scene.about, occupied) for each in predictions)
    weights = capture(model, pictures)[0].dense()
    weight, head = _best(_mean(_weight_at(weights, scene.about.clamp(min=0)), occupied.unsqueeze(1)))
    return PictureResults(right, without, weight, 1 / (CELLS - 1), 1 / CELLS, weights, pictures, scene, (head,))


def captions(model: torch_nn.Module, count: int, generator: torch.Generator) -> PictureResults:
    """For every word: is it right when the model writes alone, and does it attend to its patch?"""
    scene = scenes.captioned(count, generator, unseen=True)
    pictures = scenes.drawn(scene.cells, generator)
    predictions = _with_and_without(model, lambda: written(model, pictures, scene))
    right, without = ((each == scene.words[:, 1:]).double().mean(1) for each in predictions)
    weights = capture(model, pictures, scene.words[:, :-1]).cross[0].dense()
    there = _weight_at(weights, scene.about).double()
    # colors and shapes may be read by different heads
    kinds = [_best(there[..., word::2].mean(-1)) for word in (0, 1)]
    weight, heads = torch.stack([each for each, _ in kinds]).mean(0), tuple(head for _, head in kinds)
    guess, uniform = 1 / len(scenes.COLORS), 1 / CELLS  # there are as many shapes as colors
    return PictureResults(right, without, weight, guess, uniform, weights, pictures, scene, heads)


def written(model: torch_nn.Module, pictures: Tensor, scene: Scene) -> Tensor:
    """The caption that the model writes, the likeliest word at each step."""
    words = torch.full((len(pictures), 1), VOCABULARY.index(scenes.START))
    while words.shape[1] < scene.words.shape[1]:
        words = torch.cat([words, model(pictures, words)[:, -1:].argmax(-1)], 1)
    return words[:, 1:]


def noise(model: torch_nn.Module, count: int, generator: torch.Generator) -> PictureResults:
    """For every cell that words describe: does the picture made from noise show that thing there?"""
    scene = scenes.described(count, generator, unseen=True)
    start = torch.randn(count, 3, SIDE * CELL, SIDE * CELL, generator=generator)
    occupied = scene.cells >= 0
    pictures = _with_and_without(model, lambda: denoised(model, start, scene))
    right, without = (_mean(scenes.recognized(each / CONTRAST) == scene.cells, occupied) for each in pictures)
    weights = capture(model, start, torch.ones(count), scene.words, scene.about)[0].dense()
    own = scene.about[:, None, :] == torch.arange(CELLS)[:, None]
    weight, head = _best(_mean((weights * own[:, None]).sum(-1), occupied.unsqueeze(1)))
    guess, uniform = 1 / (scenes.THINGS + 1), 2 / scene.words.shape[1]
    return PictureResults(right, without, weight, guess, uniform, weights, pictures[0], scene, (head,))


def denoised(model: torch_nn.Module, noisy: Tensor, scene: Scene) -> Tensor:
    """A picture from noise: at each step the model predicts the clean picture, and some of the noise is removed."""
    levels = torch.linspace(1.0, LEAST, STEPS).tolist()
    for level, following in zip(levels, [*levels[1:], 0.0], strict=True):
        clean = model(noisy, torch.full((len(noisy),), level), scene.words, scene.about)
        rest = (noisy - (1 - level) * clean) / level
        noisy = (1 - following) * clean + following * rest
    return noisy


def _mean(values: Tensor, occupied: Tensor) -> Tensor:
    """The mean over the occupied cells of each picture."""
    return (values.double() * occupied).sum(-1) / occupied.sum(-1)


def _weight_at(weights: Tensor, keys: Tensor) -> Tensor:
    """(picture, head, query): the weight of each query on its key, given as (picture, query)."""
    return weights.gather(-1, keys[:, None, :, None].expand(-1, weights.shape[1], -1, 1))[..., 0]


def _with_and_without(model: torch_nn.Module, predict: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    """What the model predicts as it is, and with the measured heads ablated."""
    intact = predict()
    with intervene(model, Ablate(), layers=LAYERS[type(model)]):
        return intact, predict()


def _best(heads: Tensor) -> tuple[Tensor, int]:
    """The head with the most weight in the first half of the pictures, and its weight in the others."""
    half = len(heads) // 2
    chosen = int(heads[:half].mean(0).argmax())
    return heads[half:, chosen], chosen
