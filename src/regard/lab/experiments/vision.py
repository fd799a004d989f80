"""vision: pictures as sequences of patches, in the three ways attention meets them.

Patches look at patches (a vision transformer that finds twins), words look at patches (a captioner), and patches look
at words (a denoiser that makes pictures from noise). The pictures are colored shapes on a grid, drawn here with noise;
one cell is one patch, so that it is known where a model should look. Tests use sets of things, or things at places,
that never came in training.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.inspection.records import Cell, Estimate, Table
from regard.lab import sources
from regard.lab.report import Claim, Compared, Report, Timing, settings
from regard.lab.setting import Setting
from regard.lab.training import Trained, train
from regard.lab.training.over import number, share
from regard.lab.vision import shown
from regard.lab.vision.measure import Seen, captions, noise, twins
from regard.lab.vision.tasks import Captioning, Denoising, Looking, Twinning

Measure = Callable[[nn.Module, int, torch.Generator], Seen]


@dataclass(frozen=True)
class Kind:
    """One way to look, the task that trains it, and its measure; steps are full and quick."""

    name: str
    looks: str
    task: type[Looking]
    measure: Measure
    steps: tuple[int, int]
    rate: float
    width: int


TWINS = Kind("find the twin", "patch → patches", Twinning, twins, (300, 120), 0.01, 48)
CAPTION = Kind("write a caption", "word → patches", Captioning, captions, (450, 120), 0.005, 48)
NOISE = Kind("make a picture", "patch → words", Denoising, noise, (500, 150), 0.01, 64)
KINDS = (TWINS, CAPTION, NOISE)


@dataclass(frozen=True)
class Run:
    """The trainings of one kind, and what each made of unseen pictures."""

    kind: Kind
    trained: list[Trained]
    seen: list[Seen]

    def over(self, of: Callable[[Seen], Tensor]) -> Estimate:
        """Over trainings; over pictures if there is one training."""
        found = [of(each) for each in self.seen]
        return share(found[0] if len(found) == 1 else [float(each.mean()) for each in found])

    @property
    def right(self) -> Estimate:
        """The share of answers that are right."""
        return self.over(lambda seen: seen.right)

    @property
    def without(self) -> Estimate:
        """The same without the attention."""
        return self.over(lambda seen: seen.without)

    @property
    def gain(self) -> Estimate:
        """By how much more is right with the attention than without."""
        return self.over(lambda seen: seen.right - seen.without)

    @property
    def weight(self) -> Estimate:
        """The weight on what the question is about."""
        return self.over(lambda seen: seen.weight)


def run(setting: Setting) -> Report:
    """Run the experiment."""
    repetitions, count = setting.choose(full=3, quick=1), setting.choose(full=400, quick=60)
    seeds = torch.randint(2**31, (repetitions,), generator=setting.generator()).tolist()
    runs = [looked(setting, kind, seeds, count) for kind in KINDS]
    return Report(
        "vision",
        "Where do patches and words look when a model sees a picture, writes about one, or makes one?",
        (main_table(runs, count),),
        tuple(draw(each.seen[0]) for draw, each in zip((shown.twins, shown.caption, shown.noise), runs, strict=True)),
        finding(runs),
        (Compared(f"{sources.RESULTS}, Self-attention vs cross-attention", claims(runs)),),
        {**settings(setting, repetitions), "unseen pictures": count},
        timing(runs),
    )


def task(setting: Setting, kind: Kind, seed: int) -> Looking:
    """What is trained: shorter if quick."""
    return kind.task(
        seed=seed,
        steps=setting.choose(*kind.steps),
        rate=kind.rate,
        rise=0.1,
        looks=10,
        width=kind.width,
        heads=2,
        batch=24,
    )


def looked(setting: Setting, kind: Kind, seeds: list[int], count: int) -> Run:
    """Train, and look at unseen pictures."""
    trained = [train(task(setting, kind, seed)) for seed in seeds]
    with torch.no_grad():
        found = [kind.measure(each.model, count, torch.Generator().manual_seed(each.task.seed + 1)) for each in trained]
    return Run(kind, trained, found)


def main_table(runs: list[Run], count: int) -> Table:
    """Right answers and weights of each kind."""
    rows: list[tuple[Cell, ...]] = [
        (
            each.kind.looks,
            each.kind.name,
            each.right,
            each.without,
            each.seen[0].chance,
            each.weight,
            each.seen[0].uniform,
        )
        for each in runs
    ]
    trainings = len(runs[0].trained)
    what = f"{trainings} trainings" if trainings > 1 else "the pictures of one training"
    title = (
        f"{count} unseen pictures of each kind; mean and 95% interval over {what}. The weight is that of the head "
        "which has most, chosen on other pictures"
    )
    columns = ("looks", "task", "right", "heads ablated", "guessing", "weight there", "uniform")
    return Table(columns, rows, title)


def claims(runs: list[Run]) -> tuple[Claim, ...]:
    """The three uses that the source names."""
    says = (
        ("ViT", "each patch attends to all patches"),
        ("image captioning", "text attends to image features"),
        ("Stable Diffusion", "text conditions image generation"),
    )
    listed = []
    for (name, what), each in zip(says, runs, strict=True):
        sure = each.weight.low > each.seen[0].uniform and each.gain.low > 0
        verdict = "confirmed" if sure else "not shown"
        listed.append(
            Claim(name, what, each.weight, f"{verdict}: weight on the right one, uniform {each.seen[0].uniform:.2f}")
        )
    smallest = min(float(each.weights.min()) for each in runs[0].seen)
    all_pairs = "confirmed" if smallest > 0 else "corrected: rounded to 0"
    listed.append(Claim("ViT: all patches", "to all", smallest, f"{all_pairs}: the smallest weight of any pair"))
    return tuple(listed)


def timing(runs: list[Run]) -> Timing:
    """How long the trainings took."""
    rows: list[tuple[Cell, ...]] = []
    for each in runs:
        parameters = sum(parameter.numel() for parameter in each.trained[0].model.parameters())
        seconds = [float(one.record["seconds"]) for one in each.trained]
        rows.append((each.kind.name, parameters, number(seconds) if len(seconds) > 1 else seconds[0]))
    return Timing((Table(("task", "parameters", "seconds"), rows, "Training, one thread"),), ())


def finding(runs: list[Run]) -> str:
    """One sentence, from the numbers."""
    first, second, third = runs
    return (
        f"A patch gives {first.weight.mean:.2f} of its weight to its twin among {first.seen[0].weights.shape[-1]} "
        f"patches ({first.right.mean:.0%} of the twins are found), a word {second.weight.mean:.2f} to the patch that "
        f"it names ({second.right.mean:.0%} of the words are right), and a patch of mere noise {third.weight.mean:.2f} "
        f"to the words about its place ({third.right.mean:.0%} of the things asked for are painted); with these heads "
        f"ablated it is {first.without.mean:.0%}, {second.without.mean:.0%} and {third.without.mean:.0%}."
    )
