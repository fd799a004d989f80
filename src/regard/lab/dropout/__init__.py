"""dropout: what is dropped from attention, what stays the same on average, and what it is good for.

Dropout acts on single weights after softmax, in each head independently, and multiplies the others by 1/(1 − p). The
mean of every weight stays; a row sums to 1 on average only, with a variance of p/(1 − p) · Σ w². A small model learns
the topics of so few texts that it can memorize them, with several rates. It is evaluated without dropout.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.inspection.records import Cell, Estimate, Grid, Line, Lines, Panel, Picture, Table
from regard.lab.dropout.task import HEADS, ReaderScores, TopicReading, read
from regard.lab.maps import KEYS, normal, weights
from regard.lab.report import CONCEPTS, Claim, Evidence, Report, Takeaway, Timing, above, below, compared, near, quoted
from regard.lab.setting import Setting
from regard.lab.statistics import curve, during, mean, number, positive, share, training_time
from regard.lab.training import Trained, train
from regard.spec.dropout import Dropout

WIDTH = 64
EXACT = 1e-12  # what float64 leaves of zero here
SHOWN = 4  # rows of the picture of a map
PRESETS = (  # model, the seed's rate, the published one, and where
    ("BERT", 0.1, 0.1, "attention_probs_dropout_prob of its configuration"),
    ("GPT-2", 0.1, 0.1, "attn_pdrop of its configuration"),
    ("GPT-3", 0.0, None, "its paper names no rate of dropout"),
)


@dataclass(frozen=True)
class DroppedWeights:
    """Random self-attention at one rate: weights before and after dropout, (draw, head, query, key)."""

    p: float
    before: Tensor
    after: Tensor

    @property
    def gone(self) -> Tensor:
        """True where a pair was dropped."""
        return self.after == 0

    @property
    def sums(self) -> Tensor:
        """The sums of rows, (draw, head, query)."""
        return self.after.sum(-1)

    @property
    def spread(self) -> float:
        """The standard deviation that the sums of rows must have: √(p/(1 − p) · Σ w²), its mean square over rows."""
        return math.sqrt(self.p / (1 - self.p) * float((self.before**2).sum(-1).mean()))

    @property
    def heads(self) -> int:
        """Heads of all draws."""
        return self.gone.shape[0] * HEADS

    @property
    def whole(self) -> int:
        """Heads of which every pair was dropped."""
        return int(self.gone.all(-1).all(-1).sum())

    @property
    def left(self) -> Tensor:
        """The share of all weight that is left, one number for each draw."""
        return (self.after.sum((1, 2, 3)) / self.before.sum((1, 2, 3))).double()

    @property
    def together(self) -> Tensor:
        """The correlation between what two heads drop, one number for each draw."""
        gone = self.gone.double().flatten(2)
        gone = gone - gone.mean(-1, keepdim=True)
        gone = gone / gone.norm(dim=-1, keepdim=True).clamp(min=1e-300)
        pairs = gone @ gone.mT
        mean: Tensor = (pairs.sum((1, 2)) - pairs.diagonal(dim1=1, dim2=2).sum(1)) / (HEADS * (HEADS - 1))
        return mean


def dropped(generator: torch.Generator, draws: int, p: float) -> DroppedWeights:
    """Random tokens, and the weights that `attend` uses with and without dropout."""
    query, key = (normal(generator, draws, HEADS, KEYS, WIDTH) for _ in range(2))
    seed = int(torch.randint(2**62, (), generator=generator))
    return DroppedWeights(p, weights(query, key), weights(query, key, dropout=Dropout(p, seed)))


def hidden(generator: torch.Generator, draws: int, p: float) -> Tensor:
    """The sums of rows, (draw, head, query), if pairs are hidden with the same chance before softmax instead."""
    query, key = (normal(generator, draws, HEADS, KEYS, WIDTH) for _ in range(2))
    stays = torch.rand(draws, HEADS, KEYS, KEYS, generator=generator) >= p
    return weights(query, key, mask=stays | torch.eye(KEYS, dtype=torch.bool)).sum(-1)


@dataclass(frozen=True)
class DropoutTraining:
    """One training and its evaluation."""

    trained: Trained
    read: ReaderScores


Runs = dict[float, list[DropoutTraining]]  # by rate
RandomDropout = dict[float, DroppedWeights]


def run(setting: Setting) -> Report:
    """Run the experiment."""
    draws, repetitions = setting.choose(full=400, quick=60), setting.choose(full=6, quick=3)
    rates = setting.choose(full=(0.0, 0.1, 0.2, 0.3, 0.5, 0.7), quick=(0.0, 0.1, 0.5))
    generator = setting.generator()
    random = {p: dropped(generator, draws, p) for p in (0.1, 0.3, 0.5)}
    before = hidden(generator, draws, 0.1)
    seeds = setting.seeds(repetitions, generator)
    runs = {p: [measured(setting, p, seed) for seed in seeds] for p in rates}
    lines = line_pictures(random, runs)
    return Report(
        "dropout",
        "What does attention dropout drop, what does it leave as it was, and does it keep a model from learning by "
        "heart?",
        tables(random, before, runs),
        (map_picture(random[0.3]), *lines),
        finding(random, runs),
        compared(*claims(random, runs)),
        setting.record(draws, trainings_of_each_rate=repetitions, steps=runs[0.0][0].trained.task.steps),
        Timing((training_time(each.trained for group in runs.values() for each in group),)),
        why="Dropout is in the formula of most Transformers, and few say what it does to the weights.",
        setup="Dropout sets single weights to 0 with probability p while a model trains, and multiplies the others by "
        f"1/(1 − p). It is drawn on random attention of {KEYS} tokens; then small models learn the topics of so few "
        "texts that they can learn them by heart, with several p, and are asked without dropout about new texts.",
        takeaway=takeaway(random),
        thumbnail=lines[0],
    )


def measured(setting: Setting, p: float, seed: int) -> DropoutTraining:
    """One training with a rate, and its evaluation."""
    steps, looks = setting.choose(full=(150, 15), quick=(80, 8))
    task = TopicReading(seed, steps, rate=1e-2, rise=0.1, looks=looks, dropout=p)
    trained = train(task)
    generator = torch.Generator().manual_seed(seed + 3)
    return DropoutTraining(trained, read(trained.model, task.seen, task.new, generator))


def tables(random: RandomDropout, before: Tensor, runs: Runs) -> tuple[Table, ...]:
    """What is dropped at random, what each rate does to the readers, and rates of known models."""
    drops: list[tuple[Cell, ...]] = []
    for p, drawn in random.items():
        left, deviation, whole = mean(drawn.left), float(drawn.sums.std()), f"{drawn.whole} of {drawn.heads:,}"
        gone = mean(drawn.gone.double().mean((1, 2, 3)))
        drops.append((f"{p:g}", gone, left, deviation, drawn.spread, _range(drawn.sums), whole, mean(drawn.together)))
    left, deviation = mean(before.mean((1, 2))), float(before.std())
    drops.append(("0.1, before softmax", "", left, deviation, 0.0, _range(before), "", ""))
    readers: list[tuple[Cell, ...]] = []
    for p, group in runs.items():
        loss = number([each.trained.column("new")[-1] for each in group])
        right = (column(runs, p, name) for name in ("trained_on", "new"))
        readers.append((f"{p:g}", *right, loss, *(column(runs, p, name) for name in ("words", "half", "headless"))))
    task = runs[0.0][0].trained.task
    assert isinstance(task, TopicReading)
    presets = [
        (
            model,
            seed,
            "" if published is None else f"{published:g}",
            where,
            f"{random[seed].spread:.3f}" if seed in random else "0",
        )
        for model, seed, published, where in PRESETS
    ]
    return (
        Table(
            (
                *("p", "pairs dropped", "weight left", "std of row sums", "√(p/(1−p) Σw²)", "95% of row sums"),
                *("heads dropped whole", "correlation of heads"),
            ),
            drops,
            f"Random self-attention, {HEADS} heads, {KEYS} keys; mean and 95% interval",
        ),
        Table(
            (
                *("p", "texts trained on", "new texts", "loss, new", f"words in use, of {task.length}"),
                *("half the words", "one head less"),
            ),
            readers,
            f"Trained: the topic (of {task.topics}) of texts of {task.length} words, from {task.texts} texts; share of "
            f"topics found without dropout, mean and 95% interval over {len(runs[0.0])} trainings",
        ),
        Table(
            ("model", "the seed", "published", "where", "std of row sums at that rate"),
            presets,
            "Rates of known models; nothing is measured in them here",
        ),
    )


def _range(sums: Tensor) -> str:
    low, high = torch.quantile(sums.flatten()[: 10**6], torch.tensor([0.025, 0.975], dtype=sums.dtype)).tolist()
    return f"{low:.2f} to {high:.2f}"


def column(runs: Runs, p: float, name: str) -> Estimate:
    """A number of the readers of one rate; all but the words in use are shares."""
    values = [getattr(each.read, name) for each in runs[p]]
    return number(values) if name == "words" else share(values)


def map_picture(drawn: DroppedWeights) -> Picture:
    """Whole rows of two heads before and after, with their sums; what was dropped is blank."""
    grids = []
    limits = (0.0, float(drawn.after[0, :2, :SHOWN].max()))
    queries, keys = [f"query {number + 1}" for number in range(SHOWN)], [str(number + 1) for number in range(KEYS)]
    for head in range(2):
        before, after = (each[0, head, :SHOWN] for each in (drawn.before, drawn.after))
        for title, each in ((f"head {head + 1}: weights", before), (f"head {head + 1}: p = {drawn.p:g}", after)):
            rows = [[value or None for value in row] for row in each.tolist()]
            note = f"bars: sums of rows{'' if each is before else '; hatched: dropped'}"
            grids.append(Grid(rows, queries, keys, title, note, limits, margins=(each.sum(-1).tolist(), ())))
    return Panel(grids, "Single pairs are dropped, in each head its own; the others grow, and rows no longer sum to 1")


def line_pictures(random: RandomDropout, runs: Runs) -> tuple[Picture, ...]:
    """How row sums are distributed, losses on new texts during training, and topics found at the end."""
    edges = torch.linspace(0, 2.5, 51, dtype=torch.float64)
    middles = ((edges[1:] + edges[:-1]) / 2).tolist()
    sums = []
    for p, drawn in random.items():
        counts = torch.histogram(drawn.sums.flatten(), edges).hist
        sums.append(Line(f"p = {p:g}", middles, (counts / counts.sum() / float(edges[1])).tolist()))
    rates = [p for p in (0.0, 0.1, 0.3, 0.5) if p in runs]
    losses = [during([each.trained for each in runs[p]], "new", f"p = {p:g}") for p in rates]
    names = {"trained_on": "texts trained on", "new": "new texts", "half": "new, half the words"}
    ends = [curve(label, list(runs), [column(runs, p, name) for p in runs]) for name, label in names.items()]
    training = Lines(losses, "step", "loss (nats)", f"New texts, mean and range of {len(runs[0.0])} runs")
    return (
        Lines(sums, "sum of a row", "density", "Rows no longer sum to 1", histogram=True),
        Panel((training, Lines(ends, "p", "share of topics found", "After training"))),
    )


def claims(random: RandomDropout, runs: Runs) -> tuple[Claim, ...]:
    """What is said of dropout."""
    tenth, most = random[0.1], max(runs)
    pairs = list(zip(runs[most], runs[0.0], strict=True))  # trained on the same texts
    better = number([some.read.new - none.read.new for some, none in pairs])
    words = number([some.read.words - none.read.words for some, none in pairs])
    missed = number(
        [(none.read.new - none.read.headless) - (some.read.new - some.read.headless) for some, none in pairs]
    )
    formula = quoted(CONCEPTS, "\\text{Output} = \\text{Dropout}(\\text{softmax}(scores)) \\times V")
    heads = quoted(CONCEPTS, "Attention heads can't rely on other heads' patterns")
    factor = "Dropout multiplies the weights that stay by 1/(1 − p); the formula leaves that unsaid"
    gained = f"topics of new texts found with p = {most:g}, less those without"
    presets = [
        Claim(quoted(CONCEPTS, f"| {model} | {seed} |"), f"published: {where}", published, near(seed, 0.005))
        for model, seed, published, where in PRESETS
        if published is not None
    ]
    return (
        Claim(formula, "share of the weight that is left, p = 0.1", positive(tenth.left), near(1, 0.01), factor),
        Claim(quoted(CONCEPTS, "Prevents over-reliance on specific attention patterns"), gained, better, above(0)),
        Claim(quoted(CONCEPTS, "Prevents overfitting"), gained, better, above(0)),
        Claim(
            quoted(CONCEPTS, "Model learns to use multiple tokens, not just one"),
            f"more words in use with p = {most:g} than without",
            words,
            above(0),
        ),
        Claim(
            heads, f"topics that a missing head costs without dropout, less those with p = {most:g}", missed, above(0)
        ),
        Claim(
            heads,
            f"heads dropped as a whole, of {tenth.heads:,}, p = 0.1",
            tenth.whole,
            above(0, "partly"),
            "it drops single pairs in each head, never another head",
        ),
        *presets,
    )


def takeaway(random: RandomDropout) -> Takeaway:
    """What is dropped, and what stays the same on average."""
    tenth = random[0.1]
    return Takeaway(
        "Dropout hits single pairs, in each head its own: a row no longer sums to 1, but on average nothing changes.",
        "Dropout does not leave the weights the same on average here, or it drops alike in all heads.",
        (
            Evidence("share of the weight that is left, p = 0.1", positive(tenth.left), near(1, 0.01)),
            Evidence("standard deviation of the sums of rows, p = 0.1", float(tenth.sums.std()), above(0.01)),
            Evidence("correlation between what two heads drop, p = 0.1", mean(tenth.together), near(0, 0.05)),
            Evidence(f"heads dropped as a whole, of {tenth.heads:,}, p = 0.1", tenth.whole, below(0)),
        ),
    )


def finding(random: RandomDropout, runs: Runs) -> str:
    """One sentence, from the numbers."""
    most = max(runs)
    tenth = random[0.1]
    seen, new, words = ([column(runs, p, name).mean for p in (0.0, most)] for name in ("trained_on", "new", "words"))
    return (
        f"With p = 0.1 a row of {KEYS} weights sums to {_range(tenth.sums)} (95%), on average to "
        f"{mean(tenth.left).mean:.3f}; a reader that knows {seen[0]:.0%} of the texts it was trained on finds "
        f"{new[0]:.0%} of new topics without dropout and {new[1]:.0%} with p = {most:g}, where its heads use "
        f"{words[1]:.1f} words instead of {words[0]:.1f}."
    )
