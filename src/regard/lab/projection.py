"""projection: what W_O adds to heads that stand side by side, and what each head of a trained layer is worth.

Without W_O the output of head i is block i of the result and nothing else. With it, every head adds h_i · W_O,i, a
vector of all d_model numbers: Concat(heads) · W_O is the sum of these. W_O is (h · d_v) × d_model. Where a linear layer
comes next, the product of both is one matrix, and a layer can be trained without W_O.
"""

import copy
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor
from torch import nn as torch_nn

from regard import nn
from regard.inspection.interventions import Ablate, effect, intervene
from regard.inspection.records import Cell, Estimate, Grid, Panel, Picture, Table
from regard.lab.report import (
    CONCEPTS,
    MINI_COURSE,
    Claim,
    Evidence,
    Report,
    Takeaway,
    Timing,
    above,
    all_of,
    below,
    compared,
    quoted,
)
from regard.lab.setting import Setting
from regard.lab.statistics import mean, number, share, training_time
from regard.lab.tasks.relations import NOWHERE, QUESTIONS, ItemTexts, Relater, Relating, right, three_questions
from regard.lab.training import Trained, train

WIDTH, HEADS, TOKENS = 32, 4, 10
SIZES = ((64, 8, 8), (64, 8, 16), (64, 4, 8), (512, 8, 64), (768, 12, 64))  # d_model, heads, d_v
WITH, WITHOUT = "with W_O", "side by side"
EXACT, CLOSE = 1e-9, 0.02  # what rounding leaves of zero here; a difference of shares that is called none
TEXTS = 256


def side_by_side(layer: nn.MultiHeadAttention) -> nn.MultiHeadAttention:
    """The same layer without W_O: its output is the heads' outputs, one after the other."""
    bare = copy.deepcopy(layer)
    bare.out_proj = torch_nn.Identity()  # type: ignore[assignment]
    return bare


def drawn(seed: int) -> tuple[nn.MultiHeadAttention, Tensor]:
    """A random layer in float64 and random tokens."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = nn.MultiHeadAttention(WIDTH, HEADS, projection_bias=False).double().eval()
        return layer, torch.randn(1, TOKENS, WIDTH, dtype=torch.float64)


@torch.no_grad()
def footprint(layer: nn.MultiHeadAttention, x: Tensor) -> Tensor:
    """(head, block): which share of a head's effect on the output, in squares, falls into which block of numbers."""
    whole, rows = layer(x), []
    for head in range(layer.heads):
        with intervene(layer, Ablate(), heads=head):
            change = (whole - layer(x)).square().sum((0, 1))
        rows.append(change.unflatten(0, (layer.heads, -1)).sum(1) / change.sum())
    return torch.stack(rows)


@torch.no_grad()
def summed(layer: nn.MultiHeadAttention, x: Tensor) -> float:
    """The largest difference between the output and the sum of every head's output times its rows of W_O."""
    heads = side_by_side(layer)(x).split(layer.d_v, -1)
    blocks = layer.out_proj.weight.T.split(layer.d_v, 0)
    return float((layer(x) - sum(head @ block for head, block in zip(heads, blocks, strict=True))).abs().max())


@torch.no_grad()
def folded(model: Relater, texts: ItemTexts) -> float:
    """The largest difference in the answers when W_O is multiplied into the linear layer that reads, and left out."""
    model = copy.deepcopy(model).double()
    last = model.reading[-1]
    assert isinstance(last, torch_nn.Linear)
    x = model.types(texts.types) + model.payloads(texts.payloads)
    if model.places is not None:
        x = x + model.places(torch.arange(texts.types.shape[1]).expand_as(texts.types))
    x = model.norm(x)
    both = last.weight @ model.attention.out_proj.weight
    answers = last(x) + side_by_side(model.attention)(x) @ both.T
    return float((answers - model(*texts.inputs).flatten(2)).abs().max())


def missed(task: Relating, model: torch_nn.Module, texts: ItemTexts) -> list[dict[str, Estimate]]:
    """For each head, the share of right answers to each question that is lost when it is ablated."""
    answers = task.answers(texts)
    known = answers != NOWHERE

    def lost(index: int, before: Tensor, after: Tensor) -> Tensor:
        right = [(logits.argmax(-1) == answers) & known for logits in (before, after)]
        counts = [(each[..., index].sum(1) / known[..., index].sum(1)) for each in right]
        return counts[0] - counts[1]

    metrics = {question: partial(lost, index) for index, question in enumerate(task.questions)}
    table = effect(model, [texts.inputs], Ablate(), metric=metrics)
    return [{question: cast(Estimate, row[question]) for question in task.questions} for row in table]


@dataclass(frozen=True)
class ProjectionShape:
    """A layer's sizes, and those of its W_O and output."""

    d_model: int
    heads: int
    d_v: int
    rows: int
    columns: int
    out: int


def shape(d_model: int, heads: int, d_v: int) -> ProjectionShape:
    """Sizes of a layer that was made and run."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        layer = nn.MultiHeadAttention(d_model, heads, d_k=d_model // heads, d_v=d_v)
        out = layer(torch.zeros(1, 2, d_model)).shape[-1]
    columns, rows = layer.out_proj.weight.shape  # a Linear holds its matrix transposed
    return ProjectionShape(d_model, heads, d_v, rows, columns, out)


@dataclass(frozen=True)
class RandomLayers:
    """Random layers: footprints (draw, head, block) by variant, and how far the sum is from the product."""

    footprints: dict[str, Tensor]
    apart: float

    def own(self, name: str) -> Estimate:
        """The share of a head's effect that falls into its own block."""
        return mean(self.footprints[name].diagonal(dim1=1, dim2=2).mean(1))


@dataclass(frozen=True)
class ProjectionTraining:
    """One training: right answers, what each head is worth for each question, and the fold of W_O if there is one."""

    trained: Trained
    right: dict[str, float]
    missed: list[dict[str, Estimate]]
    folded: float


Runs = dict[str, list[ProjectionTraining]]


def run(setting: Setting) -> Report:
    """Run the experiment."""
    draws, repetitions = setting.choose(full=100, quick=20), setting.choose(full=5, quick=3)
    generator = setting.generator()
    seeds = setting.seeds(draws, generator)
    random = measured(seeds)
    chosen = setting.seeds(repetitions, generator)
    runs = {name: [trained_layer(setting, name, seed) for seed in chosen] for name in (WITH, WITHOUT)}
    shapes = [shape(*sizes) for sizes in SIZES]
    return Report(
        "projection",
        "What does the output projection add to heads that stand side by side, and what is each head worth?",
        (*random_tables(random, shapes), *trained_tables(runs)),
        pictures(random, runs),
        finding(random, runs, shapes),
        compared(*claims(random, runs, shapes)),
        setting.record(draws, trainings_of_each_kind=repetitions, steps=runs[WITH][0].trained.task.steps),
        Timing((training_time(each.trained for group in runs.values() for each in group),)),
        why="W_O is a quarter of the parameters of an attention layer, and it is easy to forget what it is for.",
        setup="Each head of a layer writes its own block of numbers. Side by side the blocks are the output; with W_O "
        "every number of the output is a mixture of all of them. Random layers show where a head's output goes; "
        "trained layers answer three questions about each item (what stood before it, what stood first, what the other "
        "item of its kind holds) and lose one head at a time.",
        takeaway=takeaway(random),
    )


def measured(seeds: list[int]) -> RandomLayers:
    """Random layers, with W_O and without."""
    footprints: dict[str, list[Tensor]] = {WITH: [], WITHOUT: []}
    apart = 0.0
    for seed in seeds:
        layer, x = drawn(seed)
        footprints[WITH].append(footprint(layer, x))
        footprints[WITHOUT].append(footprint(side_by_side(layer), x))
        apart = max(apart, summed(layer, x))
    return RandomLayers({name: torch.stack(each) for name, each in footprints.items()}, apart)


def trained_layer(setting: Setting, name: str, seed: int) -> ProjectionTraining:
    """One training, its heads ablated one by one."""
    task = three_questions(setting, seed, HEADS, joined=name == WITH)
    trained = train(task)
    texts = task.texts(TEXTS, torch.Generator().manual_seed(seed + 2))
    model = trained.model
    assert isinstance(model, Relater)
    fold = folded(model, texts) if task.joined else 0.0
    return ProjectionTraining(trained, right(task, model, texts), missed(task, model, texts), fold)


def random_tables(random: RandomLayers, shapes: list[ProjectionShape]) -> tuple[Table, Table]:
    """How much of a head's effect stays in its own block, and sizes of W_O."""
    blocks: list[tuple[Cell, ...]] = [
        (name, random.own(name), mean(1 - each.diagonal(dim1=1, dim2=2).mean(1)))
        for name, each in random.footprints.items()
    ]
    sizes: list[tuple[Cell, ...]] = []
    for each in shapes:
        size, square = f"{each.rows} × {each.columns}", "yes" if each.rows == each.d_model else "no"
        sizes.append((each.d_model, each.heads, each.d_v, size, square, each.out))
    return (
        Table(
            ("heads", "in the head's own block", "in the blocks of the others"),
            blocks,
            f"Random layers of {HEADS} heads: where the output changes when one head is ablated, in squares",
        ),
        Table(
            ("d_model", "h", "d_v", "W_O, (h · d_v) × d_model", "d_model × d_model", "output width"),
            sizes,
            "W_O of layers that were made and run",
        ),
    )


def trained_tables(runs: Runs) -> tuple[Table, Table]:
    """Right answers with and without W_O, and every head of the first models, ablated."""
    questions = ("the one before", "the first", "the twin")
    answers: list[tuple[Cell, ...]] = []
    lost: list[tuple[Cell, ...]] = []
    for name, group in runs.items():
        answers.append((name, *(share([each.right[question] for each in group]) for question in QUESTIONS)))
        for head, missed in enumerate(group[0].missed, 1):
            lost.append((name, head, *(missed[question] for question in QUESTIONS)))
    title = (
        f"Trained, {HEADS} heads of {64 // HEADS} numbers: right answers to {TEXTS} new texts (guessing: 0.125), "
        f"mean and 95% interval over {len(runs[WITH])} trainings"
    )
    ablated = "Right answers lost when one head is ablated, first run of each; mean and 95% interval over texts"
    return Table(("heads", *questions), answers, title), Table(("heads", "head", *questions), lost, ablated)


def pictures(random: RandomLayers, runs: Runs) -> tuple[Picture, Picture]:
    """Mean footprints of random layers, and what each head of the first trained models is worth."""
    labels, blocks = [f"head {each + 1}" for each in range(HEADS)], [f"block {each + 1}" for each in range(HEADS)]
    footprints, worth = [], []
    for name in (WITHOUT, WITH):
        footprint = random.footprints[name].mean(0).tolist()
        footprints.append(Grid(footprint, labels, blocks, name, limits=(0.0, 1.0)))
        worth.append(Grid([_worth(lost) for lost in runs[name][0].missed], labels, QUESTIONS, name, limits=(0.0, 1.0)))
    return (
        Panel(footprints, "Random layers: where a head's output goes"),
        Panel(worth, "Trained: right answers lost without one head"),
    )


def _worth(lost: dict[str, Estimate]) -> list[float]:
    """Right answers lost without a head, by question; a gain counts as 0."""
    return [max(0.0, lost[question].mean) for question in QUESTIONS]


def everything(runs: Runs, name: str) -> Estimate:
    """Right answers to all questions."""
    return share([sum(each.right.values()) / len(each.right) for each in runs[name]])


def gained(runs: Runs) -> Estimate:
    """How many more right answers there are with W_O, training by training."""
    pairs = zip(runs[WITH], runs[WITHOUT], strict=True)
    return number([(sum(one.right.values()) - sum(other.right.values())) / len(QUESTIONS) for one, other in pairs])


def narrowest(runs: Runs) -> Estimate:
    """The share of a head's worth that falls on one question: 1 if it serves that one alone."""
    heads = [_worth(lost) for group in runs.values() for each in group for lost in each.missed]
    shares = [max(worth) / sum(worth) for worth in heads if sum(worth) > CLOSE]
    return share(shares)


def claims(random: RandomLayers, runs: Runs, shapes: list[ProjectionShape]) -> tuple[Claim, ...]:
    """What is said of W_O."""
    square = sum(each.rows == each.columns for each in shapes)
    back = sum(each.out == each.d_model for each in shapes)
    fold = max(each.folded for each in runs[WITH])
    mixed = quoted(CONCEPTS, "Mix information from all attention heads")
    useful = quoted(CONCEPTS, "Which head combinations are useful")
    formula = quoted(MINI_COURSE, "MultiHead(Q, K, V) = Concat(head_1, head_2, ..., head_h) * W_O")
    apart = f"side by side: {random.own(WITHOUT).mean:.2f}"
    folded = f"the next linear layer can mix as well: W_O folded into it changes answers by {fold:.0e}"
    return (
        Claim(mixed, "share of a head's effect that stays in its own block", random.own(WITH), below(0.9), apart),
        Claim(
            quoted(CONCEPTS, "Return to d_model dimension"),
            f"layers that do, of {len(shapes)}",
            back,
            all_of(len(shapes)),
        ),
        Claim(
            quoted(CONCEPTS, "W_O: (d_model × d_model)"),
            f"layers in which it is, of {len(shapes)}",
            square,
            all_of(len(shapes)),
            "it is (h · d_v) × d_model",
        ),
        Claim(useful, "right answers gained with W_O", gained(runs), above(CLOSE, "partly"), folded),
        Claim(
            formula, "largest |Concat · W_O − Σ head · its rows of W_O|", random.apart, below(EXACT), "a sum over heads"
        ),
    )


def takeaway(random: RandomLayers) -> Takeaway:
    """What W_O does."""
    return Takeaway(
        "W_O spreads what each head found over the whole output; heads side by side keep to their own blocks.",
        "W_O does not spread the heads' outputs here.",
        (
            Evidence("share of a head's effect in its own block, with W_O", random.own(WITH), below(0.5)),
            Evidence("share of a head's effect in its own block, side by side", random.own(WITHOUT), above(0.99)),
        ),
    )


def finding(random: RandomLayers, runs: Runs, shapes: list[ProjectionShape]) -> str:
    """One sentence, from the numbers."""
    return (
        f"Side by side, {random.own(WITHOUT).mean:.0%} of what a head does is in its own block, with W_O "
        f"{random.own(WITH).mean:.0%} (1/h = {1 / HEADS:.0%}); W_O is square in "
        f"{sum(each.rows == each.columns for each in shapes)} of {len(shapes)} layers; trained, heads give "
        f"{everything(runs, WITH).mean:.1%} right answers with it and {everything(runs, WITHOUT).mean:.1%} without, "
        f"and of what the loss of a head costs, {narrowest(runs).mean:.0%} falls on one question."
    )
