"""The price of a pattern: what stacked layers can reach, computed from the mask and trained.

After L layers, query i depends on key j if a path of L visible steps leads from i to j: the L-th power of the mask,
where + is or and · is and. The trained models must name a color that stands somewhere in the text; where they cannot
reach it they must guess.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch import nn as torch_nn
from torch.nn.functional import cross_entropy

from regard import nn
from regard.inspection.records import Cell, Estimate, Lines, Picture, Table
from regard.lab.report import Claim, confirmed
from regard.lab.setting import Setting
from regard.lab.statistics import curve, share
from regard.lab.training import Task, train
from regard.spec.masks import Full, Mask, local, longformer
from regard.spec.masks.base import plane_of

COLORS, OTHERS = 8, 8
START = COLORS + OTHERS  # the token of place 0: it can be made global
FULL, LOCAL, GLOBAL = "full", "local", "global + local"
WINDOW = 9
SURE = 0.8  # right this often, or more, is called reached


def visible(mask: Mask, length: int) -> Tensor:
    """(query, key), with every token seeing itself, as the residual stream lets it."""
    plane = plane_of(mask, length, length, 1, 1, None)
    seen = mask.visible(plane.all).expand(1, 1, 1, length, length)[0, 0, 0]
    return seen | torch.eye(length, dtype=torch.bool)


def after(first: Tensor, second: Tensor) -> Tensor:
    """What is known after both."""
    return (first.float() @ second.float()) > 0


def known(mask: Mask, length: int, layers: int) -> Tensor:
    """(query, key): what is known after so many layers."""
    reached = torch.eye(length, dtype=torch.bool)
    seen = visible(mask, length)
    for _ in range(layers):
        reached = after(reached, seen)
    return reached


def layers_needed(mask: Mask, length: int) -> tuple[int, float]:
    """The layers after which nothing more becomes known, and the share of pairs that is known then."""
    doublings = [visible(mask, length)]  # what is known after 1, 2, 4, … layers
    while not torch.equal(twice := after(doublings[-1], doublings[-1]), doublings[-1]):
        doublings.append(twice)
    layers, so_far = 0, torch.eye(length, dtype=torch.bool)
    for exponent in range(len(doublings) - 1, -1, -1):
        further = after(so_far, doublings[exponent])
        if not torch.equal(further, doublings[-1]):
            layers, so_far = layers + 2**exponent, further
    return layers + 1, float(doublings[-1].double().mean())


def mask_of(pattern: str, window: int) -> Mask:
    """The mask by name."""
    masks = {FULL: Full(), LOCAL: local(window), GLOBAL: longformer(window, [0])}
    if pattern not in masks:
        raise ValueError(f"pattern must be one of {', '.join(masks)}, got {pattern!r}")
    return masks[pattern]


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
    window: int = WINDOW
    width: int = 32

    @property
    def name(self) -> str:
        """Name with the pattern, its layers and the seed."""
        return f"patterns {self.pattern.replace(' + ', ' ')} {self.layers} {self.seed}"

    def model(self) -> torch_nn.Module:
        """An encoder with that mask in every layer."""
        return Teller(self.layers, self.width, mask_of(self.pattern, self.window))

    def loss(self, model: torch_nn.Module, generator: torch.Generator) -> Tensor:
        """Cross-entropy at all places of new texts."""
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


@dataclass(frozen=True)
class TrainedPattern:
    """All trainings of a pattern in so many layers; `right` is the share of places right, (training, distance)."""

    pattern: str
    layers: int
    length: int
    right: Tensor

    @property
    def name(self) -> str:
        """For tables and legends."""
        return f"{self.pattern}, {self.layers} layer{'s' if self.layers > 1 else ''}"

    @property
    def reach(self) -> int:
        """The largest distance over which every place depends on every other, by the mask; the start is left out."""
        seen = known(mask_of(self.pattern, WINDOW), self.length, self.layers)[1:, 1:]
        reached = [bool(seen.diagonal(d).all() and seen.diagonal(-d).all()) for d in range(self.length - 1)]
        return reached.index(False) - 1 if False in reached else self.length - 2

    @property
    def pairs(self) -> int:
        """Visible pairs of all layers."""
        return self.layers * mask_of(self.pattern, WINDOW).pairs(self.length)

    def at(self, distance: int) -> Estimate:
        """Places right at a distance."""
        return share(self.right[:, distance])

    def within(self) -> Estimate:
        """Share of places right within the reach of the mask, without the color's own place."""
        return share(self.right[:, 1 : self.reach + 1].mean(1))

    def beyond(self) -> Estimate | None:
        """Share of places right beyond the reach of the mask, if there are any."""
        rest = self.right[:, self.reach + 1 :]
        return share(rest.mean(1)) if rest.shape[1] else None

    def reached(self) -> int:
        """The farthest distance up to which the trained models are right."""
        wrong = (self.right.mean(0)[1:] < SURE).nonzero()
        return int(wrong[0]) if len(wrong) else self.length - 2


def trained_patterns(setting: Setting, length: int, trainings: int) -> list[TrainedPattern]:
    """Full in one layer, a window in 1, 2, 4 … layers until it reaches everything, and a window with a global token."""
    depths = [1]
    while depths[-1] * (WINDOW // 2) < length - 2:
        depths.append(2 * depths[-1])
    variants = [(FULL, 1), *((LOCAL, depth) for depth in depths), (GLOBAL, 2)]
    seeds = setting.seeds(trainings)
    texts = draw(setting.choose(full=2000, quick=500), length, setting.generator())
    trained = []
    for pattern, layers in variants:
        models = [train(training_task(setting, pattern, layers, length, seed)).model for seed in seeds]
        right = torch.stack([by_distance(model, texts) for model in models])
        trained.append(TrainedPattern(pattern, layers, length, right))
    return trained


def training_task(setting: Setting, pattern: str, layers: int, length: int, seed: int) -> Telling:
    """What is trained."""
    steps, batch = setting.choose(full=(250, 16), quick=(100, 8))
    return Telling(seed, steps, 1e-2, 0.3, 5, pattern, layers, length, batch)


def price_table(trained: list[TrainedPattern]) -> Table:
    """Right answers of each model within and beyond its reach."""
    rows: list[tuple[Cell, ...]] = [
        (model.name, model.pairs, model.reach, model.within(), model.beyond() or "nothing beyond") for model in trained
    ]
    title = (
        f"Trained: every place of {trained[0].length} must name the one color in the text, window {WINDOW}; guessing "
        f"is right {1 / COLORS:.0%} of the time; mean and 95% interval over {len(trained[0].right)} trainings"
    )
    return Table(("model", "pairs", "reach", "right within it", "right beyond it"), rows, title)


def price_picture(trained: list[TrainedPattern]) -> Picture:
    """Places right against the distance."""
    distances = range(1, trained[0].length - 1)
    lines = [curve(model.name, list(distances), [model.at(distance) for distance in distances]) for model in trained]
    return Lines(lines, "distance from the color", "places right", f"Who can tell what is far (window {WINDOW})")


def _compared(trained: list[TrainedPattern]) -> tuple[TrainedPattern, TrainedPattern, TrainedPattern]:
    """The window in one layer, in as many as it needs, and with a global token."""
    windows = [model for model in trained if model.pattern == LOCAL]
    return windows[0], windows[-1], next(model for model in trained if model.pattern == GLOBAL)


def price_claims(trained: list[TrainedPattern]) -> tuple[Claim, ...]:
    """What is lost, and what mends it."""
    single, deep, mended = _compared(trained)
    lost = single.beyond()
    assert lost is not None
    fails, adds = confirmed(lost.mean < SURE), confirmed(mended.reached() > single.reach)
    by_depth = f"{_mends(deep)}, {deep.layers} × {WINDOW // 2} = {deep.layers * (WINDOW // 2)}"
    layers = f"{deep.layers} layers reach {deep.reached()}"
    return (
        Claim("local loses global context", "yes", lost, f"{fails}: right beyond {single.reach}"),
        Claim("in one layer (not said)", "", layers, f"not said: it {by_depth}"),
        Claim("Longformer adds global tokens", "yes", mended.within(), f"{adds}: it {_mends(mended)}, in 2 layers"),
    )


def _mends(model: TrainedPattern) -> str:
    return "mends it" if model.reached() == model.length - 2 else "mends it in part"


def price_finding(trained: list[TrainedPattern]) -> str:
    """What was learned, from the numbers."""
    single, deep, mended = _compared(trained)
    lost = single.beyond()
    assert lost is not None
    return (
        f"Where every place must name a color of the text, one layer with a window of {WINDOW} is right "
        f"{single.within().mean:.0%} of the time up to distance {single.reach} and {lost.mean:.0%} beyond (guessing: "
        f"{1 / COLORS:.0%}); {deep.layers} layers are right up to {deep.reached()} of {deep.length - 2}, and with one "
        f"global token 2 layers are right {mended.within().mean:.0%} of the time at any distance, with "
        f"{mended.pairs / deep.pairs:.0%} of the pairs."
    )
