"""What trained models make of pictures they have never seen, and where they look meanwhile."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.inspection.capture import capture
from regard.inspection.interventions import Ablate, intervene
from regard.lab.vision.models import Captioner, Denoiser, Twins
from regard.lab.vision.pictures import CELL, CELLS, COLORS, SIDE, THINGS, drawn, recognized
from regard.lab.vision.scenes import START, VOCABULARY, Told, captioned, described, twinned
from regard.lab.vision.tasks import CONTRAST, LEAST

STEPS = 8  # from noise to a picture
LAYERS: dict[type[nn.Module], str] = {Twins: "encoder.*", Captioner: "decoder.*.cross", Denoiser: "block.cross"}


@dataclass(frozen=True)
class Seen:
    """Of each unseen picture: the share of answers that are right, the same with the attention ablated, and the mean
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


def twins(model: nn.Module, count: int, generator: torch.Generator) -> Seen:
    """Of every patch that holds something: is the cell of its like found, and does it look there?"""
    scene = twinned(count, generator)
    pictures, asked = drawn(scene.cells, generator), scene.twin >= 0
    right, without = _both(model, lambda: _per(model(pictures).argmax(-1) == scene.twin, asked))
    weights = capture(model, pictures)[0].dense()
    there = weights.gather(-1, scene.twin.clamp(min=0)[:, None, :, None].expand(-1, weights.shape[1], -1, 1))[..., 0]
    weight, head = _best(torch.stack([_per(head, asked) for head in there.unbind(1)], 1))
    none = torch.empty(count, 0, dtype=torch.long)
    guess, uniform = 1 / (CELLS - 1), 1 / CELLS
    shown = (weights, pictures, scene.cells, none, scene.twin)
    return Seen(right, without, weight, guess, uniform, *shown, (head,))


def captions(model: nn.Module, count: int, generator: torch.Generator) -> Seen:
    """Of every word: is it right when the model writes alone, and does it look at the patch that it is about?"""
    scene = captioned(count, generator, unseen=True)
    pictures = drawn(scene.cells, generator)
    right, without = _both(model, lambda: (written(model, pictures, scene) == scene.words[:, 1:]).double().mean(1))
    weights = capture(model, pictures, scene.words[:, :-1]).cross[0].dense()
    there = weights.gather(-1, scene.about[:, None, :, None].expand(-1, weights.shape[1], -1, 1))[..., 0].double()
    # colors and shapes may be read by different heads
    kinds = [_best(there[..., word::2].mean(-1)) for word in (0, 1)]
    weight = torch.stack([found for found, _ in kinds]).mean(0)
    guess, uniform = 1 / len(COLORS), 1 / CELLS  # there are as many shapes as colors
    shown = (weights, pictures, scene.cells, scene.words, scene.about)
    return Seen(right, without, weight, guess, uniform, *shown, tuple(head for _, head in kinds))


def written(model: nn.Module, pictures: Tensor, scene: Told) -> Tensor:
    """The caption that the model writes, the likeliest word at each step."""
    words = torch.full((len(pictures), 1), VOCABULARY.index(START))
    while words.shape[1] < scene.words.shape[1]:
        words = torch.cat([words, model(pictures, words)[:, -1:].argmax(-1)], 1)
    return words[:, 1:]


def noise(model: nn.Module, count: int, generator: torch.Generator) -> Seen:
    """Of every cell that words describe: does the picture made from mere noise have that thing there?"""
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
    return Seen(right, without, weight, guess, uniform, *shown, (head,))


def made(model: nn.Module, noisy: Tensor, scene: Told) -> Tensor:
    """A picture from noise: at each step the model says what is behind it, and a part of the noise is taken away."""
    levels = torch.linspace(1.0, LEAST, STEPS).tolist()
    for level, following in zip(levels, [*levels[1:], 0.0], strict=True):
        clean = model(noisy, torch.full((len(noisy),), level), scene.words, scene.about)
        rest = (noisy - (1 - level) * clean) / level
        noisy = (1 - following) * clean + following * rest
    return noisy


def _per(found: Tensor, asked: Tensor) -> Tensor:
    """The mean of each picture over what was asked of it."""
    return (found.double() * asked).sum(-1) / asked.sum(-1)


def _both(model: nn.Module, right: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    """As it is, and with the heads that the question is about putting out nothing."""
    as_it_is = right()
    with intervene(model, Ablate(), layers=LAYERS[type(model)]):
        return as_it_is, right()


def _best(heads: Tensor) -> tuple[Tensor, int]:
    """Of (picture, head), the head that has most in the first half of the pictures, measured on the others."""
    half = len(heads) // 2
    chosen = int(heads[:half].mean(0).argmax())
    return heads[half:, chosen], chosen
