"""induction: two layers of attention learn to go on with a text that repeats itself, at any length.

Every text is random tokens, and then the same again. Nothing foretells the first half; the second can be known by who
looks for the same token earlier and takes what followed it. That takes two layers: a head of layer 1 that looks at the
previous token, so that every place knows what came before it, and a head of layer 2 that looks for the place that came
after a token like its own: an induction head (Elhage et al., 2021; Olsson et al., 2022).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.inspection.capture import capture
from regard.inspection.records import Cell, Estimate, Grid, Lines, Panel, Picture, Table
from regard.lab.induction.task import Inducing, RepeatScores, repeated, seen
from regard.lab.report import MINI_COURSE, RESULTS, Claim, Compared, Report, Timing, confirmed
from regard.lab.setting import Setting
from regard.lab.statistics import curve, during, number, parameters, share
from regard.lab.training import Trained, train
from regard.progress import report

STRONG = 0.8  # a head that gives this share of its weight to one kind of token is called after it
CELLS = 64  # rows and columns of the picture of a long text


@dataclass(frozen=True)
class InductionRun:
    """One training, and what its model makes of new texts of each length."""

    trained: Trained
    at: dict[int, RepeatScores]

    def best(self, length: int) -> tuple[int, int]:
        """The strongest induction head of layer 2, and the strongest previous-token head of layer 1, at a length."""
        return int(self.at[length].induction[1].argmax()), int(self.at[length].previous[0].argmax())


def run(setting: Setting) -> Report:
    """Run the experiment."""
    repetitions = setting.choose(full=3, quick=2)
    seeds = setting.seeds(repetitions)
    runs = [measured(setting, train(training_task(setting, seed))) for seed in seeds]
    return Report(
        "induction",
        "How does a model learn to go on with what it has seen once, and does it still do so far beyond the length it "
        "was trained on?",
        (length_table(runs), head_table(runs[0])),
        (map_picture(runs[0]), training_picture(runs), length_picture(runs), far_picture(runs[0])),
        finding(runs),
        (
            Compared(f"{RESULTS}, Experiment 3", head_claims(runs)),
            Compared(f"{MINI_COURSE}, What is attention?", far_claims(runs)),
        ),
        setting.record(
            repetitions,
            steps=runs[0].trained.task.steps,
            trained_length=trained_length(runs),
            vocabulary=training_task(setting, 0).vocabulary,
        ),
        timing(runs),
    )


def training_task(setting: Setting, seed: int) -> Inducing:
    """What is trained: shorter if quick."""
    return Inducing(
        seed=seed,
        steps=setting.choose(full=700, quick=200),
        rate=1e-2,
        rise=setting.choose(full=0.3, quick=0.5),
        looks=setting.choose(full=50, quick=10),
        length=setting.choose(full=64, quick=48),
        vocabulary=512,
        width=64,
        heads=2,
        batch=setting.choose(full=32, quick=24),
    )


def measured(setting: Setting, trained: Trained) -> InductionRun:
    """The trained model at its length, and at each doubling up to what the vocabulary allows."""
    task = trained.task
    assert isinstance(task, Inducing)
    lengths, texts = [task.length], setting.choose(full=8, quick=3)
    while lengths[-1] <= task.vocabulary:  # a half twice as long still has tokens enough
        lengths.append(2 * lengths[-1])
    generator = torch.Generator().manual_seed(task.seed + 2)
    scores = {}
    for length in lengths:
        report(f"texts of {length:,} tokens", lengths.index(length), len(lengths))
        scores[length] = seen(trained.model, repeated(texts, length, task.vocabulary, generator))
    return InductionRun(trained, scores)


def trained_length(runs: list[InductionRun]) -> int:
    """The length of the texts of the training."""
    return min(runs[0].at)


def induction(runs: list[InductionRun], length: int) -> Estimate:
    """The score of the head that is strongest at the trained length, at another."""
    head = [each.best(trained_length(runs))[0] for each in runs]
    return share([float(each.at[length].induction[1, best]) for each, best in zip(runs, head, strict=True)])


def previous(runs: list[InductionRun], length: int) -> Estimate:
    """The same of the previous-token head of layer 1."""
    head = [each.best(trained_length(runs))[1] for each in runs]
    return share([float(each.at[length].previous[0, best]) for each, best in zip(runs, head, strict=True)])


def length_table(runs: list[InductionRun]) -> Table:
    """Losses and scores at each length."""
    rows: list[tuple[Cell, ...]] = [
        (
            f"{length:,}",
            number([each.at[length].first for each in runs]),
            number([each.at[length].second for each in runs]),
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
    return Table(columns, rows, title)


def head_table(run: InductionRun) -> Table:
    """Every head of one model."""
    scores = run.at[min(run.at)]
    rows = [
        (layer + 1, head + 1, float(scores.previous[layer, head]), float(scores.induction[layer, head]))
        for layer in range(2)
        for head in range(scores.induction.shape[1])
    ]
    return Table(("layer", "head", "previous", "induction"), rows, "The heads of the first run: what each looks at")


def _map(run: InductionRun, layer: int, head: int, length: int) -> Tensor:
    """The weights of one head over one new text, (query, key)."""
    task = run.trained.task
    assert isinstance(task, Inducing)
    tokens = repeated(1, length, task.vocabulary, torch.Generator().manual_seed(task.seed + 3))
    with torch.no_grad():
        return capture(run.trained.model, tokens)[layer, head].dense()[0]


def map_picture(run: InductionRun) -> Picture:
    """Both heads of the first run at the trained length."""
    length = min(run.at)
    best, before = run.best(length)
    shown = (
        (0, before, f"layer 1, head {before + 1}: the previous token"),
        (1, best, f"layer 2, head {best + 1}: what followed the same token"),
    )
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    grids = []
    for layer, head, title in shown:
        weights = _map(run, layer, head, length)
        rows = [
            [float(value) if visible else None for value, visible in zip(row, line, strict=True)]
            for row, line in zip(weights.tolist(), causal.tolist(), strict=True)
        ]
        grids.append(Grid(rows, title=title, limits=(0.0, 1.0)))
    return Panel(grids, f"Trained: {length // 2} tokens, then the same again")


def far_picture(run: InductionRun) -> Picture:
    """The induction head over the longest text: the largest weight of each square of tokens."""
    length = max(run.at)
    best, _ = run.best(min(run.at))
    side = max(1, length // CELLS)
    weights = _map(run, 1, best, length)
    squares = weights.unflatten(1, (-1, side)).unflatten(0, (-1, side)).amax((1, 3))
    rows = [
        [value if column <= row else None for column, value in enumerate(line)]
        for row, line in enumerate(squares.tolist())
    ]
    labels = [f"{place * side:,}" for place in range(len(rows))]
    title = f"The induction head at {length:,} tokens, largest weight of each {side} × {side} square"
    return Grid(rows, labels, labels, title, limits=(0.0, 1.0))


def training_picture(runs: list[InductionRun]) -> Picture:
    """Losses and scores during training."""
    lines = {
        name: during([each.trained for each in runs], name)
        for name in ("first half", "second half", "induction", "previous")
    }
    losses = Lines([lines["first half"], lines["second half"]], "step", "loss (nats)", "Loss")
    scores = Lines([lines["induction"], lines["previous"]], "step", "weight", "Best head of either kind")
    return Panel((losses, scores), f"During training, mean and range of {len(runs)} runs")


def length_picture(runs: list[InductionRun]) -> Picture:
    """Scores against the length."""
    lengths = list(runs[0].at)
    lines = [
        curve("induction head", lengths, [induction(runs, length) for length in lengths]),
        curve("previous-token head", lengths, [previous(runs, length) for length in lengths]),
        curve("2nd half right", lengths, [share([each.at[length].right for each in runs]) for length in lengths]),
    ]
    title = f"Past the trained length of {trained_length(runs)}"
    return Lines(lines, "length of the text", "share", title, log_x=True)


def timing(runs: list[InductionRun]) -> Timing:
    """How long the trainings took."""
    seconds = number([each.trained.record["seconds"] for each in runs])
    size = parameters(runs[0].trained.model)
    return Timing((Table(("parameters", "seconds"), [(size, seconds)], "Training, one thread"),))


def head_claims(runs: list[InductionRun]) -> tuple[Claim, ...]:
    """Heads that specialize."""
    length = trained_length(runs)
    adjacent, like = previous(runs, length), induction(runs, length)
    unlike = share([float(each.at[length].previous[1].max()) for each in runs])
    different = f"{confirmed(unlike.high < adjacent.low, 'partly')}: layer 2 gives so little to the previous token"
    return (
        Claim("a head for adjacent words", "yes", adjacent, f"{_verdict(adjacent, 0.5)}: weight on the previous token"),
        Claim("a head for like words", "yes", like, f"{_verdict(like, STRONG)}: weight on what followed the same"),
        Claim("heads learn different patterns", "yes", unlike, different),
    )


def far_claims(runs: list[InductionRun]) -> tuple[Claim, ...]:
    """Dependencies over long ranges."""
    listed = []
    for length in (trained_length(runs), max(runs[0].at)):
        weight = induction(runs, length)
        says = f"long-range dependencies: {length // 2 - 1:,} tokens"
        listed.append(Claim(says, "captured", weight, f"{_verdict(weight, STRONG)}: weight that far away"))
    return tuple(listed)


def _verdict(weight: Estimate, least: float) -> str:
    return confirmed(weight.mean >= least, "partly")


def drop(trained: Trained) -> tuple[int, int]:
    """Between which steps the loss of the second half fell from nine tenths to one tenth of where it began."""
    steps, losses = trained.column("step"), trained.column("second half")
    begun = max(losses[0], math.log(2))
    late = next((step for step, loss in zip(steps, losses, strict=True) if loss < 0.1 * begun), steps[-1])
    early = max(
        (step for step, loss in zip(steps, losses, strict=True) if loss > 0.9 * begun and step < late), default=0
    )
    return int(early), int(late)


def finding(runs: list[InductionRun]) -> str:
    """One sentence, from the numbers."""
    near, far = trained_length(runs), max(runs[0].at)
    early, late = drop(runs[0].trained)
    second = number([each.at[near].second for each in runs]).mean
    return (
        f"In the first run the loss of what can be known falls between steps {early} and {late} of "
        f"{runs[0].trained.task.steps}, when a head of layer 2 comes to give {induction(runs, near).mean:.2f} of its "
        f"weight to what followed the same token before (loss {second:.3f}); trained on {near} tokens, it still gives "
        f"{induction(runs, far).mean:.2f} at {far:,}, {far // near} times as long."
    )
