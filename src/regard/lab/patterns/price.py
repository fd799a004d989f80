"""The price: models of one pattern each, trained to name a color that stands somewhere in the text."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.inspection.records import Cell, Estimate, Lines, Picture, Table
from regard.lab.curves import curve
from regard.lab.patterns.reach import known
from regard.lab.patterns.task import COLORS, FULL, GLOBAL, LOCAL, Telling, by_distance, draw, mask_of
from regard.lab.report import Claim
from regard.lab.setting import Setting
from regard.lab.training import train
from regard.lab.training.over import share

WINDOW = 9
SURE = 0.8  # right this often, or more, is called reached


@dataclass(frozen=True)
class Model:
    """A pattern in so many layers, as it was trained over and over: places right, (training, distance)."""

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
        """The farthest place of which every place knows, by the mask: place 0, the start, aside."""
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
        """Places right, of those that the mask lets know (the color's own place aside)."""
        return share(self.right[:, 1 : self.reach + 1].mean(1))

    def beyond(self) -> Estimate | None:
        """Places right, of all others."""
        rest = self.right[:, self.reach + 1 :]
        return share(rest.mean(1)) if rest.shape[1] else None

    def reached(self) -> int:
        """The farthest distance up to which the trained models are right."""
        wrong = (self.right.mean(0)[1:] < SURE).nonzero()
        return int(wrong[0]) if len(wrong) else self.length - 2


def models(setting: Setting, length: int, trainings: int) -> list[Model]:
    """Full in one layer, a window in 1, 2, 4 … layers until it reaches everything, and a window with a global token."""
    depths = [1]
    while depths[-1] * (WINDOW // 2) < length - 2:
        depths.append(2 * depths[-1])
    wanted = [(FULL, 1), *((LOCAL, depth) for depth in depths), (GLOBAL, 2)]
    seeds = torch.randint(2**31, (trainings,), generator=setting.generator()).tolist()
    texts = draw(setting.choose(full=2000, quick=500), length, setting.generator())
    found = []
    for pattern, layers in wanted:
        trained = [train(task(setting, pattern, layers, length, seed)).model for seed in seeds]
        found.append(Model(pattern, layers, length, torch.stack([by_distance(model, texts) for model in trained])))
    return found


def task(setting: Setting, pattern: str, layers: int, length: int, seed: int) -> Telling:
    """What is trained."""
    return Telling(
        seed=seed,
        steps=setting.choose(full=250, quick=100),
        rate=1e-2,
        rise=0.3,
        looks=5,
        pattern=pattern,
        layers=layers,
        window=WINDOW,
        length=length,
        width=32,
        batch=setting.choose(full=16, quick=8),
    )


def price_table(found: list[Model]) -> Table:
    """Who can tell, and how far."""
    rows: list[tuple[Cell, ...]] = [
        (model.name, model.pairs, model.reach, model.within(), model.beyond() or "nothing beyond") for model in found
    ]
    title = (
        f"Trained: every place of {found[0].length} must name the one color in the text, window {WINDOW}; guessing is "
        f"right {1 / COLORS:.0%} of the time; mean and 95% interval over {len(found[0].right)} trainings"
    )
    return Table(("model", "pairs", "reach", "right within it", "right beyond it"), rows, title)


def price_picture(found: list[Model]) -> Picture:
    """Places right against the distance."""
    distances = range(1, found[0].length - 1)
    lines = [curve(model.name, list(distances), [model.at(distance) for distance in distances]) for model in found]
    title = f"Who can tell what is far (window {WINDOW})"
    return Lines(lines, "distance from the color", "places right", title)


def one(found: list[Model], pattern: str, layers: int) -> Model:
    """A model by pattern and layers."""
    return next(model for model in found if (model.pattern, model.layers) == (pattern, layers))


def deepest(found: list[Model]) -> Model:
    """The window in as many layers as it needs."""
    return max((model for model in found if model.pattern == LOCAL), key=lambda model: model.layers)


def claims(found: list[Model]) -> tuple[Claim, ...]:
    """What is lost, and what mends it."""
    single, deep, mended = one(found, LOCAL, 1), deepest(found), one(found, GLOBAL, 2)
    lost = single.beyond()
    assert lost is not None
    fails = lost.mean < SURE
    return (
        Claim("local loses global context", "yes", lost, f"{_said(fails)}: right beyond {single.reach}"),
        Claim(
            "in one layer (not said)",
            "",
            f"{deep.layers} layers reach {deep.reached()}",
            f"not said: it {_mends(deep)}, {deep.layers} × {WINDOW // 2} = {deep.layers * (WINDOW // 2)}",
        ),
        Claim(
            "Longformer adds global tokens",
            "yes",
            mended.within(),
            f"{_said(mended.reached() > single.reach)}: it {_mends(mended)}, in 2 layers",
        ),
    )


def _said(right: bool) -> str:
    return "confirmed" if right else "not confirmed"


def _mends(model: Model) -> str:
    return "mends it" if model.reached() == model.length - 2 else "mends it in part"


def finding(found: list[Model]) -> str:
    """What was learned, from the numbers."""
    single, deep, mended = one(found, LOCAL, 1), deepest(found), one(found, GLOBAL, 2)
    lost = single.beyond()
    assert lost is not None
    return (
        f"Where every place must name a color of the text, one layer with a window of {WINDOW} is right "
        f"{single.within().mean:.0%} of the time up to distance {single.reach} and {lost.mean:.0%} beyond (guessing: "
        f"{1 / COLORS:.0%}); {deep.layers} layers are right up to {deep.reached()} of {deep.length - 2}, and with one "
        f"global token 2 layers are right {mended.within().mean:.0%} of the time at any distance, with "
        f"{mended.pairs / deep.pairs:.0%} of the pairs."
    )
