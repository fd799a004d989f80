"""vision: pictures as sequences of patches, in the three ways attention meets them.

Patches look at patches (a vision transformer that finds twins), words look at patches (a captioner), and patches look
at words (a denoiser that makes pictures from noise). The pictures are colored shapes on a grid, drawn here with noise;
one cell is one patch, so that it is known where a model should look. Tests use sets of things, or things at places,
that never came in training.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.inspection.records import Cell, Estimate, Grid, Image, Panel, Picture, Table
from regard.lab.report import (
    RESULTS,
    Claim,
    Evidence,
    Report,
    Takeaway,
    Timing,
    above,
    compared,
    quoted,
)
from regard.lab.setting import Setting
from regard.lab.statistics import number, over_trainings, training_times
from regard.lab.training import Trained, train
from regard.lab.vision.scenes import NAMES, SIDE, decode
from regard.lab.vision.task import Captioning, Denoising, Looking, PictureResults, Twinning, captions, noise, twins

ROWS, COLUMNS = "abcd", "1234"  # names of the cells
SHAPE_WORDS = (1, 3, 5)  # places of the first three shapes in a caption
SAYS = (
    "ViT: Each patch attends to all patches in the image",
    "Image captioning: Text attends to image features",
    "Stable Diffusion: Text conditions image generation",
)
Measure = Callable[[nn.Module, int, torch.Generator], PictureResults]


@dataclass(frozen=True)
class VisionKind:
    """One way to look, the task that trains it, and its measure; steps are full and quick."""

    name: str
    looks: str
    task: type[Looking]
    measure: Measure
    steps: tuple[int, int]
    rate: float
    width: int


KINDS = (
    VisionKind("find the twin", "patch → patches", Twinning, twins, (300, 120), 0.01, 48),
    VisionKind("write a caption", "word → patches", Captioning, captions, (450, 120), 0.005, 48),
    VisionKind("make a picture", "patch → words", Denoising, noise, (500, 150), 0.01, 64),
)


@dataclass(frozen=True)
class VisionRun:
    """The trainings of one kind, and their results on unseen pictures: estimates over trainings, or over pictures if
    there is one training."""

    kind: VisionKind
    trained: list[Trained]
    results: list[PictureResults]

    @property
    def right(self) -> Estimate:
        return over_trainings([each.right for each in self.results])

    @property
    def without(self) -> Estimate:
        return over_trainings([each.without for each in self.results])

    @property
    def gain(self) -> Estimate:
        gains = [each.right - each.without for each in self.results]
        return number(gains[0] if len(gains) == 1 else [float(each.mean()) for each in gains])

    @property
    def weight(self) -> Estimate:
        return over_trainings([each.weight for each in self.results])


def run(setting: Setting) -> Report:
    """Run the experiment."""
    repetitions, count = setting.choose(full=3, quick=1), setting.choose(full=400, quick=60)
    seeds = setting.seeds(repetitions)
    runs = [measured(setting, kind, seeds, count) for kind in KINDS]
    drawings = (twin_picture, caption_picture, noise_picture)
    return Report(
        "vision",
        "Where do patches and words look when a model sees a picture, writes about one, or makes one?",
        (main_table(runs, count),),
        tuple(draw(each.results[0]) for draw, each in zip(drawings, runs, strict=True)),
        finding(runs),
        compared(*claims(runs)),
        setting.record(repetitions, unseen_pictures=count),
        Timing((training_times("task", {each.kind.name: each.trained for each in runs}),)),
        why="The same attention works on pictures: a picture is a sequence of patches, and words and patches can look "
        "at each other.",
        setup="Pictures of 4 × 4 cells hold colored shapes; each cell is one patch, so it is known where a model "
        "should look. Three small models are trained: one tells for each patch where its twin is, the other patch with "
        "the same shape and color; one writes the names of the things it sees; one makes a picture from noise and "
        "words that say what stands where. They are tested on combinations that never came in training.",
        takeaway=takeaway(runs),
    )


def training_task(setting: Setting, kind: VisionKind, seed: int) -> Looking:
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


def measured(setting: Setting, kind: VisionKind, seeds: list[int], count: int) -> VisionRun:
    """Train, and test on unseen pictures."""
    trained = [train(training_task(setting, kind, seed)) for seed in seeds]
    generators = [torch.Generator().manual_seed(seed + 1) for seed in seeds]
    with torch.no_grad():
        results = [
            kind.measure(each.model, count, generator) for each, generator in zip(trained, generators, strict=True)
        ]
    return VisionRun(kind, trained, results)


def main_table(runs: list[VisionRun], count: int) -> Table:
    """Right answers and weights of each kind."""
    rows: list[tuple[Cell, ...]] = []
    for each in runs:
        chance, uniform = each.results[0].chance, each.results[0].uniform
        rows.append((each.kind.looks, each.kind.name, each.right, each.without, chance, each.weight, uniform))
    trainings = len(runs[0].trained)
    what = f"{trainings} trainings" if trainings > 1 else "the pictures of one training"
    title = (
        f"{count} unseen pictures of each kind; mean and 95% interval over {what}. The weight is that of the head "
        "which has most, chosen on other pictures"
    )
    columns = ("looks", "task", "right", "heads ablated", "guessing", "weight there", "uniform")
    return Table(columns, rows, title)


def colored(picture: Tensor, title: str, marks: Sequence[int] = (), note: str = "") -> Image:
    """A picture (channel, pixel, pixel) with the names of its cells; some cells may be framed."""
    pixels = picture.clamp(0.0, 1.0).permute(1, 2, 0).tolist()
    return Image(pixels, ROWS, COLUMNS, title, note, [divmod(cell, SIDE) for cell in marks])


def weight_map(weights: Tensor, title: str) -> Grid:
    """Weights of all cells, laid out as the picture is."""
    return Grid(weights.view(SIDE, SIDE).tolist(), ROWS, COLUMNS, title, limits=(0.0, 1.0))


def twin_picture(results: PictureResults) -> Picture:
    """A picture, and where one of its patches looks."""
    cells, picture = results.scene.cells[0], results.picture[0]
    patch = int((cells >= 0).nonzero()[0])
    twin = int(results.scene.about[0, patch])
    name = NAMES[int(cells[patch])]
    weights = weight_map(results.weights[0, results.heads[0], patch], f"weights of {place(patch)}")
    image = colored(
        picture, "the picture", (patch, twin), f"framed: {name} at {place(patch)} and its twin {place(twin)}"
    )
    return Panel((image, weights), f"Trained: where the {name} at {place(patch)} looks; its twin is at {place(twin)}")


def caption_picture(results: PictureResults) -> Picture:
    """A picture, and where the words for the shapes of its caption look."""
    words, about = decode(results.scene.words[0])[1:], results.scene.about[0]
    maps = [
        weight_map(
            results.weights[0, results.heads[-1], number], f"writing “{words[number]}” (of {place(int(about[number]))})"
        )
        for number in SHAPE_WORDS
    ]
    return Panel((colored(results.picture[0], "the picture"), *maps), f"Trained: where “{' '.join(words)}” looks")


def noise_picture(results: PictureResults) -> Picture:
    """A picture made from noise, and which patches look at some of its words."""
    words, about = decode(results.scene.words[0]), results.scene.about[0]
    titles = {number: f"patches looking at “{words[number]}” for {place(int(about[number]))}" for number in SHAPE_WORDS}
    maps = [weight_map(results.weights[0, results.heads[0], :, number], title) for number, title in titles.items()]
    made = colored(results.picture[0] / results.picture[0].max(), "the picture that was made")
    return Panel((made, *maps), "Trained: a picture made from noise and words")


def place(cell: int) -> str:
    """The name of a cell: row a to d, column 1 to 4."""
    return f"{ROWS[cell // SIDE]}{COLUMNS[cell % SIDE]}"


def claims(runs: list[VisionRun]) -> tuple[Claim, ...]:
    """The three uses that the source names."""
    listed = []
    for text, each in zip(SAYS, runs, strict=True):
        quote, uniform = quoted(RESULTS, text), each.results[0].uniform
        what = f"{each.kind.looks}: weight on the right one"
        listed.append(Claim(quote, what, each.weight, above(uniform), f"uniform: {uniform:.2f}"))
        listed.append(Claim(quote, f"{each.kind.name}: right answers gained by these heads", each.gain, above(0)))
    smallest = min(float(each.weights.min()) for each in runs[0].results)
    listed.append(Claim(quoted(RESULTS, SAYS[0]), "smallest weight of any pair of patches", smallest, above(0)))
    return tuple(listed)


def takeaway(runs: list[VisionRun]) -> Takeaway:
    """Where trained models look."""
    return Takeaway(
        "Patches look at patches, words at patches, and patches at words: trained attention goes to what the task asks "
        "for, and the models need it.",
        "In these trainings attention does not go where it should in all three tasks.",
        tuple(
            Evidence(f"{each.kind.looks}: weight on the right one", each.weight, above(2 * each.results[0].uniform))
            for each in runs
        ),
    )


def finding(runs: list[VisionRun]) -> str:
    """One sentence, from the numbers."""
    first, second, third = runs
    return (
        f"A patch gives {first.weight.mean:.2f} of its weight to its twin among {first.results[0].weights.shape[-1]} "
        f"patches ({first.right.mean:.0%} of the twins are found), a word {second.weight.mean:.2f} to the patch that "
        f"it names ({second.right.mean:.0%} of the words are right), and a patch of mere noise {third.weight.mean:.2f} "
        f"to the words about its place ({third.right.mean:.0%} of the things asked for are painted); with these heads "
        f"ablated it is {first.without.mean:.0%}, {second.without.mean:.0%} and {third.without.mean:.0%}."
    )
