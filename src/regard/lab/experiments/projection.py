"""projection: what W_O adds to heads that stand side by side, and what each head of a trained layer is worth.

Without W_O the output of head h is block h of the result and nothing else. With it, every head adds h_i · W_O,i, a
vector of all d_model numbers: Concat(heads) · W_O is the sum of these. W_O is (h · d_v) × d_model. Where a linear layer
comes next, the product of both is one matrix, and a layer can be trained without W_O.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.inspection.records import Cell, Estimate, Grid, Panel, Picture, Table
from regard.inspection.statistics import mean
from regard.lab import sources
from regard.lab.projection.measure import HEADS, Shape, drawn, folded, footprint, missed, shape, side_by_side, summed
from regard.lab.relations.model import Relater
from regard.lab.relations.task import Relating, right
from regard.lab.report import Claim, Compared, Report, Timing, settings
from regard.lab.setting import Setting
from regard.lab.training import Trained, train
from regard.lab.training.over import number, share

QUESTIONS = ("previous", "first", "twin")
SIZES = ((64, 8, 8), (64, 8, 16), (64, 4, 8), (512, 8, 64), (768, 12, 64))  # d_model, heads, d_v
WITH, WITHOUT = "with W_O", "side by side"
EXACT, CLOSE = 1e-9, 0.02  # what rounding leaves of zero here; a difference of shares that is called none
TEXTS = 256


@dataclass(frozen=True)
class Random:
    """Of every random layer: footprints (draw, head, block) by variant, and how far the sum is from the product."""

    footprints: dict[str, Tensor]
    apart: float

    def own(self, name: str) -> Estimate:
        """The share of a head's effect that falls into its own block."""
        return mean(self.footprints[name].diagonal(dim1=1, dim2=2).mean(1))


@dataclass(frozen=True)
class Run:
    """One training: right answers, what each head is worth for each question, and the fold of W_O if there is one."""

    trained: Trained
    right: dict[str, float]
    missed: list[dict[str, Estimate]]
    folded: float


Runs = dict[str, list[Run]]


def run(setting: Setting) -> Report:
    """Run the experiment."""
    draws, repetitions = setting.choose(full=100, quick=20), setting.choose(full=5, quick=3)
    generator = setting.generator()
    seeds = torch.randint(2**31, (draws,), generator=generator).tolist()
    random = measured(seeds)
    chosen = torch.randint(2**31, (repetitions,), generator=generator).tolist()
    runs = {name: [trained(setting, name, seed) for seed in chosen] for name in (WITH, WITHOUT)}
    shapes = [shape(*sizes) for sizes in SIZES]
    return Report(
        "projection",
        "What does the output projection add to heads that stand side by side, and what is each head worth?",
        (block_table(random), shape_table(shapes), trained_table(runs), missed_table(runs)),
        (block_picture(random), missed_picture(runs)),
        finding(random, runs, shapes),
        (
            Compared(f"{sources.CONCEPTS}, section 7", claims(random, runs, shapes)),
            Compared(f"{sources.MINI_COURSE}, Multi-Head Attention", sum_claims(random)),
        ),
        {**settings(setting, draws), "trainings of each kind": repetitions, "steps": runs[WITH][0].trained.task.steps},
        Timing((_seconds(runs),), ()),
    )


def measured(seeds: list[int]) -> Random:
    """Random layers, with W_O and without."""
    found: dict[str, list[Tensor]] = {WITH: [], WITHOUT: []}
    apart = 0.0
    for seed in seeds:
        layer, x = drawn(seed)
        found[WITH].append(footprint(layer, x))
        found[WITHOUT].append(footprint(side_by_side(layer), x))
        apart = max(apart, summed(layer, x))
    return Random({name: torch.stack(each) for name, each in found.items()}, apart)


def task(setting: Setting, name: str, seed: int) -> Relating:
    """What is trained: eight items, two of each type, that ask three questions."""
    return Relating(
        seed=seed,
        steps=setting.choose(full=200, quick=80),
        rate=1e-2,
        rise=0.1,
        looks=5,
        questions=QUESTIONS,
        types=4,
        copies=2,
        payloads=8,
        placed=True,
        width=64,
        heads=HEADS,
        shared=False,
        joined=name == WITH,
        reading="linear",
        batch=setting.choose(full=64, quick=24),
    )


def trained(setting: Setting, name: str, seed: int) -> Run:
    """One training, its heads ablated one by one."""
    asked = task(setting, name, seed)
    found = train(asked)
    texts = asked.texts(TEXTS, torch.Generator().manual_seed(seed + 2))
    model = found.model
    assert isinstance(model, Relater)
    fold = folded(model, texts) if asked.joined else 0.0
    return Run(found, right(asked, model, texts), missed(asked, model, texts), fold)


def block_table(random: Random) -> Table:
    """How much of a head's effect stays in its own block."""
    rows: list[tuple[Cell, ...]] = [
        (name, random.own(name), mean(1 - each.diagonal(dim1=1, dim2=2).mean(1)))
        for name, each in random.footprints.items()
    ]
    title = f"Random layers of {HEADS} heads: where the output changes when one head is ablated, in squares"
    return Table(("heads", "in the head's own block", "in the blocks of the others"), rows, title)


def shape_table(shapes: list[Shape]) -> Table:
    """Sizes of W_O."""
    rows: list[tuple[Cell, ...]] = [
        (
            each.d_model,
            each.heads,
            each.d_v,
            f"{each.rows} × {each.columns}",
            "yes" if each.rows == each.d_model else "no",
            each.out,
        )
        for each in shapes
    ]
    columns = ("d_model", "h", "d_v", "W_O, (h · d_v) × d_model", "d_model × d_model", "output width")
    return Table(columns, rows, "W_O of layers that were made and run")


def trained_table(runs: Runs) -> Table:
    """Right answers with and without W_O."""
    rows: list[tuple[Cell, ...]] = [
        (name, *(share([each.right[question] for each in group]) for question in QUESTIONS))
        for name, group in runs.items()
    ]
    title = (
        f"Trained, {HEADS} heads of {64 // HEADS} numbers: right answers to {TEXTS} new texts (guessing: 0.125), "
        f"mean and 95% interval over {len(runs[WITH])} trainings"
    )
    return Table(("heads", "the one before", "the first", "the twin"), rows, title)


def missed_table(runs: Runs) -> Table:
    """Every head of the first models, ablated."""
    rows: list[tuple[Cell, ...]] = [
        (name, head + 1, *(lost[question] for question in QUESTIONS))
        for name, group in runs.items()
        for head, lost in enumerate(group[0].missed)
    ]
    title = "Right answers lost when one head is ablated, first run of each; mean and 95% interval over texts"
    return Table(("heads", "head", "the one before", "the first", "the twin"), rows, title)


def block_picture(random: Random) -> Picture:
    """Footprints, averaged over the layers."""
    labels, blocks = [f"head {each + 1}" for each in range(HEADS)], [f"block {each + 1}" for each in range(HEADS)]
    grids = [
        Grid(random.footprints[name].mean(0).tolist(), labels, blocks, name, limits=(0.0, 1.0))
        for name in (WITHOUT, WITH)
    ]
    return Panel(grids, "Random layers: where a head's output goes")


def missed_picture(runs: Runs) -> Picture:
    """What each head of the first models is worth."""
    labels = [f"head {each + 1}" for each in range(HEADS)]
    grids = [
        Grid(
            [[max(0.0, lost[question].mean) for question in QUESTIONS] for lost in runs[name][0].missed],
            labels,
            QUESTIONS,
            name,
            limits=(0.0, 1.0),
        )
        for name in (WITHOUT, WITH)
    ]
    return Panel(grids, "Trained: right answers lost without one head")


def everything(runs: Runs, name: str) -> Estimate:
    """Right answers to all questions."""
    return share([sum(each.right.values()) / len(each.right) for each in runs[name]])


def gained(runs: Runs) -> Estimate:
    """How many more right answers there are with W_O, training by training."""
    pairs = zip(runs[WITH], runs[WITHOUT], strict=True)
    return number([(sum(one.right.values()) - sum(other.right.values())) / len(QUESTIONS) for one, other in pairs])


def narrowest(runs: Runs) -> Estimate:
    """Of what a head is worth, the share of the question that it is worth most for: 1 if it serves that one alone."""
    shares = []
    for each in (each for group in runs.values() for each in group):
        for lost in each.missed:
            worth = [max(0.0, lost[question].mean) for question in QUESTIONS]
            if sum(worth) > CLOSE:
                shares.append(max(worth) / sum(worth))
    return share(shares)


def claims(random: Random, runs: Runs, shapes: list[Shape]) -> tuple[Claim, ...]:
    """What is said of W_O."""
    square = sum(each.rows == each.columns for each in shapes)
    back = all(each.out == each.d_model for each in shapes)
    apart, joined, more = random.own(WITHOUT), random.own(WITH), gained(runs)
    mixing = "confirmed" if apart.mean > 1 - EXACT > joined.mean else "not shown"
    need = (
        "confirmed: of use here"
        if more.low > CLOSE
        else "corrected: not needed here, the next linear layer mixes as well"
    )
    fold = max(each.folded for each in runs[WITH])
    return (
        Claim("mixes all heads: effect in its own block", "mixed", joined, f"{mixing}; side by side {apart.mean:.2f}"),
        Claim("returns to d_model", "yes", "yes" if back else "no", "confirmed" if back else "corrected"),
        Claim(
            "W_O is d_model × d_model",
            "d_model × d_model",
            f"{square} of {len(shapes)} layers",
            "confirmed" if square == len(shapes) else "corrected: (h · d_v) × d_model",
        ),
        Claim("learns which combinations are useful", "yes", more, f"{need} (folded into it: {fold:.0e} apart)"),
    )


def sum_claims(random: Random) -> tuple[Claim, ...]:
    """The formula."""
    verdict = "confirmed: a sum over heads" if random.apart < EXACT else "corrected"
    return (
        Claim("Concat(heads) · W_O = Σ head · its rows of W_O", "Concat · W_O", f"{random.apart:.0e} apart", verdict),
    )


def _seconds(runs: Runs) -> Table:
    every = [each.trained.record["seconds"] for group in runs.values() for each in group]
    return Table(("trainings", "seconds each"), [(len(every), number(every))], "Training, one thread")


def finding(random: Random, runs: Runs, shapes: list[Shape]) -> str:
    """One sentence, from the numbers."""
    return (
        f"Side by side, {random.own(WITHOUT).mean:.0%} of what a head does is in its own block, with W_O "
        f"{random.own(WITH).mean:.0%} (1/h = {1 / HEADS:.0%}); W_O is square in "
        f"{sum(each.rows == each.columns for each in shapes)} of {len(shapes)} layers; trained, heads give "
        f"{everything(runs, WITH).mean:.1%} right answers with it and {everything(runs, WITHOUT).mean:.1%} without, "
        f"and of what the loss of a head costs, {narrowest(runs).mean:.0%} falls on one question."
    )
