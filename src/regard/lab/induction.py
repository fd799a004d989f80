"""induction: two layers of attention learn to go on with a text that repeats itself, at any length.

Every text is random tokens, and then the same again. The first half cannot be predicted. The second half can: look for
the same token earlier and take the one that followed it. That takes two layers: a head of layer 1 that attends to the
previous token, so that every position carries the token before it, and a head of layer 2 that attends to the position
after an earlier copy of its own token: an induction head (Elhage et al., 2021; Olsson et al., 2022).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch import nn as torch_nn
from torch.nn.functional import cross_entropy

from regard import nn
from regard.cached import cached_property
from regard.inspection.capture import capture
from regard.inspection.heads import head_table
from regard.inspection.records import Cell, Estimate, Grid, Lines, Panel, Picture, Table
from regard.lab.report import (
    MINI_COURSE,
    RESULTS,
    Claim,
    DecisionRule,
    Evidence,
    Report,
    Takeaway,
    Timing,
    above,
    compared,
    quoted,
)
from regard.lab.setting import Setting
from regard.lab.statistics import curve, during, number, parameters, positive, share
from regard.lab.training import Task, Trained, train
from regard.progress import report
from regard.spec.biases import ALiBi
from regard.spec.biases import Distance as DistanceBias

STRONG = 0.8  # a head that gives this share of its weight to one kind of token is called after it
STRONG_HEAD = DecisionRule(((STRONG, "weaker"), (math.inf, "strong")))
CELLS = 64  # rows and columns of the picture of a long text
REACH = 8  # distances that have a bias of their own; all longer ones share one
GAIN = 10.0
WATCHED = 8  # texts that are evaluated during training


def repeated(rows: int, length: int, vocabulary: int, generator: torch.Generator) -> Tensor:
    """(rows, length): different tokens in random order, and then the same again: each has one right successor."""
    half = length // 2
    if half > vocabulary:
        raise ValueError(f"a half of {half} different tokens needs as many in the vocabulary, which has {vocabulary}")
    first = torch.rand(rows, vocabulary, generator=generator).argsort(1)[:, :half]
    return torch.cat([first, first], 1)


def second_half(logits: Tensor, tokens: Tensor) -> Tensor:
    """The mean cross-entropy of the tokens that can be predicted: all of the second half but its first."""
    half = tokens.shape[1] // 2
    return cross_entropy(logits[:, half:-1].flatten(0, 1), tokens[:, half + 1 :].flatten())


def first_half(logits: Tensor, tokens: Tensor) -> Tensor:
    """The mean cross-entropy of the tokens of the first half, which cannot be predicted."""
    half = tokens.shape[1] // 2
    return cross_entropy(logits[:, : half - 1].flatten(0, 1), tokens[:, 1:half].flatten())


@dataclass(frozen=True)
class RepeatScores:
    """Losses of both halves, the share of the second that is predicted right, and two scores of each (layer, head).

    `induction` is the mean weight of the second half on tokens that followed the same token before, `previous` that of
    all tokens on the one before.
    """

    first: float
    second: float
    right: float
    induction: Tensor
    previous: Tensor


def scores(model: torch_nn.Module, tokens: Tensor) -> RepeatScores:
    """Losses and head scores of a model on repeated texts."""
    half = tokens.shape[1] // 2
    with torch.no_grad():
        captured = capture(model, tokens)
        logits = captured.output
        second = torch.arange(tokens.shape[1]) >= half
        induction = head_table(captured, which=("induction",), ids=tokens, queries=second)
        previous = head_table(captured, which=("previous",), ids=tokens)
        right = (logits[:, half:-1].argmax(-1) == tokens[:, half + 1 :]).double().mean()
    shape = (len(captured), -1)
    return RepeatScores(
        float(first_half(logits, tokens)),
        float(second_half(logits, tokens)),
        float(right),
        torch.tensor(induction["induction"], dtype=torch.float64).view(shape),
        torch.tensor(previous["previous"], dtype=torch.float64).view(shape),
    )


class Near(nn.Distance):
    """A learned bias for each short distance and one for all long ones; it starts at 0 and learns `GAIN` times as fast.

    What is learned holds at any length, because all distances beyond `REACH` share one bias.
    """

    def forward(self) -> DistanceBias:
        return DistanceBias(GAIN * self.table)


class AttentionOnly(torch_nn.Module):
    """Logits of the next token from two attention layers with norms and residuals; the head is the embedding.

    Layer 1 also has ALiBi, which bounds the total weight of far tokens at any length. Layer 2 has not: it must be able
    to attend to any distance.
    """

    def __init__(self, vocabulary: int, width: int, heads: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = torch_nn.ModuleList(
            nn.MultiHeadAttention(
                width,
                heads,
                d_k=width // 2,
                d_v=width // heads,
                mask="causal",
                position=Near(heads, REACH),
                bias=ALiBi(heads) if first else None,
                projection_bias=False,
            )
            for first in (True, False)
        )
        self.norms = torch_nn.ModuleList(torch_nn.LayerNorm(width) for _ in range(3))

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, length) to logits (batch, length, vocabulary)."""
        x = self.embedding(tokens)
        for layer, norm in zip(self.layers, self.norms, strict=False):
            x = x + layer(norm(x))
        logits: Tensor = torch_nn.functional.linear(self.norms[-1](x), self.embedding.tokens.weight)
        return logits


@dataclass(frozen=True)
class Inducing(Task):
    """Texts of one length whose second half repeats the first; the loss is that of the second half."""

    length: int
    batch: int
    vocabulary: int = 512
    width: int = 64
    heads: int = 2

    @property
    def name(self) -> str:
        return f"induction {self.seed}"

    def model(self) -> torch_nn.Module:
        return AttentionOnly(self.vocabulary, self.width, self.heads)

    def loss(self, model: torch_nn.Module, generator: torch.Generator) -> Tensor:
        """Cross-entropy of the second half of new texts, in which a token may come twice in a half."""
        tokens = torch.randint(self.vocabulary, (self.batch, self.length // 2), generator=generator).repeat(1, 2)
        return second_half(model(tokens), tokens)

    def look(self, model: torch_nn.Module) -> dict[str, float]:
        """Losses, and the best score of a head of either kind."""
        result = scores(model, self._watched)
        return {
            "first half": result.first,
            "second half": result.second,
            "induction": float(result.induction[1].max()),
            "previous": float(result.previous[0].max()),
        }

    @cached_property
    def _watched(self) -> Tensor:
        return repeated(WATCHED, self.length, self.vocabulary, torch.Generator().manual_seed(self.seed + 1))


@dataclass(frozen=True)
class InductionRun:
    """One training, and its scores on new texts of each length."""

    trained: Trained
    at: dict[int, RepeatScores]

    def best(self, length: int) -> tuple[int, int]:
        """The strongest induction head of layer 2, and the strongest previous-token head of layer 1, at a length."""
        return int(self.at[length].induction[1].argmax()), int(self.at[length].previous[0].argmax())


def run(setting: Setting) -> Report:
    """Run the experiment."""
    repetitions = setting.choose(full=3, quick=2)
    seeds, task = setting.seeds(repetitions), training_task(setting, 0)
    runs = [measured(setting, train(training_task(setting, seed))) for seed in seeds]
    size, seconds = parameters(runs[0].trained.model), positive([each.trained.record["seconds"] for each in runs])
    return Report(
        "induction",
        "How does a model learn to go on with what it has seen once, and does it still do so far beyond the length it "
        "was trained on?",
        tables(runs),
        (map_picture(runs[0]), *line_pictures(runs), far_picture(runs[0])),
        finding(runs),
        compared(*claims(runs)),
        setting.record(repetitions, steps=task.steps, trained_length=trained_length(runs), vocabulary=task.vocabulary),
        Timing((Table(("parameters", "seconds"), [(size, seconds)], "Training, one thread"),)),
        why="Copying from earlier in the text is the simplest form of learning from context, and the best understood.",
        setup="Every text is random tokens, then the same tokens again. The second half can be predicted: find the "
        "same token earlier and take what followed it. That takes a head of layer 1 that looks at the token before, "
        "and a head of layer 2, the induction head, that looks at what followed the earlier copy.",
        takeaway=takeaway(runs),
    )


def training_task(setting: Setting, seed: int) -> Inducing:
    """What is trained: shorter if quick."""
    steps, rise, looks = setting.choose(full=(700, 0.3, 50), quick=(200, 0.5, 10))
    length, batch = setting.choose(full=(64, 32), quick=(48, 24))
    return Inducing(seed, steps, 1e-2, rise, looks, length, batch)


def measured(setting: Setting, trained: Trained) -> InductionRun:
    """The trained model at its length, and at each doubling up to what the vocabulary allows."""
    task = trained.task
    assert isinstance(task, Inducing)
    lengths, texts = [task.length], setting.choose(full=8, quick=3)
    while lengths[-1] <= task.vocabulary:  # a half twice as long still has tokens enough
        lengths.append(2 * lengths[-1])
    generator = torch.Generator().manual_seed(task.seed + 2)
    by_length = {}
    for done, length in enumerate(lengths):
        report(f"texts of {length:,} tokens", done, len(lengths))
        by_length[length] = scores(trained.model, repeated(texts, length, task.vocabulary, generator))
    return InductionRun(trained, by_length)


def trained_length(runs: list[InductionRun]) -> int:
    """The length of the texts of the training."""
    return min(runs[0].at)


def induction(runs: list[InductionRun], length: int) -> Estimate:
    """The score at a length of the induction head that is strongest at the trained length."""
    return share([float(each.at[length].induction[1, each.best(trained_length(runs))[0]]) for each in runs])


def previous(runs: list[InductionRun], length: int) -> Estimate:
    """The same of the previous-token head of layer 1."""
    return share([float(each.at[length].previous[0, each.best(trained_length(runs))[1]]) for each in runs])


def tables(runs: list[InductionRun]) -> tuple[Table, Table]:
    """Losses and scores at each length, and every head of the first model."""
    lengths: list[tuple[Cell, ...]] = [
        (
            f"{length:,}",
            positive([each.at[length].first for each in runs]),
            positive([each.at[length].second for each in runs]),
            share([each.at[length].right for each in runs]),
            induction(runs, length),
            previous(runs, length),
        )
        for length in runs[0].at
    ]
    columns = ("length", "loss, 1st half", "loss, 2nd half", "2nd half right", "induction head", "previous-token head")
    task = runs[0].trained.task
    assert isinstance(task, Inducing)
    title = (
        f"Trained on texts of {task.length} tokens, on the loss of the second half alone (guessing costs "
        f"ln {task.vocabulary} = {math.log(task.vocabulary):.2f}); mean and 95% interval over {len(runs)} trainings"
    )
    result = runs[0].at[task.length]
    heads = [
        (layer + 1, head + 1, float(result.previous[layer, head]), float(result.induction[layer, head]))
        for layer in range(2)
        for head in range(result.induction.shape[1])
    ]
    each_head = "The heads of the first run: what each looks at"
    return Table(columns, lengths, title), Table(("layer", "head", "previous", "induction"), heads, each_head)


def _map(run: InductionRun, layer: int, head: int, length: int) -> Tensor:
    """The weights of one head over one new text, (query, key)."""
    task = run.trained.task
    assert isinstance(task, Inducing)
    tokens = repeated(1, length, task.vocabulary, torch.Generator().manual_seed(task.seed + 3))
    with torch.no_grad():
        return capture(run.trained.model, tokens)[layer, head].dense()[0]


def _causal(weights: Tensor) -> list[list[float | None]]:
    """Weights as rows of a grid, blank above the diagonal."""
    rows = enumerate(weights.tolist())
    return [[value if key <= query else None for key, value in enumerate(row)] for query, row in rows]


def map_picture(run: InductionRun) -> Picture:
    """Both heads of the first run at the trained length."""
    length = min(run.at)
    best, before = run.best(length)
    heads = {
        (0, before): f"layer 1, head {before + 1}: the previous token",
        (1, best): f"layer 2, head {best + 1}: what followed the same token",
    }
    grids = [Grid(_causal(_map(run, *head, length)), title=title, limits=(0.0, 1.0)) for head, title in heads.items()]
    return Panel(grids, f"Trained: {length // 2} tokens, then the same again")


def far_picture(run: InductionRun) -> Picture:
    """The induction head over the longest text: the largest weight of each square of tokens."""
    length = max(run.at)
    best, _ = run.best(min(run.at))
    side = max(1, length // CELLS)
    squares = _map(run, 1, best, length).unflatten(1, (-1, side)).unflatten(0, (-1, side)).amax((1, 3))
    labels = [f"{place * side:,}" for place in range(len(squares))]
    title = f"The induction head at {length:,} tokens, largest weight of each {side} × {side} square"
    return Grid(_causal(squares), labels, labels, title, limits=(0.0, 1.0))


def line_pictures(runs: list[InductionRun]) -> tuple[Picture, Picture]:
    """Losses and scores during training, and scores against the length."""
    first, second, best, before = (
        during([each.trained for each in runs], name) for name in ("first half", "second half", "induction", "previous")
    )
    losses = Lines([first, second], "step", "loss (nats)", "Loss")
    weights = Lines([best, before], "step", "weight", "Best head of either kind")
    lengths = list(runs[0].at)
    lines = [
        curve("induction head", lengths, [induction(runs, length) for length in lengths]),
        curve("previous-token head", lengths, [previous(runs, length) for length in lengths]),
        curve("2nd half right", lengths, [share([each.at[length].right for each in runs]) for length in lengths]),
    ]
    title = f"Past the trained length of {trained_length(runs)}"
    return (
        Panel((losses, weights), f"During training, mean and range of {len(runs)} runs"),
        Lines(lines, "length of the text", "share", title, log_x=True),
    )


def claims(runs: list[InductionRun]) -> tuple[Claim, ...]:
    """Heads that specialize, and dependencies over long ranges."""
    length = trained_length(runs)
    apart = number([float(each.at[length].previous[0].max() - each.at[length].previous[1].max()) for each in runs])
    different = quoted(RESULTS, "Multiple heads: learn DIFFERENT patterns (similarity drops to ~0.12-0.19)")
    adjacent = quoted(RESULTS, 'Head 3: positional patterns ("adjacent words")')
    far = quoted(MINI_COURSE, "Capturing long-range dependencies between words")
    weight = "weight of the induction head on the token"
    return (
        Claim(adjacent, "weight of the best head of layer 1 on the previous token", previous(runs, length), above(0.5)),
        Claim(different, "weight on the previous token, best head of layer 1 less best of layer 2", apart, above(0)),
        *(
            Claim(far, f"{weight} {size // 2 - 1:,} tokens back", induction(runs, size), above(STRONG, "partly"))
            for size in (length, max(runs[0].at))
        ),
    )


def takeaway(runs: list[InductionRun]) -> Takeaway:
    """How two layers copy."""
    length = trained_length(runs)
    return Takeaway(
        "Two layers learn to copy: a head looks at the token before, the next layer at what followed it earlier.",
        "With this training no induction head has formed.",
        (
            Evidence("weight of the induction head on what followed", induction(runs, length), above(0.5)),
            Evidence("weight of the best head of layer 1 on the token before", previous(runs, length), above(0.3)),
        ),
    )


def drop(trained: Trained) -> tuple[int, int]:
    """Between which steps the loss of the second half fell from nine tenths to one tenth of where it began."""
    steps, losses = trained.column("step"), trained.column("second half")
    begun = max(losses[0], math.log(2))
    points = list(zip(steps, losses, strict=True))
    late = next((step for step, loss in points if loss < 0.1 * begun), steps[-1])
    early = max((step for step, loss in points if loss > 0.9 * begun and step < late), default=0)
    return int(early), int(late)


def finding(runs: list[InductionRun]) -> str:
    """Sentences, from the numbers."""
    near, far = trained_length(runs), max(runs[0].at)
    early, late = drop(runs[0].trained)
    second = positive([each.at[near].second for each in runs]).mean
    lasts = STRONG_HEAD.verdict(induction(runs, far), "not shown to be strong with this many runs")
    return (
        f"In the first run the loss of what can be known falls between steps {early} and {late} of "
        f"{runs[0].trained.task.steps}, when a head of layer 2 comes to give {induction(runs, near).mean:.2f} of its "
        f"weight to what followed the same token before (loss {second:.3f}). Trained on {near} tokens, at {far:,} "
        f"({far // near} times as long) it gives {induction(runs, far).mean:.2f}: it is {lasts} there."
    )
